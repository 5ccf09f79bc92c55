"""docs/walk.md agrees with the layouts and the engine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from bitslice_page import DOCUMENTS, FOREST
from walk_page import DRAWINGS, DRAWN, ITEMS, walked

from gpuqs import Model
from gpuqs.layout.walk import MAX_LEAVES

PAGE = Path(__file__).parents[2].joinpath("docs", "walk.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("drawing", DRAWINGS)
def test_the_page_shows_what_the_code_makes(drawing: Callable[[], str]) -> None:
    assert f"```text\n{drawing()}\n```" in PAGE


def test_the_page_has_no_other_drawing() -> None:
    assert PAGE.count("```text\n") == len(DRAWINGS)


def test_the_walk_that_is_drawn_ends_where_the_engine_says() -> None:
    assert f"Document {DRAWN}:" in PAGE
    assert walked()[1] == Model(FOREST).predict(DOCUMENTS[DRAWN : DRAWN + 1], "leaf", engine="walk")[0, 0]


def test_the_page_tells_the_sizes_of_items() -> None:
    assert (ITEMS.item32.itemsize, ITEMS.item64.itemsize) == (8, 16)
    assert f"Trees have up to {MAX_LEAVES:,} leaves then." in PAGE
