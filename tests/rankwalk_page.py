"""Renders the drawings of docs/rankwalk.md from the layout that the engine builds for a tree.

`python tests/rankwalk_page.py` prints all of it.
"""

from __future__ import annotations

import numpy as np
from bitslice_page import COLUMNS, DOCUMENTS, FOREST, N_LEAVES, RANKS, document_ranks, table, tree

from gpuqs.layout.rankwalk import (
    DISTANCE_SHIFT,
    ENTRY_THRESHOLDS,
    LEAF_ON_RIGHT,
    MAX_ENTRIES,
    POSITION_SHIFT,
    SIGNED,
    build_rankwalk,
)

LAYOUT = build_rankwalk(FOREST, RANKS)
WITH_JUMPS = build_rankwalk(FOREST, RANKS, with_jumps=True)
#: The document whose scoring is drawn in full.
DRAWN = 4
#: The leaf of each label.
LEAF_OF = np.argsort(LAYOUT.position)


def test_of(entry: int, position: int) -> str:
    """Format a test, given its entry and the position of its threshold there."""
    column, first, _ = LAYOUT.entries[entry]
    threshold = RANKS.threshold[RANKS.offsets[column] + first + position]
    return f"{COLUMNS[column]} <= {threshold:g}"


def code_of(document: int) -> list[int]:
    """A document's bytes; entry 0 belongs to the leaves."""
    ranks = document_ranks()[document]
    return [0, *(int(np.clip(ranks[column] - first, 0, 255)) for column, first, _ in LAYOUT.entries[1:])]


def codes() -> str:
    rows = []
    for number, document in enumerate(DOCUMENTS):
        rows.append((number, *(f"{x:g}" for x in document), *code_of(number)))
    return table("document|a|b|c|entry 0|1|2|3", rows)


def items() -> str:
    rows = []
    for number, item in enumerate(LAYOUT.items.tolist()):
        entry, middle, distance = item % MAX_ENTRIES, item >> POSITION_SHIFT & 255, item >> DISTANCE_SHIFT
        what = test_of(entry, ENTRY_THRESHOLDS - middle) if distance else f"leaf {LEAF_OF[middle]}"
        rows.append((number, what, distance, middle, entry, f"0x{item:08x}"))
    return table("item|what|distance|middle byte|entry|as a number", rows)


def walk() -> str:
    """The steps of one document, by the engine's own arithmetic."""
    code, at, rows = code_of(DRAWN), int(LAYOUT.root[0]), []
    while (item := int(LAYOUT.items[at])) >> DISTANCE_SHIFT:
        byte = code[item % MAX_ENTRIES]
        total = item + (byte << POSITION_SHIFT)
        rows.append((at, f"0x{item:08x}", byte, f"0x{total:08x}", total >> DISTANCE_SHIFT))
        at += total >> DISTANCE_SHIFT
    rows.append((at, f"0x{item:08x}", code[item % MAX_ENTRIES], f"0x{item:08x}", 0))
    return table("at item|number|byte|sum|go on by", rows)


def labels() -> str:
    of_nodes = [test_of(int(entry), SIGNED - int(position)) for entry, position, _ in LAYOUT.tests]
    rows = [(0, LEAF_OF[0], "the leftmost")]
    rows += [(label, LEAF_OF[label], f"right of {test}") for label, test in enumerate(of_nodes, start=1)]
    return table("label|leaf|first leaf", rows)


def asked() -> list[np.ndarray]:
    """The labels of all documents, initially and after each test."""
    code = np.array([code_of(number) for number in range(len(DOCUMENTS))])
    at = [np.zeros(len(DOCUMENTS), int)]
    for label, (entry, position, first) in enumerate(LAYOUT.tests.tolist(), start=1):
        right = (at[-1] == first) & (code[:, entry] > SIGNED - position)
        at.append(np.where(right, label, at[-1]))
    return at


def all_tests() -> str:
    begin, *after = ("  ".join(map(str, at)) for at in asked())
    rows = [("", "", "", begin)]
    for label, ((entry, position, first), at) in enumerate(zip(LAYOUT.tests.tolist(), after, strict=True), start=1):
        rows.append((test_of(entry, SIGNED - position), first, label, at))
    return table("test|comes from label|goes to label|labels of documents 0 ... 7", rows)


def word() -> str:
    """Where a document continues after each test."""
    jumps, rows = WITH_JUMPS.jumps, []
    assert jumps is not None and jumps.trees.tolist() == [0, 1] and jumps.root[0] == 0
    of = jumps.words[0]
    for place in range(N_LEAVES - 1):
        test = test_of(int(of["entry"][place]) + 1, int(of["position"][place]))
        leaf_on_right, onward = divmod(int(of["onward"][place]), LEAF_ON_RIGHT)
        leaf_on_left = onward <= place
        left = f"leaf {LEAF_OF[onward]}" if leaf_on_left else f"place {place + 1}"
        right = f"leaf {LEAF_OF[place + 1]}" if leaf_on_right else f"place {place + 1 if leaf_on_left else onward}"
        rows.append((place, test, left, right, onward, ("no", "yes")[leaf_on_right]))
    return table("place|test|goes on, left|right|stored|right child is a leaf", rows)


def jumped() -> tuple[list[tuple[str, str]], int]:
    """The state of all places for one document after each doubling, and the leaf that the root ends with."""
    jumps, code = WITH_JUMPS.jumps, code_of(DRAWN)
    assert jumps is not None
    places = np.arange(N_LEAVES - 1)
    entry, position, onward = (array[places].astype(int) for array in jumps.words[0])
    goes_right = np.array(code)[entry + 1] > position
    leaf_on_right, onward = np.divmod(onward, LEAF_ON_RIGHT)
    left = np.where(onward <= places, places, places + 1)
    right = np.where(leaf_on_right, places, np.where(onward <= places, places + 1, onward))
    at = np.where(goes_right, right, left)
    leaf = LEAF_OF[np.where(goes_right, places + 1, onward)]
    rows = [("byte > position", in_a_row(goes_right.astype(int))), ("goes on at place", in_a_row(at))]
    for doubling in range(1, int(jumps.doublings[0]) + 1):
        at = at[at]
        rows.append((f"after {2**doubling} steps", in_a_row(at)))
    rows.append(("leaf at that place", in_a_row(leaf[at])))
    return rows, int(leaf[at[0]])


def in_a_row(of_places: np.ndarray) -> str:
    """One value per place, place 0 on the left."""
    return "  ".join(map(str, of_places))


def one_document() -> str:
    rows, _ = jumped()
    return table(f"document {DRAWN}|{in_a_row(np.arange(N_LEAVES - 1))}", rows)


#: Everything that the page shows, in page order.
DRAWINGS = (tree, codes, items, walk, labels, all_tests, word, one_document)


if __name__ == "__main__":
    for drawing in DRAWINGS:
        print(f"{drawing.__name__}:\n{drawing()}\n")
