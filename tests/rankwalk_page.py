"""What docs/rankwalk.md shows of a tree, drawn from the layout that the engine makes of it.

`python tests/rankwalk_page.py` prints all of it.
"""

from __future__ import annotations

import numpy as np
from bitslice_page import COLUMNS, DOCUMENTS, FOREST, N_LEAVES, RANKS, document_ranks, table, tree

from gpuqs.layout.rankwalk import (
    DISTANCE_SHIFT,
    ENTRY_THRESHOLDS,
    LABEL_SHIFT,
    MAX_ENTRIES,
    POSITION_SHIFT,
    SIGNED,
    build_rankwalk,
)

LAYOUT = build_rankwalk(FOREST, RANKS)
WITH_PATHS = build_rankwalk(FOREST, RANKS, with_paths=True)
#: The document that is drawn all the way.
DRAWN = 4
#: The leaf of each label.
LEAF_OF = np.argsort(LAYOUT.position)


def test_of(entry: int, position: int) -> str:
    """A test by the number of its entry, and its threshold's position there."""
    column, first, _ = LAYOUT.entries[entry]
    threshold = RANKS.threshold[RANKS.offsets[column] + first + position]
    return f"{COLUMNS[column]} <= {threshold:g}"


def code_of(document: int) -> list[int]:
    """A document's bytes: entry 0 is the leaves'."""
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
    """The labels of all documents, at first and after each test."""
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


def path_told(path: int) -> str:
    """A path as 16 bits: where it begins, and the leaf at its end."""
    place, label = path % (1 << LABEL_SHIFT), path >> LABEL_SHIFT
    return f"leaf {LEAF_OF[label]}" if place == 63 else f"from place {place} to leaf {LEAF_OF[label]}"


def word() -> str:
    paths, rows = WITH_PATHS.paths, []
    assert paths is not None and paths.word[0] == 0
    turned, ends = int(paths.turned[0]), int(paths.ends[0])
    for place in range(N_LEAVES - 1):
        test = test_of(int(paths.tests[0]["entry"][place]) + 1, int(paths.tests[0]["position"][place]))
        side, end = "right" if turned >> place & 1 else "left", "yes" if ends >> place & 1 else ""
        rows.append((place, test, side, end, path_told(int(paths.light[0, place]))))
    return table("place|test|path goes on|ends|the other child's path", rows)


def followed() -> tuple[list[tuple[str, str]], int]:
    """How one document goes along paths, and the leaf where it ends."""
    paths, code = WITH_PATHS.paths, code_of(DRAWN)
    assert paths is not None
    n_nodes, tests = N_LEAVES - 1, paths.tests[0]
    right = [code[int(tests["entry"][k]) + 1] > int(tests["position"][k]) for k in range(n_nodes)]
    turned = [bool(int(paths.turned[0]) >> k & 1) for k in range(n_nodes)]
    ends = [bool(int(paths.ends[0]) >> k & 1) for k in range(n_nodes)]
    leaves = [a != b for a, b in zip(right, turned, strict=True)]
    rows = [
        ("byte > position", bits(right)),
        ("turned", bits(turned)),
        ("leaves its path", bits(leaves)),
        ("or the path ends", bits([a or b for a, b in zip(leaves, ends, strict=True)])),
    ]
    path = int(paths.heavy[0])
    while (place := path % (1 << LABEL_SHIFT)) < n_nodes:
        stop = next(k for k in range(place, n_nodes) if leaves[k] or ends[k])
        if not leaves[stop]:
            rows.append((f"the path {path_told(path)}", f"ends at place {stop}"))
            break
        rows.append((f"the path {path_told(path)}", f"is left at place {stop}"))
        path = int(paths.light[0, stop])
    return rows, int(LEAF_OF[path >> LABEL_SHIFT])


def bits(word: list[bool]) -> str:
    """Place 0 on the left."""
    return "".join(str(int(bit)) for bit in word)


def one_document() -> str:
    rows, leaf = followed()
    return table("document 4|places 0 ... 6", [*rows, (f"leaf {leaf}", "")])


#: All that the page shows, in its order.
DRAWINGS = (tree, codes, items, walk, labels, all_tests, word, one_document)


if __name__ == "__main__":
    for drawing in DRAWINGS:
        print(f"{drawing.__name__}:\n{drawing()}\n")
