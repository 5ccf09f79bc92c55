"""Rendered blocks of a Markdown page: `<!-- figures: NAME -->` to `<!-- /figures -->`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from pages.results import Results

Block = Callable[[Results], list[str]]
_BLOCK = re.compile(r"^<!-- figures: ([\w-]+) -->\n(.*?)^<!-- /figures -->$", re.M | re.S)


def blocks_in(page: str) -> dict[str, str]:
    """The content of each block."""
    return dict(_BLOCK.findall(page))


def outside(page: str) -> str:
    """The page without its blocks."""
    return _BLOCK.sub("", page)


def rendered(page: str, blocks: Mapping[str, Block], results: Results) -> str:
    """The page with each block rendered again; every block must occur exactly once."""
    names = [name for name, _ in _BLOCK.findall(page)]
    if sorted(names) != sorted(blocks):
        raise SystemExit(f"the page has blocks {sorted(names)}, and there are figures for {sorted(blocks)}")

    def anew(found: re.Match[str]) -> str:
        lines = "".join(f"{line}\n" for line in blocks[found[1]](results))
        return f"<!-- figures: {found[1]} -->\n{lines}<!-- /figures -->"

    return _BLOCK.sub(anew, page)
