"""`qs_gpu`: GPU-QuickScorer (paper 000, section 6), on the caller's current stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from gpuqs.devices.base import Device, GpuDevice
from gpuqs.engines.base import Engine, Program
from gpuqs.engines.gpu.forest import GpuForest, Settings
from gpuqs.engines.gpu.links import apply_link, find_classes
from gpuqs.engines.parameters import NONE_GIVEN, Params
from gpuqs.forest import Forest
from gpuqs.forks import lazy
from gpuqs.layout.leaves import leaf_values, number_leaves
from gpuqs.layout.qs_gpu import count_tuples
from gpuqs.layout.ranks import RankTables
from gpuqs.links import class_decision, decides_on_values, trees_averaged
from gpuqs.outputs import class_labels

#: Words of one tree that the largest shared memory of today's devices holds.
MAX_WORDS = 227 * 1024 // 4 - 64
#: Tuples that a node takes on average, at most: long left chains take many.
MAX_TUPLES_PER_NODE = 64


@dataclass(frozen=True)
class GpuProgram(Program):
    """A forest laid out for one device, and copied there."""

    forest: GpuForest
    classes: npt.NDArray[Any]

    def ready(self) -> GpuForest:
        """The forest on its device, for launches; a graph that is being captured keeps it."""
        self.forest.device.retain(self.forest)
        return self.forest

    @lazy
    def labels(self) -> Any:
        """The labels of the classes on the device."""
        return self.forest.device.upload(self.classes)


class QsGpu(Engine):
    """GPU-QuickScorer.

    Parameters
    ----------
    settings : Settings, optional
    """

    name: ClassVar[str] = "qs_gpu"
    device: ClassVar[str] = "cuda"
    summary: ClassVar[str] = "GPU-QuickScorer: a thread block for a document or four, leaf bitvectors in shared memory"

    def __init__(self, settings: Settings | None = None) -> None:
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

    def cost(self, forest: Forest, n_documents: int) -> None:
        return None  # no GPU has timed it yet

    def prepare(
        self,
        forest: Forest,
        precision: str,
        *,
        ranks: Callable[[], RankTables] | None = None,
        device: Device | None = None,
        params: Params = NONE_GIVEN,
    ) -> GpuProgram:
        """Lay the forest out for a device, copy it there, and wait for the copy."""
        self._values(params)
        assert device is not None and device.kind == self.device
        ranges = number_leaves(forest)
        values = leaf_values(forest, ranges.position, precision)
        placed = GpuForest(cast(GpuDevice, device), forest, ranges, values, self._settings)
        return GpuProgram(values, placed, class_labels(forest))

    def score(self, program: Program, documents: Any, sums: Any, n_threads: int = 1, started: bool = False) -> None:
        """As every engine's; ``documents`` may also be integers, and ``n_threads`` is not used."""
        assert isinstance(program, GpuProgram)
        program.ready().score(documents, sums, started)

    def leaves(self, program: Program, documents: Any, out: Any, n_threads: int = 1) -> None:
        assert isinstance(program, GpuProgram)
        program.ready().leaves(documents, out)

    def per_tree(self, program: Program, forest: Forest, documents: Any, out: Any, n_threads: int = 1) -> None:
        assert isinstance(program, GpuProgram)
        program.ready().per_tree(documents, out)

    def finish(self, program: Program, sums: Any, scores: Any, add_last: Any = None) -> None:
        assert isinstance(program, GpuProgram) and add_last is None
        if sums is not scores or program.values.add_last.any():
            program.ready().finish(sums, scores)

    def link(self, program: Program, forest: Forest, scores: Any, out: Any, output: str) -> None:
        assert isinstance(program, GpuProgram)
        value = output == "value"
        averaged = forest.average if value else forest.average_raw
        divisor = trees_averaged(forest, program.forest.n_trees) if averaged else 1.0
        name = forest.link if value else "identity"
        apply_link(program.forest.device, name, forest.link_scale, divisor, scores, out)

    def classify(self, program: Program, forest: Forest, scores: Any, out: Any) -> None:
        assert isinstance(program, GpuProgram)
        device = program.forest.device
        if decides_on_values(forest):
            self.link(program, forest, scores, scores, "value")
        numbers = device.empty((out.shape[0], out.shape[1] if out.ndim == 2 else 1), np.int64)
        find_classes(device, class_decision(forest), scores, numbers)
        device.retain(program.labels)
        out[...] = program.labels[numbers.reshape(out.shape)]
