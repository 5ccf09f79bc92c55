"""docs/quickscorer.md and docs/gpu.md agree with the layout, the engines and the recorded run."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from agreement import needs_quickscorer
from bitslice_page import DOCUMENTS, FOREST
from quickscorer_page import DRAWINGS, DRAWN, OF_GPUS, every_document, one_document

from gpuqs import Model, cpu_fallback
from gpuqs.demo.mslr import mslr_like
from gpuqs.engines.quickscorer import MAX_LEAVES, QuickScorer, VQuickScorer
from gpuqs.layout.programs import MAX_LEAVES as BITSLICE_LEAVES
from gpuqs.layout.rankwalk import MAX_LEAVES as RANKWALK_LEAVES
from gpuqs.layout.reversing import FALSE_SHARE, SIGNIFICANT

ROOT = Path(__file__).parents[2]
if str(ROOT / "bench") not in sys.path:
    sys.path.append(str(ROOT / "bench"))

from baselines.oblivious_forest import oblivious_like  # noqa: E402
from made_up import lambdamart_like  # noqa: E402
from pages.figures import speeds  # noqa: E402

PAGE, GPU_PAGE = ((ROOT / "docs" / name).read_text() for name in ("quickscorer.md", "gpu.md"))
README = (ROOT / "README.md").read_text()


@pytest.mark.parametrize("drawing", DRAWINGS)
def test_the_page_shows_what_the_code_makes(drawing: Callable[[], str]) -> None:
    assert f"```text\n{drawing()}\n```" in PAGE


@pytest.mark.parametrize("drawing", OF_GPUS)
def test_the_page_of_gpus_shows_what_the_code_makes(drawing: Callable[[], str]) -> None:
    assert f"```text\n{drawing()}\n```" in GPU_PAGE


def test_the_pages_have_no_other_drawing() -> None:
    assert PAGE.count("```text\n") == len(DRAWINGS)
    assert GPU_PAGE.count("```text\n") == len(OF_GPUS)


@needs_quickscorer
@pytest.mark.parametrize("engine", ["qs", "vqs"])
def test_the_documents_of_the_page_are_scored_as_it_says(engine: str) -> None:
    leaves = Model(FOREST).predict(DOCUMENTS, "leaf", engine=engine).ravel()
    drawn = [int(line.split()[-1]) for line in every_document().splitlines()[1:]]
    np.testing.assert_array_equal(leaves, drawn)
    np.testing.assert_array_equal(leaves, Model(FOREST).predict(DOCUMENTS, "leaf", engine="reference").ravel())
    values = ", ".join(f"{name} = {x:g}" for name, x in zip("abc", DOCUMENTS[DRAWN], strict=True))
    assert f"Document {DRAWN} is {values}." in PAGE
    assert f"The leftmost 1 is leaf {leaves[DRAWN]}." in PAGE
    assert one_document().split()[-1].index("1") == leaves[DRAWN]


def test_limits_are_those_of_the_code() -> None:
    said = re.findall(r"`(document_block|tree_block|MAX_LEAVES)`\s+\(([\d,]+)\)", PAGE)
    defaults = {(e.name, p.name): p.default for e in (QuickScorer, VQuickScorer) for p in e.parameters}
    of_blocks = [("qs", "document_block"), ("vqs", "tree_block"), ("vqs", "document_block")]
    numbers = (*(defaults[each] for each in of_blocks), MAX_LEAVES)
    assert [int(number.replace(",", "")) for _, number in said] == list(numbers)


def test_trees_are_reversed_from_the_shares_that_the_page_says() -> None:
    text = " ".join(PAGE.split())
    assert f"from a share of {FALSE_SHARE:g} on (`FALSE_SHARE`)" in text
    assert f"{SIGNIFICANT:g} of the forest (`SIGNIFICANT`)" in text


def test_the_page_tells_no_speed_beside_its_table() -> None:
    prose = "\n".join(line for line in PAGE.splitlines() if not line.startswith("|"))
    assert speeds(prose) == ["10 %"], "of the paper's trees; what was measured here is in a table of a kept run"


#: README's wording for when `auto` takes an engine; the test below defines its meaning.
WHEN_TAKEN = {
    "bitslice": "large batches",
    "rankwalk": "one to some dozens of documents of a large forest",
    "vqs": "some to some dozens of documents of a small forest",
    "qs": "one or two documents of a small forest of very few columns",
    "bwqs": "a few documents of a small forest of few columns",
    "qs_oblivious": "small batches of an oblivious forest",
    "walk": "a few documents of a small forest of many columns; small batches of trees with more than 128 leaves, all "
    "batches of trees too large for the others",
}


def taken(engine: str, model: Model) -> list[int]:
    """Numbers of documents, up to a thousand, for which `auto` takes the engine."""
    return [n for n in range(1, 1_001) if model.engine_for(n) == engine]


def let_gathers_be(fast: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    actual = cpu_fallback.instruction_set
    monkeypatch.setattr(cpu_fallback, "instruction_set", lambda name=None: actual(name)._replace(gathers=fast))


@needs_quickscorer
@pytest.mark.parametrize("isa", ["avx512", "avx2", "sse4.2", "portable"])
def test_readme_says_when_auto_takes_the_variants(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if isa not in cpu_fallback.available_isas():
        pytest.skip(f"the processor has no {isa}")
    monkeypatch.setenv("GPUQS_ISA", isa)
    let_gathers_be(False, monkeypatch)
    rows = mslr_like(5, 12)[0]
    small, large = Model(lambdamart_like(50, 31, rows)), Model(lambdamart_like(1_000, 64, rows))
    compiled = isa in ("avx512", "avx2")
    assert set(range(100, 1_001)) <= set(taken("bitslice", large))
    assert (small.engine_for(1_000) == "bitslice") == compiled
    assert set(range(1, 33)) <= set(taken("rankwalk", large)) <= set(range(1, 100))
    some = [n for n in taken("vqs", small) if n <= 100]
    assert 2 <= some[0] <= 8 and (isa == "portable" or some[-1] > 12) and (not compiled or some == taken("vqs", small))
    assert all(not taken("qs", model) for model in (small, large))
    few = taken("walk", small)
    assert few[0] == 1 and few[-1] <= (4 if compiled else 50)
    assert not taken("bwqs", small)
    narrow, narrower = (Model(lambdamart_like(50, 31, rows[:, :n_columns])) for n_columns in (40, 6))
    assert {1} <= set(taken("bwqs", narrow)) <= set(range(1, 5 if compiled else 13)) and taken("qs", narrower) == [1, 2]
    for levels in (6, 8):
        oblivious = Model(oblivious_like(50, levels, rows))
        assert set(range(1, 13)) <= set(taken("qs_oblivious", oblivious))
        assert (oblivious.engine_for(1_000) == "bitslice") == compiled
    deep = Model(lambdamart_like(300, 200, rows))
    assert set(range(1, 25)) <= set(taken("walk", deep)) <= set(range(1, 100))
    huge = Model(lambdamart_like(2, BITSLICE_LEAVES + 1, rows))
    assert set(taken("walk", huge)) == set(range(1, 1_001)) and huge.engine_for(100_000) == "walk"


@needs_quickscorer
def test_readme_says_when_auto_takes_walks_that_gather(monkeypatch: pytest.MonkeyPatch) -> None:
    let_gathers_be(True, monkeypatch)
    rows = mslr_like(5, 12)[0]
    small, large = Model(lambdamart_like(50, 31, rows)), Model(lambdamart_like(1_000, 64, rows))
    assert set(range(1, 5)) <= set(taken("walk", small)) <= set(range(1, 50)) and not taken("bwqs", small)
    if cpu_fallback.instruction_set().has_jumps:
        assert set(range(1, 33)) <= set(taken("rankwalk", large)) <= set(range(1, 100))
    assert set(range(1, 25)) <= set(taken("walk", Model(lambdamart_like(300, 200, rows)))) <= set(range(1, 200))


@needs_quickscorer
def test_engines_that_compare_bytes_or_floats_cost_more_where_gathers_are_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = mslr_like(5, 12)[0]
    ends: dict[str, list[int]] = {"rankwalk": [], "vqs": []}
    for fast in (False, True):
        let_gathers_be(fast, monkeypatch)
        ends["rankwalk"].append(max(taken("rankwalk", Model(lambdamart_like(1_000, 64, rows)))))
        ends["vqs"].append(max(taken("vqs", Model(lambdamart_like(50, 31, rows))), default=0))
    for without, with_gathers in ends.values():
        assert with_gathers < without


def test_readmes_table_says_so() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \|.*\| ([^|]+) \|$", README.partition("## Engines")[2], re.M))
    assert {name: rows[name] for name in WHEN_TAKEN} == WHEN_TAKEN
    assert rows["reference"] == "only where no other engine can run the forest"
    assert "Without AVX2, the other engines also score large batches of small forests." in README
    limits = {"bitslice": BITSLICE_LEAVES, "rankwalk": RANKWALK_LEAVES}
    limits |= dict.fromkeys(("vqs", "qs", "bwqs"), MAX_LEAVES)
    for name, most in limits.items():
        assert re.search(rf"^\| `{name}` \|.*; up to {most:,} leaves a tree \|", README, re.M)


def test_lanes_are_those_of_the_instruction_sets_here() -> None:
    for isa in cpu_fallback.INSTRUCTION_SETS:
        assert isa.lanes == (16 if isa.name == "avx512" else 8)
    assert "8 (AVX2, SSE4.2, NEON and portable code)" in PAGE and "16 (AVX-512)" in PAGE


def test_times_are_those_of_the_recorded_run() -> None:
    run = json.loads((ROOT / "bench" / "results" / "engines-amd-epyc-zen-4.json").read_text())
    rows = {result["model"]: result["rows"] for result in run["results"]}
    names = {"qs avx512": "`qs`"} | {f"vqs {isa}": f"`vqs`, {isa}" for isa in ("portable", "sse4.2", "avx2", "avx512")}
    for name, row in names.items():
        models = (rows[f"LightGBM LambdaMART 1,000 x {leaves}"] for leaves in (64, 32))
        times = (model[name]["us_per_document"] for model in models)
        assert f"| {row} | {' | '.join(f'{time:.1f}' for time in times)} |" in PAGE
