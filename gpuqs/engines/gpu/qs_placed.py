"""A forest of `qs_gpu` on one device, and the launches that score documents there (paper 000, Algorithm 3).

    foreach chunk of documents that fits the scratch memory:
        values <- transpose(documents)
        pivots <- find_false_nodes(values), every tree block
        partial sums <- update_scores(pivots), every tree block
        sums <- start + partial sums, in the order of the tree blocks

Everything is queued on the current stream; nothing here waits for the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuqs.devices.base import GpuDevice, Kernel
from gpuqs.engines.gpu import kernels
from gpuqs.engines.gpu.occupancy import SUM_BYTES, Plan, choose_block_size, choose_plan, together_for
from gpuqs.engines.gpu.placed import MAX_GRID, SHARED, PlacedForest, as_numbers, by_row, padded, trees_by_output
from gpuqs.errors import DeviceError
from gpuqs.forest import Forest
from gpuqs.layout.leaves import LeafRanges, LeafValues
from gpuqs.layout.qs_gpu import (
    MAX_SLOTS,
    WordLayout,
    build_word_tuples,
    count_tuples,
    cut_tree_blocks,
    pack_tuples,
    words_per_tree,
)

#: Documents, and columns, of a tile that is transposed or searched together.
TILE = 32
#: Fewest documents of a chunk: a few tiles.
MIN_CHUNK = 1024
#: Most documents of a chunk, so that 32-bit indices suffice.
MAX_CHUNK = 1 << 24


@dataclass(frozen=True)
class QsSettings:
    """What may be chosen by hand; None leaves the choice to the policy.

    Parameters
    ----------
    form : {"words", "mask32", "mask64"}, optional
        "words": a (slot, 32-bit mask) tuple for each 32-bit word that a node touches, any number
        of leaves. "mask32", "mask64": the paper's, one mask per node.
    tree_block : int, optional
        τ.
    threads : int, optional
        Threads per block, a multiple of 32 up to 1,024.
    documents_per_block : {1, 4}, optional
        Documents that one thread block scores together; 1 if there are several outputs.
    """

    form: str | None = None
    tree_block: int | None = None
    threads: int | None = None
    documents_per_block: int | None = None

    def __post_init__(self) -> None:
        if self.form not in (None, *kernels.FORMS):
            raise ValueError(f"form must be one of {', '.join(kernels.FORMS)}, not {self.form!r}")
        allowed = kernels.strides(self.form) if self.form else kernels.DOCUMENTS_PER_BLOCK
        if self.documents_per_block not in (None, *allowed):
            of_form = f" with form {self.form!r}" if self.form else ""
            raise ValueError(
                f"documents_per_block must be one of {allowed}{of_form}, not {self.documents_per_block}"
            )
        if self.threads is not None and self.threads not in range(32, 1025, 32):
            raise ValueError(f"threads must be a multiple of 32 up to 1024, not {self.threads}")
        if self.tree_block is not None and self.tree_block < 1:
            raise ValueError(f"tree_block must be at least 1, not {self.tree_block}")

    def form_for(self, forest: Forest) -> str:
        """The form that runs: "mask32" if every tree fits a word (both forms are then the same), else "words".

        In the machine code for sm_90 a tuple of "words" takes 8 instructions, one of "mask64" 15
        and a loop that may repeat; "words" has some 6 % more tuples at 64 leaves.
        """
        return self.form or ("mask32" if forest.n_leaves <= 32 else "words")


class QsPlacedForest(PlacedForest):
    """A forest laid out for one device and copied there; immutable.

    Parameters
    ----------
    device : GpuDevice
    forest : Forest
    ranges : LeafRanges
    values : LeafValues
    settings : QsSettings
    """

    def __init__(
        self, device: GpuDevice, forest: Forest, ranges: LeafRanges, values: LeafValues, settings: QsSettings
    ) -> None:
        super().__init__(device, forest, values)
        self.settings, self.form = settings, settings.form_for(forest)
        plan = self._plan(forest, ranges)
        self.documents = plan.documents_per_block
        layout = self._lay_out(forest, plan)
        self.block_offsets = layout.block_offsets
        self.n_blocks, self.n_columns = layout.n_blocks, len(layout.columns)
        self.max_slots, self.pivot_dtype = layout.max_slots, _smallest_pivot(layout)
        size = choose_block_size(
            device.attributes,
            slots=self.max_slots,
            word_bytes=self._word_bytes,
            documents=self.documents,
            registers=self._registers(self._scoring(self.documents)[1]),
            threads=settings.threads,
        )
        self.threads, self.shared, self.resident = size.threads, size.shared, size.resident
        self._loaded = False
        with device.active():
            self._upload(layout, forest)

    @property
    def _word_bytes(self) -> int:
        return kernels.FORMS[self.form][2] // 8

    def _plan(self, forest: Forest, ranges: LeafRanges) -> Plan:
        bits = kernels.FORMS[self.form][2]
        words = words_per_tree(forest, bits)
        n_tuples = count_tuples(forest, ranges, bits)
        largest_tree = int(words.max(initial=0))
        together = self.settings.documents_per_block or together_for(
            self.device.attributes, largest_tree, bits // 8, kernels.strides(self.form)
        )
        plan = choose_plan(
            self.device.attributes,
            n_trees=forest.n_trees,
            n_slots=int(words.sum()),
            largest_tree=largest_tree,
            word_bytes=bits // 8,
            model_bytes=n_tuples * (2 + bits // 8) + self.values.value.nbytes,
            documents_per_block=1 if self.n_outputs > 1 else together,
        )
        if plan is None:
            raise DeviceError(
                f"a tree of {forest.n_leaves:,} leaves does not fit the shared memory of "
                f"{self.device.attributes.name} ({self.device.attributes.shared_per_block:,} bytes a block); "
                "use engine='walk_gpu', or score on the CPU with engine='auto'"
            )
        return plan

    def _lay_out(self, forest: Forest, plan: Plan) -> WordLayout:
        bits = kernels.FORMS[self.form][2]
        words = words_per_tree(forest, bits)
        max_trees = self.settings.tree_block or plan.max_trees
        blocks = cut_tree_blocks(words, max_trees, min(plan.max_slots, MAX_SLOTS // self.documents))
        layout = build_word_tuples(forest, blocks, bits)
        for what, n in (("tree blocks", layout.n_blocks), ("tiles of columns", -(-len(layout.columns) // TILE))):
            if n > MAX_GRID:
                raise DeviceError(
                    f"the forest makes {n:,} {what}, more than the {MAX_GRID:,} of one launch; "
                    "use engine='walk_gpu', or score on the CPU with engine='auto'"
                )
        return layout

    def _upload(self, layout: WordLayout, forest: Forest) -> None:
        up, int32 = self.device.upload, self._int32
        self._upload_common(layout.columns)
        tuples = pack_tuples(layout, self.documents)
        self.test_offsets = int32(layout.tests.offsets)
        self.thresholds = {
            "float32": up(padded(layout.threshold32)),
            "float64": up(padded(layout.threshold64)),
        }
        #: The trees' masks: kernel arguments by parameter name.
        self.masks = {
            "runs": int32(tuples.runs),
            "slot": up(padded(tuples.slot)),
            "mask": up(padded(tuples.mask)),
            "blocks": int32(layout.block_offsets),
            "slot_offsets": int32(layout.slot_offsets),
            "leaf_offsets": int32(self.values.offsets),
        }
        self.output_offsets, self.output_trees = (
            int32(array) for array in trees_by_output(layout.block_offsets, forest)
        )

    # -- scoring --------------------------------------------------------------------------

    def score(self, documents: Any, sums: Any, started: bool = False) -> None:
        together = self._documents_together(documents.shape[0])
        for chunk, pivots in self._pivots(documents, together):
            n = chunk.stop - chunk.start
            partial = self.device.empty((max(self.n_blocks, 1), n, self.n_outputs), self.values.sum_dtype)
            if self.n_blocks:
                with self.device.stage("update_scores"):
                    self._update(pivots, n, together, partial)
            self._add_partial(partial, self.n_blocks, sums[chunk], started)

    def leaves(self, documents: Any, out: Any) -> None:
        self._look_up(documents, self.leaf_id, 1, out)

    def per_tree(self, documents: Any, out: Any) -> None:
        self._look_up(documents, self.leaf_value, self.values.value.shape[1], out)

    def _documents_together(self, n: int) -> int:
        """Documents per thread block, for ``n``: one if thread blocks with several would not fill the device.

        Sums have the same bits either way: their order is set by the number of threads.
        """
        filled = self.device.attributes.multiprocessors * self.resident * self.documents
        several = self.settings.documents_per_block is not None or n * self.n_blocks >= filled
        return self.documents if several else 1

    def _pivots(self, documents: Any, together: int) -> Iterator[tuple[slice, Any]]:
        """Each chunk, and the pivots [block, group, column, document of the group] of its documents."""
        documents = self._rounded_once(documents)
        value = self._value_dtype(documents.dtype)
        step = self._chunk_documents(value)
        for start in range(0, documents.shape[0], step):
            chunk = slice(start, min(start + step, documents.shape[0]))
            n = chunk.stop - chunk.start
            values = self.device.empty((max(self.n_columns, 1), n), value)
            n_groups, n_columns = -(-n // together), max(self.n_columns, 1)
            pivots = self.device.empty((max(self.n_blocks, 1), n_groups, n_columns, together), self.pivot_dtype)
            if self.n_blocks and self.n_columns:
                with self.device.stage("transpose"):
                    self._transpose(documents[chunk], values)
                with self.device.stage("find_false_nodes"):
                    self._find(values, n, value, together, pivots)
            yield chunk, pivots

    def _chunk_documents(self, value: np.dtype) -> int:
        per_document = self.n_columns * value.itemsize + self.n_blocks * (
            self.n_columns * self.pivot_dtype.itemsize + self.n_outputs * SUM_BYTES
        )
        fitting = self.device.scratch_bytes // max(per_document, 1) // TILE * TILE
        return min(max(fitting, MIN_CHUNK), MAX_CHUNK)

    def _transpose(self, documents: Any, values: Any) -> None:
        documents, along = as_numbers(documents), by_row(documents)
        document_stride, feature_stride = map(np.int64, documents.strides)
        n = documents.shape[0]
        self._launch_kernel(
            self._compiled("transpose.cu", kernels.transpose(documents.dtype, values.dtype, along)),
            (-(-n // TILE), -(-self.n_columns // TILE)),
            (TILE, 8),
            shared_bytes=TILE * (TILE + 1) * values.dtype.itemsize if along else 0,
            documents=documents,
            document_stride=document_stride,
            feature_stride=feature_stride,
            n_documents=np.int32(n),
            n_columns=np.int32(self.n_columns),
            **self.readings,
            values=values,
        )

    def _find(self, values: Any, n: int, value: np.dtype, together: int, pivots: Any) -> None:
        self._launch_kernel(
            self._compiled("find_false_nodes.cu", kernels.find_false_nodes(value, self.pivot_dtype)),
            (-(-n // TILE), -(-self.n_columns // TILE), self.n_blocks),
            (TILE, 8),
            shared_bytes=TILE * (TILE + 1) * self.pivot_dtype.itemsize,
            values=values,
            n_documents=np.int32(n),
            n_columns=np.int32(self.n_columns),
            test_offsets=self.test_offsets,
            thresholds=self.thresholds[value.name],
            log_together=np.int32(together.bit_length() - 1),
            pivots=pivots,
        )

    def scoring_kernel(self) -> tuple[Kernel, int, int]:
        """The kernel that sums leaf values, its threads per block, its bytes of shared memory per block."""
        return self._kernel(*self._scoring(self.documents)), self.threads, self.shared

    def _scoring(self, together: int) -> tuple[str, str]:
        """File and name of the kernel that sums leaf values."""
        leaf = self.values.value.dtype
        if self.n_outputs > 1:
            return "update_outputs.cu", kernels.update_outputs(self.form, self.pivot_dtype, leaf)
        name = kernels.update_scores(self.form, self.pivot_dtype, leaf, together, self.documents)
        return "update_scores.cu", name

    def _load_kernels(self) -> None:
        """At the first call, load the kernels for few and for many documents, so that any call warms up for both."""
        if not self._loaded:
            for together in sorted({1, self.documents}):
                self._kernel(*self._scoring(together))
            self._loaded = True

    def _update(self, pivots: Any, n: int, together: int, partial: Any) -> None:
        self._load_kernels()
        of_outputs: dict[str, Any] = {}
        if self.n_outputs > 1:
            of_outputs = {
                "width": np.int32(self.values.value.shape[1]),
                "n_outputs": np.int32(self.n_outputs),
                "output_offsets": self.output_offsets,
                "output_trees": self.output_trees,
            }
        kernel = self._kernel(*self._scoring(together))
        self._launch(kernel, n, together, pivots, leaf_value=self.leaf_value, **of_outputs, partial=partial)

    def _look_up(self, documents: Any, table: Any, width: int, out: Any) -> None:
        name = kernels.exit_leaves(self.form, self.pivot_dtype, table.dtype, self.documents)
        for chunk, pivots in self._pivots(documents, 1):
            if not self.n_blocks:
                continue
            self._launch(
                self._kernel("exit_leaves.cu", name),
                chunk.stop - chunk.start,
                1,
                pivots,
                table=table,
                width=np.int32(width),
                n_trees=np.int32(self.n_trees),
                out=out[chunk],
            )

    def _kernel(self, file: str, name: str) -> Kernel:
        """A kernel that may use as much shared memory as its thread blocks need."""
        kernel = self._compiled(file, name)
        if self.shared > SHARED:
            # The device's limit, so that a thread with another program never lowers it before this launch.
            kernel.max_dynamic_shared_size_bytes = self.device.attributes.shared_per_block
        return kernel

    def _launch(self, kernel: Kernel, n: int, together: int, pivots: Any, **arguments: Any) -> None:
        """Launch one thread block for each tree block and ``together`` documents."""
        self._launch_kernel(
            kernel,
            (-(-n // together), self.n_blocks),
            (self.threads,),
            shared_bytes=self.shared,
            pivots=pivots,
            n_documents=np.int32(n),
            n_columns=np.int32(self.n_columns),
            **self.masks,
            **arguments,
        )


def _smallest_pivot(layout: WordLayout) -> np.dtype:
    """The smallest unsigned type that counts a column's tests and has a code left for missing values."""
    most = int(np.diff(layout.tests.offsets, axis=1).max(initial=0))
    return next(np.dtype(t) for t in (np.uint8, np.uint16, np.uint32) if most < np.iinfo(t).max)
