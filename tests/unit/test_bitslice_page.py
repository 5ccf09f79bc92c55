"""docs/bitslice.md agrees with the layout, the encoder and the recorded runs."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from bitslice_page import DOCUMENTS, DRAWINGS, FOREST

from gpuqs import Model
from gpuqs.engines.bitslice import Bitslice
from gpuqs.layout.bitslice import TREE_BLOCK
from gpuqs.layout.programs import TREES_MERGED

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "bitslice.md").read_text()


@pytest.mark.parametrize("drawing", DRAWINGS)
def test_the_page_shows_what_the_code_makes(drawing: Callable[[], str]) -> None:
    assert f"```text\n{drawing()}\n```" in PAGE


def test_the_page_has_no_other_drawing() -> None:
    assert PAGE.count("```text\n") == len(DRAWINGS)


def test_the_documents_of_the_page_are_scored_as_it_says() -> None:
    model = Model(FOREST)
    np.testing.assert_array_equal(model.predict(DOCUMENTS, "leaf", engine="bitslice").ravel(), np.arange(8))
    scores = model.predict(DOCUMENTS, "raw", engine="bitslice")
    np.testing.assert_array_equal(scores, model.predict(DOCUMENTS, "raw", engine="reference"))
    np.testing.assert_array_equal(scores.ravel(), np.arange(8) * 10.0 + 10)


def test_stages_are_those_of_the_recorded_run() -> None:
    run = json.loads((ROOT / "bench" / "results" / "engines-amd-epyc-zen-4.json").read_text())
    cycles = {}
    for isa, documents in (("avx512", 512), ("avx2", 256)):
        of_isa = run["stages"][f"{isa} exact"]
        row = " | ".join(f"{nanoseconds:.0f}" for nanoseconds in of_isa.values())
        assert f"| `{isa}` | {row} |" in PAGE
        cycles[isa] = of_isa["programs"] * documents * run["ghz"] / (1000 * 63)
    said = f"that is {cycles['avx512']:.1f} cycles a node for 512 documents, on AVX2 {cycles['avx2']:.1f} for 256,"
    assert said in " ".join(PAGE.split())
    assert f"at the {run['ghz']:.1f} GHz of that run" in " ".join(PAGE.split())


def test_limits_are_those_of_the_code() -> None:
    names = "TREE_BLOCK|max_predicates|one_superblock|max_nodes|TREES_MERGED"
    said = re.findall(rf"`({names})`\s+\(([\d,]+)\)", PAGE)
    numbers = {"TREE_BLOCK": TREE_BLOCK, "TREES_MERGED": TREES_MERGED}
    of_superblocks = ("max_predicates", "one_superblock", "max_nodes")
    numbers |= {p.name: p.default for p in Bitslice.parameters if p.name in of_superblocks}
    assert dict(said) == {name: f"{number:,}" for name, number in numbers.items()}
