"""docs/quickscorer.md and docs/gpu.md show what the layout, the engines and the recorded run say."""

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
    said = re.findall(r"`(document_block|tree_block|MAX_LEAVES)` \(([\d,]+)\)", PAGE)
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


def taken(engine: str, model: Model) -> list[int]:
    """Numbers of documents, up to a thousand, for which `auto` takes an engine."""
    return [n for n in range(1, 1_001) if model.engine_for(n) == engine]


@needs_quickscorer
@pytest.mark.parametrize("isa", ["avx2", "sse4.2", "portable"])
def test_readme_says_when_auto_takes_the_variants(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if isa not in cpu_fallback.available_isas():
        pytest.skip(f"the processor has no {isa}")
    monkeypatch.setenv("GPUQS_ISA", isa)
    rows = mslr_like(5, 12)[0]
    assert "one document of a small forest; in portable code some more |" in README
    chosen = taken("bwqs", Model(lambdamart_like(100, 31, rows)))
    assert chosen[0] == 1 < max(chosen) <= 8 if isa == "portable" else chosen == [1]
    assert "up to some twenty at 64 leaves a tree, some tens at 256 |" in README
    forests = (oblivious_like(50, levels, rows) for levels in (6, 8))
    twenty, tens = (
        next(n for n in range(2, 1_001) if Model(forest).engine_for(n) != "qs_oblivious") for forest in forests
    )
    assert 12 < twenty <= 30 <= tens < 100


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
