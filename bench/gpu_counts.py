"""What `update_scores` does to find masks, counted without a GPU: from the layout, pivots and the kernel's machine code.

    python bench/gpu_counts.py

Nothing here is a time. A count is exact where it follows from the layout and the pivots (loop trips, atomics, bytes,
bank conflicts, the busiest warp). Instructions are the trips times the instructions of the loops' bodies in the
disassembly (as if every instruction of a body ran once a trip), so NVRTC and nvdisasm must be there (`make gate` has them).
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, fields
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

CHECKOUT = Path(__file__).resolve().parents[1]
sys.path += [str(CHECKOUT), str(CHECKOUT / "bench"), str(CHECKOUT / "tests" / "cuda")]

from made_up import lambdamart_like  # noqa: E402

from gpuqs.demo.mslr import mslr_like  # noqa: E402
from gpuqs.devices import nvrtc, sources  # noqa: E402
from gpuqs.devices.base import DeviceAttributes  # noqa: E402
from gpuqs.engines.gpu.forest import GpuForest, Settings  # noqa: E402
from gpuqs.forest import Forest  # noqa: E402
from gpuqs.layout.leaves import leaf_values, number_leaves  # noqa: E402

WARP, SECTOR = 32, 32
#: By their data sheets.
DEVICES = (
    DeviceAttributes("H100", (9, 0), 132, 2048, 32, 228 << 10, 227 << 10, 1024, 50 << 20),
    DeviceAttributes("RTX 3090", (8, 6), 82, 1536, 16, 100 << 10, 99 << 10, 1024, 6 << 20),
)
SIZES = ((1000, 64), (20_000, 64))
N_DOCUMENTS = 32


class Paper:
    """A device that keeps what is uploaded, and runs nothing."""

    scratch_bytes = 1 << 30

    def __init__(self, attributes: DeviceAttributes) -> None:
        self.attributes = attributes

    def active(self) -> Any:
        from contextlib import nullcontext

        return nullcontext()

    def upload(self, array: np.ndarray) -> np.ndarray:
        return array


@dataclass
class Counts:
    """Of one document, on average; warp instructions, wavefronts of 32 banks, bytes."""

    false_tuples: float = 0
    column_visits: float = 0
    loop_trips: float = 0
    atomics: float = 0
    wavefronts: float = 0
    l2_bytes: float = 0
    instructions: float = 0
    busiest_warp_over_mean: float = 0


@dataclass(frozen=True)
class Loops:
    """Instructions of a row of 32 tuples by the documents that take it, and of a column beside its rows.

    ``cut``: of 32 columns, where the first warp cuts the rows into shares.
    """

    row: dict[int, float]
    column: int
    cut: int


def loops(name: str, attributes: DeviceAttributes) -> Loops:
    import nvrtc_build

    major, minor = attributes.compute_capability
    options = sources.compile_options(10 * major + minor, attributes.threads_per_multiprocessor, name)
    with nvrtc.Program(sources.source("update_scores.cu"), "update_scores.cu", [name], options) as program:
        cubin = program.read("CUBIN")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(nvrtc_build._tool("nvdisasm")), "-c", file.name]
        listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    opcodes: list[str] = []
    labels: dict[str, int] = {}
    found: list[tuple[int, int]] = []
    for line in listing.splitlines():
        if label := re.match(r"(\.L_x_\d+):", line):
            labels[label[1]] = len(opcodes)
        if instruction := re.search(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)(.*)", line):
            opcodes.append(instruction[1])
            target = re.search(r"\((\.L_x_\d+)\)", instruction[2])
            if instruction[1] == "BRA" and target and target[1] in labels:
                found.append((labels[target[1]], len(opcodes)))
    atomics = [i for i, opcode in enumerate(opcodes) if opcode.startswith("ATOMS")]

    def n_atomics(loop: tuple[int, int]) -> int:
        return sum(loop[0] <= i < loop[1] for i in atomics)

    def inside(loop: tuple[int, int], other: tuple[int, int]) -> bool:
        return other[0] <= loop[0] and loop[1] <= other[1] and loop != other

    # Each inner loop takes two rows; tests and missing lists have a copy of their own, so columns have half of the rest.
    inner = [loop for loop in found if n_atomics(loop) and not any(inside(other, loop) for other in found)]
    row = {n_atomics(loop) // 2: (loop[1] - loop[0]) / 2 for loop in inner}
    around = [loop for loop in found if all(inside(other, loop) for other in inner)]
    outer = min(around, key=lambda loop: loop[1] - loop[0])
    column = (outer[1] - outer[0] - sum(loop[1] - loop[0] for loop in inner)) // 2
    before = [loop for loop in found if loop[1] <= outer[0] and any(o.startswith("LDG") for o in opcodes[slice(*loop)])]
    return Loops(row, column, sum(loop[1] - loop[0] for loop in before))


def pivots_of(placed: GpuForest, X: np.ndarray) -> npt.NDArray[np.int64]:
    """False tests [tree block, document, column]."""
    offsets = placed.test_offsets.reshape(placed.n_blocks, -1)
    pivots = np.zeros((placed.n_blocks, len(X), placed.n_columns), np.int64)
    for block, row in enumerate(offsets):
        for column, (begin, end) in enumerate(zip(row[:-1], row[1:], strict=True)):
            x = X[:, placed.readings[0][column]]
            pivots[block, :, column] = np.searchsorted(placed.thresholds["float32"][begin:end], x, "left")
    return pivots


def wavefronts(placed: GpuForest, block: int, n_false: np.ndarray) -> tuple[int, int]:
    """Atomics of 32 lanes, and the banks' wavefronts that they take: ``n_false`` tuples [column] of one document."""
    runs, slot = placed.mask_arguments[0].reshape(placed.n_blocks, -1, 4)[block], placed.mask_arguments[1]
    rows = np.concatenate([[0], np.cumsum(-(-n_false // WARP))])
    column = np.repeat(np.arange(len(n_false)), n_false)
    lane = np.arange(len(column)) - np.concatenate([[0], np.cumsum(n_false)])[column]
    key = (rows[column] + lane // WARP) * WARP + slot[runs[column, 0] + lane] % WARP
    return int(rows[-1]), int(np.bincount(key, minlength=rows[-1] * WARP).reshape(-1, WARP).max(axis=1).sum())


def count(placed: GpuForest, X: np.ndarray) -> Counts:
    """The rows of all columns up to the largest of the documents' pivots, dealt evenly to the warps."""
    counts, together = Counts(), placed.documents
    n_warps, word_bytes = placed.threads // WARP, placed.mask_arguments[2].itemsize
    pivots = pivots_of(placed, X)
    _, name = placed._scoring(together)
    body = loops(name, placed.device.attributes)
    work, busiest = 0.0, 0.0
    for block, start in product(range(placed.n_blocks), range(0, len(X), together)):
        p = pivots[block, start : start + together]
        longest = p.max(axis=0)
        rows = -(-longest // WARP)
        share = max(1, -(-int(rows.sum()) // n_warps))
        columns_begun = len(np.unique(np.concatenate([np.flatnonzero(rows), np.arange(0, rows.sum(), share)])))
        counts.false_tuples += p.sum()
        counts.column_visits += columns_begun
        steps = np.diff(np.sort(p, axis=0), axis=0, prepend=0)
        for left_behind, step in enumerate(steps):
            trips = int((-(-step // WARP)).sum())
            counts.loop_trips += trips
            counts.instructions += trips * body.row[together - left_behind]
        counts.instructions += columns_begun * body.column + -(-placed.n_columns // WARP) * body.cut
        work, busiest = work + rows.sum() / n_warps, busiest + min(share, rows.sum())
        counts.l2_bytes += p.size * placed.pivot_dtype.itemsize + placed.n_columns * 16
        counts.l2_bytes += sum((-(-longest * width // SECTOR)).sum() * SECTOR for width in (2, word_bytes))
        for document in p:
            n_atomics, n_wavefronts = wavefronts(placed, block, document)
            counts.atomics += n_atomics
            counts.wavefronts += n_wavefronts
    for field in fields(Counts):
        setattr(counts, field.name, getattr(counts, field.name) / len(X))
    counts.busiest_warp_over_mean = busiest / work
    return counts


def place(forest: Forest, attributes: DeviceAttributes, settings: Settings) -> GpuForest:
    return GpuForest(Paper(attributes), forest, number_leaves(forest), leaf_values(forest, number_leaves(forest), "exact"), settings)


def main() -> None:
    X = mslr_like(200, 1)[0]
    names = [field.name for field in fields(Counts)]
    print("counted, not timed; per document\n")
    print("| device | trees x leaves | documents a block | threads | tree blocks | " + " | ".join(n.replace("_", " ") for n in names) + " |")
    print("|---" * (5 + len(names)) + "|")
    for n_trees, n_leaves in SIZES:
        forest = lambdamart_like(n_trees, n_leaves, X)
        documents = X[np.random.default_rng(1).permutation(len(X))[:N_DOCUMENTS]]
        for attributes in DEVICES:
            for together in (1, 4):
                placed = place(forest, attributes, Settings(form="words", documents_per_block=together))
                counts = count(placed, documents)
                values = " | ".join(f"{getattr(counts, n):,.2f}" if "over" in n else f"{getattr(counts, n):,.0f}" for n in names)
                print(f"| {attributes.name} | {n_trees:,} x {n_leaves} | {together} | {placed.threads} | {placed.n_blocks} | {values} |", flush=True)


if __name__ == "__main__":
    main()
