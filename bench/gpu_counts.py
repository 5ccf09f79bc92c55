"""The work of `update_scores` to apply masks, counted without a GPU from the layout, pivots and machine code.

    python bench/gpu_counts.py

Nothing here is a time. Exact counts, for MSLR-like documents and made-up forests: tuples, rows of 32 tuples, atomics,
bank conflicts, bytes, balance of the warps' work. Bytes are counted once per thread block, as if L1 held everything
that a warp reads again. Instructions are an upper estimate: trips of the loops times the instructions of their bodies,
from NVRTC and nvdisasm (`make gate` has them), as if every instruction of a body ran in each trip; tests and missing
lists each have a copy of the loops, so a column is assumed to run half of the code around them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path += [str(CHECKOUT), str(CHECKOUT / "bench"), str(CHECKOUT / "tests" / "cuda")]

from machine_code import Code, inside  # noqa: E402
from made_up import lambdamart_like  # noqa: E402

from gpuqs.demo.mslr import mslr_like  # noqa: E402
from gpuqs.devices.base import DeviceAttributes  # noqa: E402
from gpuqs.engines.gpu.qs_placed import QsPlacedForest, QsSettings  # noqa: E402
from gpuqs.forest import Forest  # noqa: E402
from gpuqs.layout.leaves import leaf_values, number_leaves  # noqa: E402

WARP, SECTOR = 32, 32
#: According to their data sheets.
DEVICES = (
    DeviceAttributes("H100", (9, 0), 132, 2048, 32, 228 << 10, 227 << 10, 1024, 50 << 20),
    DeviceAttributes("RTX 3090", (8, 6), 82, 1536, 16, 100 << 10, 99 << 10, 1024, 6 << 20),
)
SIZES = ((1000, 64), (20_000, 64))
N_DOCUMENTS = 32


class Paper:
    """A device that keeps uploaded data and runs nothing."""

    scratch_bytes = 1 << 30

    def __init__(self, attributes: DeviceAttributes) -> None:
        self.attributes = attributes

    @contextmanager
    def active(self) -> Iterator[None]:
        yield

    def upload(self, array: np.ndarray) -> np.ndarray:
        return array


@dataclass
class Counts:
    """Averages per document; rows, atomics and instructions are counted per warp."""

    false_tuples: float = 0
    columns: float = 0
    rows: float = 0
    atomics: float = 0
    wavefronts: float = 0
    l2_bytes: float = 0
    instructions: float = 0
    busiest_warp: float = 0  # relative to the mean


@dataclass(frozen=True)
class Loops:
    """Instruction counts of the loops in a kernel's machine code.

    Parameters
    ----------
    row : {documents: float}
        Instructions per row of 32 tuples, by how many documents apply it.
    column : int
        Instructions per column in addition to its rows.
    cut : int
        Instructions per 32 columns where the first warp divides the rows into shares.
    """

    row: dict[int, float]
    column: int
    cut: int


def loops(name: str, attributes: DeviceAttributes) -> Loops:
    code = disassembled(name, attributes)
    opcodes, found = code.opcodes, code.loops

    def n_atomics(loop: tuple[int, int]) -> int:
        return sum(opcode.startswith("ATOMS") for opcode in opcodes[slice(*loop)])

    def length(loop: tuple[int, int]) -> int:
        return loop[1] - loop[0]

    inner = [loop for loop in found if n_atomics(loop) and not any(inside(other, loop) for other in found)]
    around = min((loop for loop in found if all(inside(other, loop) for other in inner)), key=length)
    before = [loop for loop in found if loop[1] <= around[0] and "LDG" in " ".join(opcodes[slice(*loop)])]
    return Loops(
        # Each loop handles two rows per trip; the loops of tests come first and win over those of missing lists.
        row={n_atomics(loop) // 2: length(loop) / 2 for loop in reversed(inner)},
        column=(length(around) - sum(map(length, inner))) // 2,
        cut=sum(map(length, before)),
    )


def disassembled(name: str, attributes: DeviceAttributes) -> Code:
    import nvrtc_build

    major, minor = attributes.compute_capability
    return Code(nvrtc_build.facts_of("update_scores.cu", 10 * major + minor, (name,))[name].code)


def pivots_of(placed: QsPlacedForest, X: np.ndarray) -> npt.NDArray[np.int64]:
    """Number of false tests [tree block, document, column] for documents without missing values."""
    offsets = placed.test_offsets.reshape(placed.n_blocks, -1)
    pivots = np.zeros((placed.n_blocks, len(X), placed.n_columns), np.int64)
    for block, column in product(range(placed.n_blocks), range(placed.n_columns)):
        thresholds = placed.thresholds["float32"][slice(*offsets[block, column : column + 2])]
        pivots[block, :, column] = np.searchsorted(thresholds, X[:, placed.readings["feature"][column]], "left")
    return pivots


def wavefronts(placed: QsPlacedForest, block: int, n_false: np.ndarray) -> tuple[int, int]:
    """Atomics of 32 lanes and their wavefronts, for one document with ``n_false`` tuples [column]."""
    runs, slot = placed.masks["runs"].reshape(placed.n_blocks, -1, 4)[block], placed.masks["slot"]
    rows = np.concatenate([[0], np.cumsum(-(-n_false // WARP))])
    column = np.repeat(np.arange(len(n_false)), n_false)
    lane = np.arange(len(column)) - np.concatenate([[0], np.cumsum(n_false)])[column]
    key = (rows[column] + lane // WARP) * WARP + slot[runs[column, 0] + lane] % WARP
    return int(rows[-1]), int(np.bincount(key, minlength=rows[-1] * WARP).reshape(-1, WARP).max(axis=1).sum())


def count(placed: QsPlacedForest, X: np.ndarray, body: Loops) -> Counts:
    """Counts for documents ``X`` without missing values."""
    counts, together = Counts(), placed.documents
    n_warps, word_bytes = placed.threads // WARP, placed.masks["mask"].itemsize
    pivots = pivots_of(placed, X)
    work, busiest = 0.0, 0
    for block, start in product(range(placed.n_blocks), range(0, len(X), together)):
        p = pivots[block, start : start + together]
        longest = p.max(axis=0)
        n_rows = int((-(-longest // WARP)).sum())
        share = max(1, -(-n_rows // n_warps))
        n_columns = int((longest > 0).sum()) + min(n_warps, n_rows // share)  # several warps may start one
        work, busiest = work + n_rows / n_warps, busiest + min(share, n_rows)
        counts.false_tuples += p.sum()
        counts.columns += n_columns
        counts.instructions += n_columns * body.column + -(-placed.n_columns // WARP) * body.cut
        # From few tuples to many: rows that all documents apply, that all but one apply, ...
        for left_behind, step in enumerate(np.diff(np.sort(p, axis=0), axis=0, prepend=0)):
            n = int((-(-step // WARP)).sum())
            counts.rows += n
            counts.instructions += n * body.row[together - left_behind]
        counts.l2_bytes += p.size * placed.pivot_dtype.itemsize + placed.n_columns * 16
        counts.l2_bytes += sum((-(-longest * width // SECTOR)).sum() * SECTOR for width in (2, word_bytes))
        for document in p:
            n_atomics, n_wavefronts = wavefronts(placed, block, document)
            counts.atomics += n_atomics
            counts.wavefronts += n_wavefronts
    for field in fields(Counts):
        setattr(counts, field.name, getattr(counts, field.name) / len(X))
    counts.busiest_warp = busiest / work
    return counts


def place(forest: Forest, attributes: DeviceAttributes, settings: QsSettings) -> QsPlacedForest:
    ranges = number_leaves(forest)
    return QsPlacedForest(Paper(attributes), forest, ranges, leaf_values(forest, ranges.position, "exact"), settings)


def main() -> None:
    X = mslr_like(200, 1)[0]
    documents = X[np.random.default_rng(1).permutation(len(X))[:N_DOCUMENTS]]
    names = [field.name for field in fields(Counts)]
    heads = ["device", "forest", "documents a block", "threads", "tree blocks"]
    heads += [name.replace("_", " ") for name in names]
    print("Counted, not timed; a document's share.\n")
    print(f"| {' | '.join(heads)} |\n{'|---' * len(heads)}|")
    for (n_trees, n_leaves), attributes in product(SIZES, DEVICES):
        forest = lambdamart_like(n_trees, n_leaves, X)
        for together in (1, 4):
            placed = place(forest, attributes, QsSettings(documents_per_block=together))
            counts = vars(count(placed, documents, loops(placed._scoring(together)[1], attributes)))
            row = [attributes.name, f"{n_trees:,} x {n_leaves}", together, placed.threads, placed.n_blocks]
            row += [f"{counts[name]:,.2f}" if name == "busiest_warp" else f"{counts[name]:,.0f}" for name in names]
            print(f"| {' | '.join(map(str, row))} |", flush=True)


if __name__ == "__main__":
    main()
