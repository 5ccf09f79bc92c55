"""A forest of `walk_gpu` on one device, and the launch that scores documents there.

    sums <- walk_scores(documents)                     a thread block for each document
    few documents, many trees, integers:
        partial sums <- walk_scores(documents)         several for each, which share the parts of the trees
        sums <- start + partial sums

Everything is queued on the current stream; nothing here waits for the device. A launch needs no memory besides
its output, so documents are split only if they are too many for a grid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gpuqs.devices.base import GpuDevice, Kernel
from gpuqs.engines.gpu import kernels
from gpuqs.engines.gpu.placed import MAX_GRID, SHARED, PlacedForest, as_numbers, padded, trees_by_output
from gpuqs.forest import Forest
from gpuqs.layout.leaves import LeafValues
from gpuqs.layout.qs_gpu import WARP
from gpuqs.layout.walk_gpu import PreorderLayout

#: Upper limit of trees in a part. One part is added up while the next is walked.
PART_TREES = 512
#: Up to this many documents per multiprocessor are few.
FEW = 2
#: Most threads of a thread block if documents are few: one for each tree of a part, and a warp that adds.
FEW_THREADS = WARP + PART_TREES
#: Most threads of a thread block if documents are many.
MANY_THREADS = 256
#: At most one of this many threads adds.
ADDING_SHARE = 4
#: Fewest parts that may be split among several thread blocks for each document.
SPLIT_PARTS = 4
#: Upper limit of documents in a launch: kernels count them in int, and grids limit their thread blocks likewise.
MAX_DOCUMENTS = 1 << 30
#: Bytes of shared memory per tree of a part: a value of the part that is walked, and one of the part that is added.
VALUE_BYTES = 2 * 8


@dataclass(frozen=True)
class WalkSettings:
    """What tests choose by hand; None leaves the choice to the policy.

    Parameters
    ----------
    part_trees : int, optional
        Trees of a part, at most `PART_TREES`.
    threads : int, optional
        Upper limit of threads per block; a multiple of 32, at least 128.
    shared : int, optional
        Upper limit of the shared memory for columns and values, in bytes.
    """

    part_trees: int | None = None
    threads: int | None = None
    shared: int | None = None


class _Reading(NamedTuple):
    """How documents of one type are walked: arguments of both kernels, and the kernel for scores."""

    arguments: dict[str, Any]
    column_bytes: int  # of shared memory
    scores: Kernel


def _launches(documents: Any, out: Any) -> Iterator[tuple[Any, Any]]:
    """The documents of each launch, and its output."""
    n = documents.shape[0]
    if 0 < n <= MAX_DOCUMENTS:
        yield documents, out
    else:
        for start in range(0, n, MAX_DOCUMENTS):
            yield documents[start : start + MAX_DOCUMENTS], out[start : start + MAX_DOCUMENTS]


class WalkPlacedForest(PlacedForest):
    """A forest as nodes in preorder, copied to a device; immutable.

    Parameters
    ----------
    device : GpuDevice
    forest : Forest
    layout : PreorderLayout
    values : LeafValues
    settings : WalkSettings
    """

    def __init__(
        self, device: GpuDevice, forest: Forest, layout: PreorderLayout, values: LeafValues, settings: WalkSettings
    ) -> None:
        super().__init__(device, forest, values)
        self.settings, self.n_columns = settings, len(layout.columns)
        self.width, self.any_order = values.value.shape[1], values.step > 0
        most = settings.part_trees or PART_TREES
        self.n_parts = -(-self.n_trees // most)
        self.part_trees = -(-self.n_trees // max(self.n_parts, 1))
        #: Threads that a thread block can use: to walk, and to add.
        self.walkers = -(-self.part_trees // WARP) * WARP
        self.adders = WARP * self.n_outputs if self.any_order else -(-self.n_outputs // WARP) * WARP
        self._readings: dict[np.dtype, _Reading] = {}
        with device.active():
            self._upload(forest, layout)

    def _upload(self, forest: Forest, layout: PreorderLayout) -> None:
        self._upload_common(layout.columns)
        starts = np.minimum(np.arange(self.n_parts + 1) * self.part_trees, self.n_trees).astype(np.int32)
        of_output, trees = trees_by_output(starts, forest)
        self.roots = self._int32(layout.roots)
        in_order = self.width > 1 or np.array_equal(trees, np.arange(self.n_trees))
        roots = self.roots if in_order else self._int32(layout.roots[trees])
        nodes = {"float32": layout.node32, "float64": layout.node64}
        if self.input_dtype == "float32":
            del nodes["float64"]
        self.nodes = {value: self.device.upload(padded(node.view(np.uint32))) for value, node in nodes.items()}
        #: Arguments of `walk_scores` for the trees, and for the outputs.
        self._of_trees = {
            "roots": roots,
            "value": self.leaf_value,
            "width": np.int32(self.width),
            "n_trees": np.int32(self.n_trees),
            "part_trees": np.int32(self.part_trees),
            "n_parts": np.int32(self.n_parts),
        }
        self._of_outputs = {"output_offsets": self._int32(of_output), "n_outputs": np.int32(self.n_outputs)}

    def _reading(self, dtype: np.dtype) -> _Reading:
        found = self._readings.get(dtype)
        if found is None:
            value, kernel = self._value_dtype(dtype), self._compiled
            if self.any_order and self.n_parts >= SPLIT_PARTS:  # any call warms up for few and many documents
                kernel("finish_scores.cu", kernels.add_tree_blocks(self.values.sum_dtype))
            n_bytes = self.n_columns * value.itemsize
            staged = n_bytes <= (self.settings.shared or SHARED) - VALUE_BYTES * self.part_trees
            found = self._readings[dtype] = _Reading(
                {
                    "n_columns": np.int32(self.n_columns),
                    **self.readings,
                    "staged": np.int32(staged),
                    "nodes": self.nodes[value.name],
                },
                n_bytes if staged else 0,
                kernel("walk_scores.cu", kernels.walk_scores(value, self.values.value.dtype)),
            )
        return found

    def _given(self, documents: Any) -> dict[str, Any]:
        """Kernel arguments for documents."""
        document_stride, feature_stride = map(np.int64, documents.strides)
        return {
            "documents": as_numbers(documents),
            "type": kernels.INPUTS[documents.dtype],
            "document_stride": document_stride,
            "feature_stride": feature_stride,
        }

    # -- scoring --------------------------------------------------------------------------

    def score(self, documents: Any, sums: Any, started: bool = False) -> None:
        for launch in _launches(documents, sums):
            self._score(*launch, started)

    def _score(self, documents: Any, sums: Any, started: bool) -> None:
        n = documents.shape[0]
        if not self.n_parts:
            if not started:
                sums[...] = self.start
            return
        documents = self._rounded_once(documents)
        reading, each = self._reading(documents.dtype), self._parts_each(n)
        n_shares = -(-self.n_parts // each)
        out = sums if n_shares == 1 else self.device.empty((n_shares, n, self.n_outputs), np.int64)
        threads, adders = self._threads(n)
        self._launch_kernel(
            reading.scores,
            (n, n_shares),
            (threads,),
            shared_bytes=VALUE_BYTES * self.part_trees + reading.column_bytes,
            **self._given(documents),
            **reading.arguments,
            **self._of_trees,
            parts_each=np.int32(each),
            **self._of_outputs,
            n_adders=np.int32(adders),
            started=np.int32(started and n_shares == 1),
            start=self.start,
            sums=out,
        )
        if n_shares > 1:
            self._add_partial(out, n_shares, sums, started)

    def _parts_each(self, n: int) -> int:
        """Parts per thread block, for ``n`` documents: all, unless sums may be split and the device would be idle."""
        if not self.any_order or self.n_parts < SPLIT_PARTS:
            return self.n_parts
        return -(-self.n_parts // max(1, min(self.n_parts, self.device.attributes.multiprocessors // n)))

    def _threads(self, n: int) -> tuple[int, int]:
        """Threads of a thread block, and how many of them add."""
        few = n <= FEW * self.device.attributes.multiprocessors
        most = self.settings.threads or (FEW_THREADS if few else MANY_THREADS)
        adders = min(self.adders, most // ADDING_SHARE // WARP * WARP)
        return min(adders + self.walkers, most), adders

    def leaves(self, documents: Any, out: Any) -> None:
        for launch in _launches(documents, out):
            self._look_up(*launch, self.leaf_id, 1)

    def per_tree(self, documents: Any, out: Any) -> None:
        for launch in _launches(documents, out):
            self._look_up(*launch, self.leaf_value, self.width)

    def _look_up(self, documents: Any, out: Any, table: Any, width: int) -> None:
        n = documents.shape[0]
        if not self.n_trees:
            return
        documents = self._rounded_once(documents)
        reading, value = self._reading(documents.dtype), self._value_dtype(documents.dtype)
        threads = min(self.walkers, self.settings.threads or MANY_THREADS)
        each = max(threads, -(-self.n_trees // MAX_GRID))
        self._launch_kernel(
            self._compiled("walk_leaves.cu", kernels.walk_leaves(value, table.dtype)),
            (n, -(-self.n_trees // each)),
            (threads,),
            shared_bytes=reading.column_bytes,
            **self._given(documents),
            **reading.arguments,
            roots=self.roots,
            n_trees=np.int32(self.n_trees),
            trees_each=np.int32(each),
            table=table,
            width=np.int32(width),
            out=out,
        )
