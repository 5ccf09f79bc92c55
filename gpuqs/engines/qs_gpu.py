"""`qs_gpu`: GPU-QuickScorer (paper 000, section 6) on CuPy arrays.

Documents on the device are scored where they are, on the caller's current stream; documents on
the host go through pinned double buffers, copies overlapped with scoring on two streams.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from gpuqs.engines.base import Engine, Program
from gpuqs.engines.gpu_device import GpuDevice
from gpuqs.engines.gpu_forest import GpuForest, Settings
from gpuqs.engines.gpu_host import stream_from_host
from gpuqs.forest import Forest
from gpuqs.forks import Lock
from gpuqs.layout.leaves import LeafRanges, leaf_values, number_leaves
from gpuqs.layout.word_tuples import count_tuples

#: Words of one tree that the largest shared memory of today's devices holds.
MAX_WORDS = 227 * 1024 // 4 - 64
#: Tuples that a node takes on average, at most: long left chains take many.
MAX_TUPLES_PER_NODE = 64


@dataclass(frozen=True)
class GpuProgram(Program):
    """A forest made ready for `qs_gpu`; laid out for and copied to each device at first use there."""

    forest: Forest
    ranges: LeafRanges
    settings: Settings
    _on: dict[Any, GpuForest] = field(default_factory=dict, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)

    def on(self, device: GpuDevice) -> GpuForest:
        """The forest on a device; the first call there copies it and waits for the copy."""
        if device.key not in self._on:
            with self._lock.held():
                if device.key not in self._on:
                    self._on[device.key] = GpuForest(device, self.forest, self.ranges, self.values, self.settings)
        placed = self._on[device.key]
        device.retain(placed)
        return placed

    def __reduce__(self) -> tuple:
        # Device memory stays behind: the copy goes to its devices anew.
        return GpuProgram, (self.values, self.forest, self.ranges, self.settings)


def _current_cuda_device() -> GpuDevice:
    from gpuqs.arrays_cuda import cuda_device  # CuPy is imported when a GPU is asked for

    return cuda_device(None)


class QsGpu(Engine):
    """GPU-QuickScorer.

    Parameters
    ----------
    find_device : callable, optional
        Gives the device to score on; CuPy's current one by default.
    settings : Settings, optional
    """

    name: ClassVar[str] = "qs_gpu"
    device: ClassVar[str] = "cuda"
    summary: ClassVar[str] = "GPU-QuickScorer: a thread block a document, leaf bitvectors in shared memory"

    def __init__(
        self, find_device: Callable[[], GpuDevice] = _current_cuda_device, settings: Settings | None = None
    ) -> None:
        self._find_device = find_device
        self._settings = settings or Settings()

    def supports(self, forest: Forest) -> str | None:
        bits = {"mask32": 32, "mask64": 64}.get(self._settings.form or "words", MAX_WORDS * 32)
        if forest.n_leaves > bits:
            return f"a tree has {forest.n_leaves:,} leaves, more than {bits:,}"
        words = -(-forest.n_leaves // 32)  # a test touches no more of them
        n_tuples = forest.n_nodes * words
        if words > MAX_TUPLES_PER_NODE:
            n_tuples = count_tuples(forest, number_leaves(forest), 32)
            if n_tuples > MAX_TUPLES_PER_NODE * forest.n_nodes:
                return f"its trees are long chains: {n_tuples:,} tuples for {forest.n_nodes:,} nodes"
        if max(n_tuples, forest.leaf_value.size, forest.category_words.size) >= 1 << 31:
            return "it may have more tuples, leaf values or words of category sets than 32-bit indices count"
        return None

    def prepare(self, forest: Forest, precision: str) -> GpuProgram:
        ranges = number_leaves(forest)
        return GpuProgram(leaf_values(forest, ranges, precision), forest, ranges, self._settings)

    def score(self, program: Program, documents: Any, sums: Any, n_threads: int = 1) -> None:
        """Fill ``sums`` with the documents' sums: both on the host, or both on the device.

        ``documents`` on the device may also be integers. ``n_threads`` is not used.
        """
        self.run(program, GpuForest.score, documents, sums)

    def leaves(self, program: Program, documents: Any, out: Any, n_threads: int = 1) -> None:
        """Fill ``out`` with exit leaf numbers; arguments as for `score`."""
        self.run(program, GpuForest.leaves, documents, out)

    def per_tree(self, program: Program, documents: Any, out: Any) -> None:
        """Fill ``out`` ([D, T, width]) with the exit leaves' values; arguments as for `score`."""
        self.run(program, GpuForest.per_tree, documents, out)

    def run(
        self, program: Program, step: Callable[[GpuForest, Any, Any], None], documents: Any, out: Any
    ) -> None:
        """Run ``step(forest, documents, out)`` on the device; arrays on the host go there in chunks."""
        assert isinstance(program, GpuProgram)
        device = self._find_device()
        with device.active():
            forest = program.on(device)
            if device.holds(documents):
                step(forest, documents, out)
            else:
                stream_from_host(forest, step, documents, out)
