"""Renders the drawings of docs/quickscorer.md and docs/gpu.md from the layout that the engines build for a tree.

`python tests/quickscorer_page.py` prints all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
from bitslice_page import COLUMNS, DOCUMENTS, FOREST, N_LEAVES, table, tree

from gpuqs.layout.qs_gpu import build_word_tuples
from gpuqs.layout.quickscorer import build_quickscorer

LAYOUT = build_quickscorer(FOREST, tree_block=1, mask_bits=8)
GPU_LAYOUT = build_word_tuples(FOREST, np.array([0, 1], np.int32))
#: The document whose scoring is drawn in full.
DRAWN = 4


def leaf_bits(mask: int) -> str:
    """One bit per leaf, leaf 0 on the left."""
    return f"{mask:0{N_LEAVES}b}"


def tests_by_column() -> Iterator[tuple[int, list[tuple[float, int]]]]:
    """Each column with its tests in the order in which engines read them: (threshold, mask)."""
    lists = LAYOUT.straight
    for column, (begin, end) in enumerate(pairwise(lists.tests.offsets[0])):
        yield column, [(float(lists.threshold64[i]), int(lists.tests.mask[i])) for i in range(begin, end)]


def layout() -> str:
    rows = []
    for column, tests in tests_by_column():
        for threshold, mask in tests:
            out = [str(leaf) for leaf in range(N_LEAVES) if not mask >> (N_LEAVES - 1 - leaf) & 1]
            rows.append((COLUMNS[column], f"{threshold:g}", ", ".join(out), leaf_bits(mask)))
    return table("column|threshold|leaves ruled out|mask", rows)


def false_masks(document: np.ndarray) -> Iterator[tuple[int, float, int]]:
    """Column, threshold and mask of each false test: thresholds ascend; stop at the first not below the value."""
    for column, tests in tests_by_column():
        for threshold, mask in tests:
            if not document[column] > threshold:
                break
            yield column, threshold, mask


def one_document() -> str:
    left, rows = (1 << N_LEAVES) - 1, []
    rows.append(("", "", leaf_bits(left)))
    for column, threshold, mask in false_masks(DOCUMENTS[DRAWN]):
        left &= mask
        rows.append((f"{COLUMNS[column]} > {threshold:g}", leaf_bits(mask), leaf_bits(left)))
    return table("false test|mask|bitvector", rows)


def every_document() -> str:
    rows = []
    for number, document in enumerate(DOCUMENTS):
        masks = [mask for _, _, mask in false_masks(document)]
        left = int(np.bitwise_and.reduce([(1 << N_LEAVES) - 1, *masks]))
        values = (f"{x:g}" for x in document)
        rows.append((number, *values, len(masks), leaf_bits(left), leaf_bits(left).index("1")))
    return table("document|a|b|c|false tests|bitvector|exit leaf", rows)


def together() -> str:
    """How far `vqs` reads each column's list with four lanes, and in which lanes the tests are false."""
    rows = []
    for column, tests in tests_by_column():
        words = []
        for threshold, _ in tests:
            words.append(DOCUMENTS[:4, column] > threshold)
            if not words[-1].any():
                break
        for (threshold, _), word in zip(tests, words, strict=False):
            rows.append((f"{COLUMNS[column]} > {threshold:g}", "".join(str(int(bit)) for bit in word)))
    return table("test|false for documents 0 ... 3", rows)


def tuples() -> str:
    """The tuples of `qs_gpu`, with the mask bits that stand for leaves."""
    tests, rows = GPU_LAYOUT.tests, []
    for column, name in enumerate(COLUMNS):
        for i in range(*tests.offsets[0, column : column + 2]):
            threshold, bits = GPU_LAYOUT.threshold64[i], f"{tests.mask[i]:032b}"
            assert set(bits[N_LEAVES:]) == {"1"}
            rows.append((name, f"{threshold:g}", tests.slot[i], bits[:N_LEAVES]))
    return table("column|threshold|slot|mask", rows)


def pivots() -> str:
    """The number of false tests' tuples per column, which `find_false_nodes` computes."""
    offsets = GPU_LAYOUT.tests.offsets[0]
    thresholds = [GPU_LAYOUT.threshold64[a:b] for a, b in pairwise(offsets)]
    rows = []
    for number, document in enumerate(DOCUMENTS):
        rows.append((number, *(np.searchsorted(t, x) for t, x in zip(thresholds, document, strict=True))))
    return table("document|pivot of a|of b|of c", rows)


#: Everything that the pages show, in page order.
DRAWINGS = (tree, layout, one_document, every_document, together)
OF_GPUS = (tuples, pivots)


if __name__ == "__main__":
    for drawing in (*DRAWINGS, *OF_GPUS):
        print(f"{drawing.__name__}:\n{drawing()}\n")
