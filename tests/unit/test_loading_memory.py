"""Peak memory of loading, as a multiple of the file size; and no file makes loading take forever."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from forests import random_forest

from gpuqs.formats import native

BENCH = Path(__file__).parents[2] / "bench"
if str(BENCH) not in sys.path:
    sys.path.append(str(BENCH))

from model_files import FILES  # noqa: E402

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system tells no peak of memory")

#: A process's peak memory while it reads a file, above its initial memory, divided by the file's size.
PEAK = """
import os, sys
from gpuqs.errors import ModelFormatError
from gpuqs.formats import read_model, readers

def kilobytes(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name))

list(readers())
before = kilobytes("VmRSS")
try:
    trees = read_model(sys.argv[1]).n_trees
except ModelFormatError:
    trees = -1
print(trees, (kilobytes("VmHWM") - before) * 1024 / os.path.getsize(sys.argv[1]))
"""

def peak(path: Path) -> tuple[int, float]:
    """The number of trees (-1 if the file is refused), and the peak divided by the file's size."""
    run = subprocess.run(
        [sys.executable, "-c", PEAK, str(path)], check=True, capture_output=True, text=True, timeout=120
    )
    trees, times = run.stdout.split()
    return int(trees), float(times)


#: Format -> numbers of trees that give about 5 MB, with 2 and with 64 leaves each.
TREES = {
    "LightGBM text": (14_000, 900),
    "LightGBM text, categories": (14_000, 900),
    "LightGBM text, linear leaves": (10_000, 500),
    "XGBoost JSON": (10_000, 700),
    "XGBoost UBJSON": (6_500, 1_000),
    "CatBoost JSON": (14_000, 1_600),
    "CatBoost JSON, nested": (14_000, 225),
    "CatBoost binary": (70_000, 4_000),
    "CatBoost binary, nested": (50_000, 1_700),
    "Treelite JSON": (12_500, 300),
    "QuickRank XML": (17_000, 400),
    "Jforests XML": (17_000, 1_700),
}
#: Formats that are not checked: onnx's own message alone takes several times the file's size.
UNBOUNDED = ("ONNX",)
#: Formats of libraries without a Python package, which our own code writes.
OURS = ("QuickRank XML", "Jforests XML")


def test_every_format_is_checked_or_named() -> None:
    assert {*TREES, *UNBOUNDED} == {*FILES}


@pytest.mark.parametrize("n_leaves", [2, 64])
@pytest.mark.parametrize("name", TREES)
def test_loading_takes_at_most_six_times_the_file(tmp_path: Path, name: str, n_leaves: int) -> None:
    if name not in OURS:
        pytest.importorskip(name.partition(" ")[0].lower())
    n_trees = TREES[name][n_leaves != 2]
    path = tmp_path / "model"
    path.write_bytes(FILES[name](n_leaves, n_trees))
    assert 3e6 < path.stat().st_size < 10e6, "the file is too small or too large to tell"
    trees, times = peak(path)
    assert trees == n_trees
    assert times <= 6, f"{times:.1f} times the file"


#: Memory limit for reading a hostile file, as a multiple of its size: Python's lists and dicts per bracket.
HOSTILE_TIMES = 64
SIZE = 2 << 20
IN_JSON = b'{"learner":{"a":[%s0]}}'
IN_UBJSON = b"{U\x07learner["
HOSTILE = {
    "JSON, empty arrays": IN_JSON % (b"[]," * (SIZE // 3)),
    "JSON, empty objects": IN_JSON % (b"{}," * (SIZE // 3)),
    "JSON, nested arrays": IN_JSON % ((b"[" * 400 + b"]" * 400 + b",") * (SIZE // 801)),
    "JSON, small objects": IN_JSON % (b'{"a":1},' * (SIZE // 8)),
    "JSON, trees that are none": IN_JSON % (b'{"left_children":[1]},' * (SIZE // 22)),
    "JSON, splits that are none": b'{"trees":[%s0]}' % (b'{"split_type":[]},' * (SIZE // 18)),
    "JSON, nodes that are none": b'{"task_type":[%s0]}' % (b'{"nodes":[0]},' * (SIZE // 14)),
    "UBJSON, empty arrays": IN_UBJSON + b"[]" * (SIZE // 2) + b"]}",
    "UBJSON, empty objects": IN_UBJSON + b"{}" * (SIZE // 2) + b"]}",
    "UBJSON, nested arrays": IN_UBJSON + (b"[" * 60 + b"]" * 60) * (SIZE // 120) + b"]}",
    "UBJSON, typed arrays of none": IN_UBJSON + b"[$D#U\0" * (SIZE // 6) + b"]}",
    "UBJSON, typed arrays of one": IN_UBJSON + b"[$U#U\x01\x07" * (SIZE // 7) + b"]}",
    "UBJSON, constants": IN_UBJSON + b"Z" * SIZE + b"]}",
    "LightGBM, lines": b"tree\nversion=v4\nTree=0\n" + b"a=1\n" * (SIZE // 4) + b"end of trees\n",
    "LightGBM, spaces": b"tree\nmax_feature_idx=%d\nfeature_names=" % SIZE + b" " * SIZE + b"\nTree=0\nend of trees\n",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_takes_a_bounded_multiple_of_its_size(tmp_path: Path, case: str) -> None:
    path = tmp_path / "model"
    path.write_bytes(HOSTILE[case])
    trees, times = peak(path)
    assert trees == -1
    assert times <= HOSTILE_TIMES, f"{times:.1f} times the file"


def within(seconds: float, code: str) -> None:
    """Run code that takes a second or two, but took minutes when time grew faster than linearly."""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=seconds)


def test_no_ops_are_skipped_at_once() -> None:
    within(60, "from gpuqs.cpu_fallback.ubjson import decode; assert decode(b'[' + b'N' * (256 << 20) + b']') == []")


def test_duplicates_among_many_columns_are_found_at_once(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "rows.csv"
    names = [f"c{i}" for i in range(150_000)]
    path.write_text(",".join([*names, "c7", "c7"]) + "\n")
    native.write(random_forest(np.random.default_rng(1)), tmp_path / "model")
    code = f"""
import gpuqs
from gpuqs.readers import open_documents
try:
    open_documents({str(path)!r}, gpuqs.load({str(tmp_path / "model")!r}).forest, header=True)
except gpuqs.errors.InputError as error:
    assert "several columns are named 'c7'" in str(error), error
else:
    raise AssertionError("not refused")
"""
    within(60, code)


def test_no_thresholds_all_collide() -> None:
    """Keys that would be equal before multiplication, given their group's number and the high half of their bits."""
    code = """
import numpy as np
from gpuqs.cpu_fallback import making
group = np.arange(500_000, dtype=np.uint64)
alike = np.uint64(0x3FF1234500000000) ^ group << np.uint64(20)
first, number = making.distinct((alike ^ alike >> np.uint64(32)).view(np.float64), group.astype(np.int32))
assert np.array_equal(number, group)
"""
    within(60, code)


def test_many_superblocks_are_numbered_at_once() -> None:
    code = """
import numpy as np
from gpuqs.cpu_fallback import making
predicate = np.random.default_rng(1).permutation(5_000_000).astype(np.int32)
first_node = np.arange(0, len(predicate) + 1, 50)
ends, distinct, n_distinct, number = making.number_predicates(predicate, len(predicate), first_node, 100, 10_000)
assert len(ends) == 50_000 and np.array_equal(np.sort(predicate.reshape(-1, 100)).ravel(), distinct)
"""
    within(60, code)
