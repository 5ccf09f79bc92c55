"""Tree programs: which form they have, and what happens if a process may not write code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from assembling import disassemble
from forests import probing_documents, random_forest

from gpuqs import Model, cpu_fallback
from gpuqs.cpu_fallback.scorer import compiles
from gpuqs.engines.bitslice import Bitslice
from gpuqs.forest import Forest
from gpuqs.layout.bitslice import BitsliceLayout
from gpuqs.layout.leaves import number_leaves
from gpuqs.layout.programs import node_programs

COMPILING = [isa for isa in cpu_fallback.available_isas() if compiles(isa)]


def forest_of(n_leaves: int, shape: str = "complete") -> Forest:
    return random_forest(np.random.default_rng(7), n_trees=5, max_leaves=n_leaves, shape=shape)


def form_of(forest: Forest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The form of the programs that the engine builds and binds."""
    forms = []
    bind = cpu_fallback.Bitslice

    def spy(layout: BitsliceLayout, *args: object, **options: object) -> cpu_fallback.Bitslice:
        forms.append(type(layout.programs).__name__)
        return bind(layout, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(cpu_fallback, "Bitslice", spy)
        Bitslice().prepare(forest, "exact")
    return forms[0]


@pytest.mark.parametrize("isa", cpu_fallback.available_isas())
def test_only_instruction_sets_with_an_encoder_compile(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUQS_ISA", isa)
    assert not compiles(isa) or cpu_fallback.instruction_set().has_encoder
    assert form_of(forest_of(256), monkeypatch) == ("NodePrograms" if compiles(isa) else "TreeletPrograms")


@pytest.mark.skipif(not COMPILING, reason="no instruction set here is compiled for")
def test_who_forbids_it_has_programs_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUQS_MACHINE_CODE", "0")
    assert form_of(forest_of(256), monkeypatch) == "TreeletPrograms"


def test_nodes_stand_where_their_leaves_meet() -> None:
    forest = forest_of(9, "random")
    ranges = number_leaves(forest)
    word = np.arange(forest.n_nodes) + 100
    programs = node_programs(forest, ranges, word.astype(np.int32))
    assert len(programs.nodes) == forest.leaf_offsets[-1]
    for tree in range(forest.n_trees):
        nodes = programs.nodes[programs.node_offsets[tree] : programs.node_offsets[tree + 1]]
        first = forest.node_offsets[tree]

        def check(node: int, j: int, nodes: np.ndarray = nodes, first: int = first) -> None:
            at = first + node
            assert (j, nodes[j]["predicate"]) == (ranges.middle[at], word[at])
            for side, child in (("left", forest.left[at]), ("right", forest.right[at])):
                if child < 0:
                    assert nodes[j][side] == 0
                else:
                    check(child, int(nodes[j][side]))

        if len(nodes) == 1:
            assert nodes[0]["right"] == 0
        else:
            check(0, int(nodes[0]["right"]))


@pytest.mark.parametrize("isa", COMPILING)
@pytest.mark.parametrize("n_threads", [1, 2, 3, 7, 50])
def test_threads_share_the_writing_of_code_out(isa: str, n_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with more threads than tree blocks; each model is new, since its code is written once."""
    monkeypatch.setenv("GPUQS_ISA", isa)
    rng = np.random.default_rng(3)
    model = Model(random_forest(rng, n_trees=400, max_leaves=30))
    X = probing_documents(rng, model.forest, 700)
    np.testing.assert_array_equal(
        model.predict(X, "raw", engine="bitslice", n_threads=n_threads), model.predict(X, "raw", engine="reference")
    )


IN_A_PROCESS_THAT_MAY_NOT_WRITE_CODE = """
import ctypes, sys
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):  # PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN: Linux 6.3
    sys.exit(77)
import numpy as np
from gpuqs import Model, cpu_fallback
from forests import probing_documents, random_forest
assert not cpu_fallback.compiles_programs()
rng = np.random.default_rng(7)
model = Model(random_forest(rng, n_trees=30, max_leaves=40))
X = probing_documents(rng, model.forest, 600)
np.testing.assert_array_equal(model.predict(X, "raw", engine="bitslice"), model.predict(X, "raw", engine="reference"))
"""


IN_A_PROCESS_THAT_MAY_NOT_ANY_MORE = """
import ctypes, sys
import numpy as np
from gpuqs import Model, cpu_fallback
from forests import probing_documents, random_forest
can = cpu_fallback.compiles_programs()
rng = np.random.default_rng(7)
model = Model(random_forest(rng, n_trees=5, max_leaves=1100, shape="complete"))
X = probing_documents(rng, model.forest, 600)
few = model.predict(X[:3], "raw", engine="walk")
if ctypes.CDLL(None).prctl(65, 1, 0, 0, 0):
    sys.exit(77)
for _ in range(2):
    raw = model.predict(X, "raw", engine="walk")
    np.testing.assert_array_equal(raw, model.predict(X, "raw", engine="reference"))
np.testing.assert_array_equal(few, raw[:3])
try:
    model.predict(X, "raw", engine="bitslice")
    assert not can
except MemoryError:
    assert can
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks the Linux kernel")
@pytest.mark.parametrize("script", [IN_A_PROCESS_THAT_MAY_NOT_WRITE_CODE, IN_A_PROCESS_THAT_MAY_NOT_ANY_MORE])
def test_a_process_that_may_not_write_code_interprets_or_walks(script: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", script],
        cwd=Path(__file__).parents[1],  # has `forests`, but not the sources of gpuqs
        capture_output=True,
        text=True,
    )
    if run.returncode == 77:
        pytest.skip("this kernel lets every process write code")
    assert run.returncode == 0, run.stderr


SCORES = """
import sys
import numpy as np
from gpuqs import Model
from forests import random_forest
rng = np.random.default_rng(7)
model = Model(random_forest(rng, n_trees=100, max_leaves=40))
model.predict(rng.normal(size=(int(sys.argv[1]), model.n_features)), "raw", engine="bitslice", n_threads=1)
"""


def score_in_a_process(n: int, **environment: str) -> tuple[int, subprocess.CompletedProcess[str]]:
    """The process ID, and how the process ended."""
    process = subprocess.Popen(
        [sys.executable, "-c", SCORES, str(n)],
        cwd=Path(__file__).parents[1],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    out, err = process.communicate(timeout=120)
    return process.pid, subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.mark.skipif(not COMPILING, reason="no instruction set here is compiled for")
@pytest.mark.parametrize("isa", COMPILING)
def test_code_is_written_and_named_on_request(isa: str, tmp_path: Path) -> None:
    """The file holds the running programs: one function per tree block, at the addresses in the map."""
    pid, run = score_in_a_process(100, GPUQS_ISA=isa, GPUQS_DUMP_CODE=str(tmp_path), GPUQS_PERF_MAP="1")
    assert run.returncode == 0, run.stderr
    named = Path(f"/tmp/perf-{pid}.map")
    lines = named.read_text().splitlines()
    named.unlink()
    (file,) = tmp_path.iterdir()
    match = re.fullmatch(rf"gpuqs-{pid}-{re.escape(isa)}-128-([0-9a-f]+)\.bin", file.name)
    assert match, file.name
    code, address = file.read_bytes(), int(match[1], 16)
    end = address
    names = []
    for line in lines:
        start, size, name = line.split(" ")
        assert 0 <= int(start, 16) - end < 64  # functions start on cache lines
        end = int(start, 16) + int(size, 16)
        instructions = disassemble(code[int(start, 16) - address : end - address])
        assert (instructions[0], instructions.count("ret")) == ("endbr64", 1)
        names.append(name)
    assert end == address + len(code)
    assert names == [f"gpuqs_trees_0_to_63_{isa}_128", f"gpuqs_trees_64_to_99_{isa}_128"]


@pytest.mark.skipif(not COMPILING, reason="no instruction set here is compiled for")
def test_code_is_not_written_unasked(tmp_path: Path) -> None:
    pid, run = score_in_a_process(100, GPUQS_DUMP_CODE="", GPUQS_PERF_MAP="0")
    assert run.returncode == 0, run.stderr
    assert not Path(f"/tmp/perf-{pid}.map").exists()


@pytest.mark.skipif(not COMPILING, reason="no instruction set here is compiled for")
def test_where_code_is_written_is_asked_while_others_cannot_change_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPUQS_DUMP_CODE is read under Python's lock, which protects the environment; code is written without it."""
    monkeypatch.setenv("GPUQS_ISA", COMPILING[0])
    monkeypatch.setenv("GPUQS_DUMP_CODE", str(tmp_path))
    asked = Bitslice().prepare(forest_of(9), "exact")
    monkeypatch.delenv("GPUQS_DUMP_CODE")
    unasked = Bitslice().prepare(forest_of(9), "exact")
    monkeypatch.setenv("GPUQS_DUMP_CODE", str(tmp_path))
    X, sums = np.zeros((1, 8)), np.zeros((1, 1))
    Bitslice().score(unasked, X, sums)
    assert not os.listdir(tmp_path)
    monkeypatch.delenv("GPUQS_DUMP_CODE")
    Bitslice().score(asked, X, sums)
    assert len(os.listdir(tmp_path)) == 1


@pytest.mark.skipif(not COMPILING, reason="no instruction set here is compiled for")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    _, run = score_in_a_process(100, GPUQS_DUMP_CODE=str(tmp_path / "missing"))
    assert run.returncode == 1
    assert f"GPUQS_DUMP_CODE: cannot write {tmp_path}/missing/gpuqs-" in run.stderr
    assert "No such file or directory" in run.stderr
