"""A forest on one device, for any GPU engine: its arrays, how documents are read, and how sums are finished."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuqs.devices.base import GpuDevice, Kernel
from gpuqs.engines.gpu import kernels
from gpuqs.forest import Forest
from gpuqs.layout.columns import Columns
from gpuqs.layout.leaves import LeafValues

#: Bytes of dynamic shared memory that a kernel may have without opting in.
SHARED = 48 << 10
#: Thread blocks that a grid may have along its second and third axis.
MAX_GRID = 65_535


class PlacedForest(ABC):
    """A forest laid out for one device and copied there; immutable.

    Parameters
    ----------
    device : GpuDevice
    forest : Forest
    values : LeafValues
    """

    def __init__(self, device: GpuDevice, forest: Forest, values: LeafValues) -> None:
        self.device, self.values = device, values
        self.n_trees, self.n_outputs = forest.n_trees, forest.n_outputs
        self.input_dtype, self.integer_dtype = forest.input_dtype, forest.integer_dtype

    def _upload_common(self, columns: Columns) -> None:
        up, values = self.device.upload, self.values
        #: How kernels read each column of the documents: arguments by parameter name.
        self.readings = {
            "feature": self._int32(columns.feature),
            "routing": up(padded(columns.routing)),
            "set_offsets": self._int32(columns.set_offsets),
            "set_words": up(padded(columns.set_words)),
        }
        self.leaf_value = up(padded(values.value.ravel()))
        self.leaf_id = up(padded(values.leaf_id))
        self.start = up(values.start)
        self.add_last = up(values.add_last)

    def _int32(self, array: np.ndarray) -> Any:
        return self.device.upload(padded(array.astype(np.int32).ravel()))

    @abstractmethod
    def score(self, documents: Any, sums: Any, started: bool = False) -> None:
        """Fill ``sums`` ([D, K], of `LeafValues.sum_dtype`, C order), both on the device; ``started`` as in engines."""

    @abstractmethod
    def leaves(self, documents: Any, out: Any) -> None:
        """Fill ``out`` (int32 [D, T], C order) with the source library's exit leaf numbers."""

    @abstractmethod
    def per_tree(self, documents: Any, out: Any) -> None:
        """Fill ``out`` ([D, T, width], of the leaf values' type, C order) with the exit leaves' values."""

    def finish(self, sums: Any, scores: Any) -> None:
        """As `LeafValues.finish`: sums to raw scores [D, K] of `LeafValues.score_dtype`, C order."""
        values = self.values
        n = scores.shape[0] * self.n_outputs
        real = np.float64 if values.step else values.sum_dtype
        self._per_element(
            "finish_scores.cu",
            kernels.finish_scores(values.sum_dtype, real, values.score_dtype),
            n,
            sums=sums,
            n=np.int64(n),
            n_outputs=np.int32(self.n_outputs),
            step=np.float64(values.step or 1.0),
            add_last=self.add_last,
            scores=scores,
        )

    def _add_partial(self, partial: Any, n_blocks: int, sums: Any, started: bool) -> None:
        """Add the sums of tree blocks [B, D, K] in their order to `start`, or to what ``sums`` holds."""
        n = sums.shape[0] * self.n_outputs
        # The values that sums begin with repeat after `period` sums.
        start, period = (sums, n) if started else (self.start, self.n_outputs)
        self._per_element(
            "finish_scores.cu",
            kernels.add_tree_blocks(self.values.sum_dtype),
            n,
            partial=partial,
            n_blocks=np.int32(n_blocks),
            n=np.int64(n),
            n_outputs=np.int32(period),
            start=start,
            sums=sums,
        )

    def _per_element(self, file: str, name: str, n_elements: int, /, **arguments: Any) -> None:
        """Launch a kernel with a thread for each element; ``arguments`` as in `_launch_kernel`."""
        if n_elements:
            self._launch_kernel(self._compiled(file, name), (-(-n_elements // 256),), (256,), **arguments)

    def _compiled(self, file: str, name: str) -> Kernel:
        """A kernel of ``file``, compiled for the registers that it may use on this device."""
        return self.device.kernel(file, name, self._registers(name))

    def _registers(self, name: str) -> int:
        return kernels.registers(self.device.attributes.threads_per_multiprocessor, name)

    @staticmethod
    def _launch_kernel(
        kernel: Kernel, grid: tuple[int, ...], block: tuple[int, ...], /, *, shared_bytes: int = 0, **arguments: Any
    ) -> None:
        """Launch a kernel; ``arguments`` by name, in the order of its parameters.

        The names are only for readers and tests: kernels get the arguments by position.
        """
        kernel(grid, block, tuple(arguments.values()), shared_mem=shared_bytes)

    def _rounded_once(self, documents: Any) -> Any:
        """Integers that the source library rounds twice, after the first rounding; other documents unchanged."""
        if documents.dtype.kind in "iub" and self.integer_dtype != self.input_dtype == "float32":
            return documents.astype(self.integer_dtype)
        return documents

    def _value_dtype(self, given: np.dtype) -> np.dtype:
        """The type in which documents of a type are tested, as the source library casts them."""
        if self.input_dtype == "float32":
            return np.dtype(np.float32)
        return np.dtype(self.integer_dtype) if given.kind in "iub" else np.dtype(given)


def by_row(documents: Any) -> bool:
    """Whether neighbouring features lie closer in memory than neighbouring documents."""
    row, column = documents.strides
    return bool(abs(column) <= abs(row))


def as_numbers(documents: Any) -> Any:
    """Documents of a type that kernels read: booleans as bytes."""
    return documents.view(np.uint8) if documents.dtype == bool else documents


def padded(array: np.ndarray) -> np.ndarray:
    """The array, or one zero if it is empty, so that kernels get a valid pointer."""
    return np.ascontiguousarray(array) if array.size else np.zeros(1, array.dtype)


def trees_by_output(
    block_offsets: npt.NDArray[np.int32], forest: Forest
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Trees of each tree block ordered by output: where each output's trees start [B, K + 1], and the trees [T]."""
    block = np.repeat(np.arange(len(block_offsets) - 1), np.diff(block_offsets))
    order = np.lexsort((forest.tree_output, block))
    key = block[order] * forest.n_outputs + forest.tree_output[order]
    starts = np.searchsorted(key, np.arange((len(block_offsets) - 1) * forest.n_outputs + 1))
    rows = np.arange(len(block_offsets) - 1)[:, None] * forest.n_outputs
    return starts[rows + np.arange(forest.n_outputs + 1)], order
