"""What all GPU engines share: calls on the caller's current stream, links and classes on the device."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt

from gpuqs.cpu_fallback import Machine
from gpuqs.devices.base import Device, GpuDevice
from gpuqs.engines.base import Engine, Program
from gpuqs.engines.gpu.links import apply_link, find_classes
from gpuqs.engines.gpu.placed import PlacedForest
from gpuqs.engines.parameters import NONE_GIVEN, Params
from gpuqs.forest import Forest
from gpuqs.forks import lazy
from gpuqs.layout.ranks import RankTables, build_ranks
from gpuqs.links import class_decision, decides_on_values, kernel_of, trees_averaged
from gpuqs.outputs import class_labels


@dataclass(frozen=True)
class GpuProgram(Program):
    """A forest laid out for one device, and copied there."""

    forest: PlacedForest
    classes: npt.NDArray[Any]

    def ready(self) -> PlacedForest:
        """The forest on its device, which keeps it until it knows of the launches that follow."""
        self.forest.device.retain(self.forest)
        return self.forest

    @lazy
    def labels(self) -> Any:
        """The labels of the classes on the device."""
        return self.forest.device.upload(self.classes)


#: Microseconds that Python and the driver take for a launch. Repeated calls put several launches in a graph, which
#: costs two of these. The engines' other figures were measured on an H100 (those of `bitslice_gpu` on an H200, too),
#: with documents on the device and sums in tree order; other GPUs scale them about equally.
LAUNCH = 10.0


class GpuEngine(Engine):
    """An engine whose program is a `GpuProgram`."""

    device: ClassVar[str] = "cuda"

    def prepare(
        self,
        forest: Forest,
        precision: str,
        *,
        ranks: Callable[[], RankTables] | None = None,
        device: Device | None = None,
        machine: Machine | None = None,
        params: Params = NONE_GIVEN,
    ) -> GpuProgram:
        """Lay the forest out for a device, copy it there, and wait for the copy."""
        self._values(params)
        assert device is not None and device.kind == self.device
        placed = self._place(forest, precision, ranks or partial(build_ranks, forest), cast(GpuDevice, device))
        return GpuProgram(placed.values, placed, class_labels(forest))

    def why_not(self, forest: Forest) -> str | None:
        if forest.has_linear_leaves:
            return "its leaves have linear models, which are evaluated on the CPU"
        return self._why_not(forest)

    @abstractmethod
    def _why_not(self, forest: Forest) -> str | None:
        """The answer of `why_not` for a forest without linear leaves."""

    @abstractmethod
    def _place(
        self, forest: Forest, precision: str, ranks: Callable[[], RankTables], device: GpuDevice
    ) -> PlacedForest:
        """The forest laid out and copied to the device; ``ranks`` as in `prepare`."""

    def score(self, program: Program, documents: Any, sums: Any, n_threads: int = 1, started: bool = False) -> None:
        """As in every engine, but ``documents`` may also be integers, and ``n_threads`` is not used."""
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

    def link(
        self, program: Program, forest: Forest, scores: Any, out: Any, output: str, n_threads: int = 1
    ) -> None:
        assert isinstance(program, GpuProgram)
        value = output == "value"
        averaged = forest.average if value else forest.average_raw
        divisor = trees_averaged(forest, program.forest.n_trees) if averaged else 1.0
        name = kernel_of(forest) if value else "identity"
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
