"""How many documents are scored at a time: enough for engines, few enough for memory and for signals."""

from __future__ import annotations

from collections.abc import Iterator

from gpuqs.arrays import Documents
from gpuqs.forest import Forest

#: Work (documents x trees) between two looks at pending signals such as Ctrl-C.
CHUNK_WORK = 100_000_000
#: Nodes of a tree that `bitslice` asks in the time of one such piece of work; no more are asked than the tree is deep.
DEEP = 256
#: Category sets that are asked in that time.
SETS = 4
#: Trees that are scored in the time of one whose leaves have linear models.
LINEAR = 32
#: Documents of a thread's chunk, however deep the trees, or many the sets: fewer would bring large ones into the cache
#: more often.
LEAST_DEEP = 4096
#: Leaf numbers (documents x trees) that are held while their values are looked up.
PER_TREE_WORK = 4_000_000
#: Bytes of documents that one chunk may copy when they must be converted.
CHUNK_BYTES = 16 << 20
#: Rows of such a chunk, however wide they are.
LEAST_ROWS = 64
#: Bytes of documents that are converted at a time where a GPU scores them: several of its pinned buffers.
GPU_CHUNK_BYTES = 256 << 20


def _width(forest: Forest, narrow: bool) -> int:
    return max(len(forest.tested) if narrow else forest.n_features, 1)


def rows_at_once(forest: Forest, narrow: bool = False, n_threads: int = 1) -> int:
    """Documents of the host that its engines score between two looks at signals."""
    by_work = CHUNK_WORK // max(forest.n_trees, 1)
    work = forest.n_category_sets // SETS
    if forest.n_nodes > DEEP * forest.n_trees:
        work += min(forest.n_nodes // DEEP, int(forest.tree_depth.sum()))
    if forest.has_linear_leaves:
        work += LINEAR * forest.n_trees
    if work:
        by_work = min(by_work, n_threads * max(CHUNK_WORK // work, LEAST_DEEP))
    by_bytes = CHUNK_BYTES // (8 * _width(forest, narrow))
    return max(1024, min(by_work, by_bytes) // 1024 * 1024)


def rows_for_cpu(documents: Documents, forest: Forest, output: str = "value", n_threads: int = 1) -> int:
    """Documents of the host that its engines score at a time."""
    if documents.n <= LEAST_ROWS and output != "per_tree":
        return LEAST_ROWS
    rows = rows_at_once(forest, documents.narrow, n_threads)
    if documents.copied:  # wide rows that are copied are few at a time, though fewer than engines like
        rows = max(LEAST_ROWS, min(rows, CHUNK_BYTES // (8 * _width(forest, documents.narrow))))
    return max(1, min(rows, PER_TREE_WORK // max(forest.n_trees, 1))) if output == "per_tree" else rows


def pieces(n: int, rows: int) -> Iterator[tuple[int, int]]:
    """Where chunks of ``n`` documents start and stop, so many rows each.

    None but the only one is of one row alone: NumPy adds up one row's numbers, in a link, in another order.
    """
    for start in range(0, max(n - 1, min(n, 1)), rows):
        yield start, n if start + rows >= n - 1 else start + rows


def rows_for_gpu(documents: Documents, forest: Forest) -> int:
    """Documents of the host that are handed to a GPU at a time."""
    return max(1, GPU_CHUNK_BYTES // (8 * _width(forest, documents.narrow)))
