"""Renders the drawings of docs/walk.md from the layouts that the engine builds for a tree.

`python tests/walk_page.py` prints all of it.
"""

from __future__ import annotations

import numpy as np
from bitslice_page import COLUMNS, DOCUMENTS, FOREST, N_LEAVES, table, tree

from gpuqs.layout.walk import MAX_SHORT_LEAVES, WalkLayout, build_walk

ITEMS = build_walk(FOREST, 1, nodes_alone=False)
NODES = build_walk(FOREST, 1, nodes_alone=True)
#: The document whose walk is drawn in full.
DRAWN = 6


def test_of(layout: WalkLayout, at: int) -> str:
    column = int(layout.item32["link"][at]) & ((1 << layout.column_bits) - 1)
    return f"{COLUMNS[column]} <= {threshold_of(layout, at):g}"


def threshold_of(layout: WalkLayout, at: int) -> np.float32:
    key = layout.item32["key"][at : at + 1]
    if not layout.nodes_alone:
        key = key ^ np.uint32(1 << 31) if key[0] >> 31 else ~key
    threshold: np.float32 = key.view(np.float32)[0]
    return threshold


def items() -> str:
    rows: list[tuple[object, ...]] = []
    for number, (key, link) in enumerate(ITEMS.item32):
        distance = int(link) >> (ITEMS.column_bits + 1)
        leaf = int(key) & (MAX_SHORT_LEAVES - 1)
        rows.append((number, test_of(ITEMS, number) if distance else f"leaf {leaf}", distance))
    return table("item|what|distance", rows)


def nodes() -> str:
    rows = []
    for number, link in enumerate(NODES.item32["link"].tolist()):
        right_is_leaf = "yes" if link >> (NODES.column_bits + 1) & 1 else ""
        rows.append((number, test_of(NODES, number), link >> (NODES.column_bits + 2), right_is_leaf))
    return table("node|test|leaves to the left|right child is a leaf", rows)


def walked() -> tuple[list[tuple[object, ...]], int]:
    """The steps of one document in the nodes-only layout, and its exit leaf."""
    at, passed, rows = 0, 0, list[tuple[object, ...]]()
    while True:
        link = int(NODES.item32["link"][at])
        value = DOCUMENTS[DRAWN][link & ((1 << NODES.column_bits) - 1)]
        n_left, right = link >> (NODES.column_bits + 2), bool(value > threshold_of(NODES, at))
        passed += n_left if right else 0
        ends = bool(link >> (NODES.column_bits + 1) & 1) if right else n_left == 1
        go_on = n_left if right else 1
        way = "right" if right else "left"
        rows.append((at, test_of(NODES, at), f"{value:g}", way, "ends" if ends else f"on by {go_on}", passed))
        if ends:
            return rows, passed
        at += go_on


def walk() -> str:
    return table("at node|test|value|goes||leaves passed", walked()[0])


DRAWINGS = (tree, items, nodes, walk)

if __name__ == "__main__":
    assert len(FOREST.leaf_value) == N_LEAVES
    print("\n\n".join(drawing() for drawing in DRAWINGS))
