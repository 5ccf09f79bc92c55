"""How many documents are scored at a time: enough for engines, few enough for memory and for signals."""

from __future__ import annotations

from collections.abc import Iterator

from gpuqs.arrays import Documents
from gpuqs.forest import Forest

#: Work of a thread (documents x trees and columns) between two checks for pending signals such as Ctrl-C.
CHUNK_WORK = 100_000_000
#: Trees that are scored in the time of turning an output's sum into a score. It also limits the sums of a chunk, which
#: some outputs need beside the answer, to 12 MB a thread.
OUTPUT = 64
#: Predicted microseconds between two checks, for engines that would take longer for so much work.
MAX_WAIT = 200_000.0
#: Nodes of a tree that `bitslice` tests in the time of one unit of work; at most the sum of the trees' depths counts.
DEEP = 256
#: Category sets that are tested in the time of one unit of work.
SETS = 4
#: Trees that are scored in the time of one whose leaves have linear models.
LINEAR = 32
#: Lower limit of documents in a thread's chunk for deep trees, many category sets and slow engines: smaller chunks
#: would load large trees and sets into the cache more often.
MIN_DEEP = 4096
#: Leaf numbers (documents x trees) that are held while their values are looked up.
PER_TREE_WORK = 4_000_000
#: Bytes of documents that one chunk may copy when they must be converted. Chunks that need no copy are larger, because
#: threads wait for each other at the end of each.
CHUNK_BYTES = 16 << 20
#: Lower limit of rows in such a chunk, however wide they are.
MIN_ROWS = 64
#: Bytes of host documents that are converted at a time for a GPU: several of its pinned buffers.
GPU_CHUNK_BYTES = 256 << 20


def _width(forest: Forest, narrow: bool) -> int:
    return max(len(forest.tested) if narrow else forest.n_features, 1)


def rows_at_once(forest: Forest, narrow: bool = False, n_threads: int = 1) -> int:
    """Documents on the host that CPU engines score between two checks for signals."""
    rows = CHUNK_WORK // (forest.n_trees + _width(forest, narrow) + OUTPUT * forest.n_outputs)
    work = forest.n_category_sets // SETS
    if forest.n_nodes > DEEP * forest.n_trees:
        work += min(forest.n_nodes // DEEP, int(forest.tree_depth.sum()))
    if forest.has_linear_leaves:
        work += LINEAR * forest.n_trees
    if work:
        rows = min(rows, max(CHUNK_WORK // work, MIN_DEEP))
    return max(1024, n_threads * rows // 1024 * 1024)


def rows_copied(forest: Forest, narrow: bool = False, n_threads: int = 1) -> int:
    """The same for documents that have to be converted: copies of wide rows are limited to fewer than suit engines."""
    rows = CHUNK_BYTES // (8 * _width(forest, narrow))
    return min(rows_at_once(forest, narrow, n_threads), rows // 1024 * 1024 or max(MIN_ROWS, rows))


def rows_for_cpu(documents: Documents, forest: Forest, output: str = "value", n_threads: int = 1) -> int:
    """Documents on the host that CPU engines score at a time."""
    if documents.n <= MIN_ROWS and output != "per_tree":
        return MIN_ROWS
    rows = (rows_copied if documents.copied else rows_at_once)(forest, documents.narrow, n_threads)
    return max(1, min(rows, PER_TREE_WORK // max(forest.n_trees, 1))) if output == "per_tree" else rows


def rows_within(us: float, rows: int, n_threads: int) -> int:
    """Of ``rows`` that take ``us`` microseconds, those that take at most `MAX_WAIT`; at least `MIN_DEEP` a thread."""
    if us <= MAX_WAIT:
        return rows
    return min(rows, max(int(rows * MAX_WAIT / us) // 1024 * 1024, n_threads * MIN_DEEP))


def pieces(n: int, rows: int) -> Iterator[tuple[int, int]]:
    """Start and stop of the chunks of ``n`` documents, ``rows`` rows each; the last may have one row more.

    That avoids a last chunk of a single row: in a link, NumPy adds up a single row's numbers in another order.
    """
    for start in range(0, max(n - 1, min(n, 1)), rows):
        yield start, n if start + rows >= n - 1 else start + rows


def rows_for_gpu(documents: Documents, forest: Forest) -> int:
    """Documents on the host that are handed to a GPU at a time."""
    return max(1, GPU_CHUNK_BYTES // (8 * _width(forest, documents.narrow)))
