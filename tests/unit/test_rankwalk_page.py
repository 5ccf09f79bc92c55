"""docs/rankwalk.md agrees with the layout and the engine."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from bitslice_page import DOCUMENTS, FOREST
from rankwalk_page import DRAWINGS, DRAWN, LAYOUT, LEAF_OF, asked, jumped

from gpuqs import Model, cpu_fallback
from gpuqs.layout.rankwalk import (
    BLOCK_THRESHOLDS,
    ENTRY_THRESHOLDS,
    JUMP_ENTRIES,
    JUMP_PLACES,
    JUMP_WORD,
    JUMPING,
    MAX_ENTRIES,
    MAX_LEAVES,
    RANK_TEST,
    WALKING,
    WALKING_NARROW,
    WALKS,
)

PAGE = Path(__file__).parents[2].joinpath("docs", "rankwalk.md").read_text(encoding="utf-8")
TEXT = " ".join(PAGE.split())


@pytest.mark.parametrize("drawing", DRAWINGS)
def test_the_page_shows_what_the_code_makes(drawing: Callable[[], str]) -> None:
    assert f"```text\n{drawing()}\n```" in PAGE


def test_the_page_has_no_other_drawing() -> None:
    assert PAGE.count("```text\n") == len(DRAWINGS)


@pytest.mark.parametrize("isa", cpu_fallback.available_isas())
def test_the_documents_of_the_page_end_where_it_says(isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By each kernel: for one document, all documents, and many copies of all."""
    monkeypatch.setenv("GPUQS_ISA", isa)
    model = Model(FOREST)
    assert LEAF_OF[asked()[-1]].tolist() == list(range(8))
    assert jumped()[1] == DRAWN
    for times in (1, 20):
        leaves = model.predict(np.tile(DOCUMENTS, (times, 1)), "leaf", engine="rankwalk").ravel()
        np.testing.assert_array_equal(leaves, np.tile(np.arange(8), times))
    for number, document in enumerate(DOCUMENTS):
        assert model.predict(document[None], "leaf", engine="rankwalk") == number


def test_limits_are_those_of_the_code() -> None:
    for told in (
        f"up to {ENTRY_THRESHOLDS} of its thresholds",
        f"in blocks of {BLOCK_THRESHOLDS} thresholds",
        f"forests of more than {JUMP_ENTRIES} entries go by the column before",
        f"words in twos, whose places count on: {2 * JUMP_PLACES - 1} of them",
        f"Trees have up to {MAX_LEAVES} leaves, for an item's distance has 8 bits,",
        f"a forest has up to {MAX_ENTRIES:,} entries",
        f"A tree of {JUMP_PLACES} leaves takes six doublings at most",
        f"{JUMP_WORD.itemsize} bytes",
    ):
        assert told in TEXT, told
    assert (JUMP_PLACES - 3).bit_length() == 6, "a walk of 63 tests takes 62 steps"
    assert WALKS == 12 and "twelve trees are walked side by side" in TEXT
    assert RANK_TEST.itemsize == 4 and LAYOUT.items.itemsize == 4 and "A test is four bytes" in TEXT
    rows = dict(re.findall(r"^\| (walks|jumps|all tests) \| (.*) \|$", PAGE, re.M))
    narrow, wide, jumps = WALKING_NARROW, WALKING, JUMPING
    assert rows == {
        "walks": f"1 to {narrow} | 1 to {wide} |",
        "jumps": f"| | 1 to {jumps}",
        "all tests": f"from {narrow + 1} on | from {wide + 1} on | from {jumps + 1} on",
    }
