"""A forest of `bitslice_gpu` on one device, and the launches that score documents there.

    foreach batch of documents whose scratch memory is bounded:
        planes of ranks <- rank_documents(documents)
        foreach part of the forest, usually all of it:
            rows <- decode_predicates(planes of ranks), once for the parts of a tree block
            planes of leaf numbers <- steps(rows), or slots(rows): tile after tile, so that the L2 cache holds its rows
            sums <- sum_exact(sums, planes), or sum_few, in tree order; for integers, sums + sum_fast(planes)

Everything is queued on the current stream; nothing here waits for the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from gpuqs.devices.base import GpuDevice
from gpuqs.engines.gpu import kernels
from gpuqs.engines.gpu.occupancy import resident_blocks
from gpuqs.engines.gpu.placed import MAX_GRID, SHARED, PlacedForest, as_numbers, by_row, padded, trees_by_output
from gpuqs.forest import Forest
from gpuqs.layout.bitslice_gpu import RowLayout
from gpuqs.layout.leaves import LeafValues
from gpuqs.layout.qs_gpu import WARP
from gpuqs.layout.ranks import level_tables
from gpuqs.layout.slots import SlotPrograms
from gpuqs.layout.steps import PAGE, StepPrograms

#: Documents of a tile with one word per lane.
TILE = 32 * WARP
#: Bytes of a row of such a tile.
ROW_BYTES = 4 * WARP
#: Columns that a thread block of `rank_documents` ranks together.
COLUMNS = 8
#: Bytes of its document values in shared memory: two tiles of 16-byte lines, with one line of padding per column.
VALUE_BYTES = 2 * COLUMNS * (WARP + 1) * 16
#: Fewest words of documents that it ranks: one batch of its loop.
MIN_WORDS = 4
#: Upper limit of the levels of a column's thresholds that it holds in shared memory; eight always fit.
MAX_STAGED = 9
#: Warps of a thread block that decodes or evaluates.
WARPS = 4
#: Planes of leaf numbers that `steps` keeps in registers.
LOW_PLANES = 3
#: Tiles, with two words per lane, that memory for leaf numbers is planned for: enough for sums to fill a device.
BATCH_TILES = 16
#: Documents of a thread block of `sum_exact`, and trees that it adds at a time, with one document per thread. With D
#: documents per thread there are D times as many documents, and 1/D of the trees.
SUMMED, ADDED = 256, 32
#: Wavefronts of shared memory of `sum_exact` for a tree and 1,024 documents, with doubles, by D (docs/gpu.md).
WAVEFRONTS = {1: 182, 4: 146}
#: Bytes of the leaf numbers of `SUMMED` documents in `ADDED` trees, at one byte each.
NUMBERS = SUMMED * ADDED
#: Documents and threads of a thread block of `sum_few`, and what it holds of the trees that it adds at a time: leaf
#: values, and bytes of leaf numbers with their padding.
FEW, FEW_THREADS, FEW_VALUES, FEW_NUMBERS = 128, 640, 32 * 64, 128 * 48
#: Trees that a thread block of `sum_fast` may add: with more, there are fewer partial sums to add up.
GROUPS = (128, 64)
#: Upper limit of outputs for `sum_fast`: with more outputs, `sum_exact` has enough thread blocks.
FAST_OUTPUTS = 16


@dataclass(frozen=True)
class BitsliceSettings:
    """What tests choose by hand; None leaves the choice to the policy.

    Parameters
    ----------
    words : {1, 2}, optional
        Words of documents per lane.
    max_predicates : int, optional
        Upper limit of predicates in a tree block.
    part_trees : int, optional
        Trees whose leaf numbers are kept at a time.
    warp_trees : int, optional
        Trees that a warp evaluates one after another.
    summed : {4, 1}, optional
        Documents per thread of `sum_exact`, if the leaf type allows it; `sum_few` is not used then.
    evaluation : {"steps", "slots"}
        As in `build_rows`.
    """

    words: int | None = None
    max_predicates: int | None = None
    part_trees: int | None = None
    warp_trees: int | None = None
    summed: int | None = None
    evaluation: str = "steps"


@dataclass(frozen=True)
class _Part:
    """Trees of one tree block whose leaf numbers are kept at a time.

    ``programs`` and the offsets are kernel arguments for these trees: views of the forest's arrays, made once.
    """

    block: int
    first: int
    n_trees: int
    programs: dict[str, Any]
    value_offsets: Any
    output_offsets: Any


@dataclass(frozen=True)
class _Slots:
    """Programs on a device; ``n_rows``: rows of words that a warp has in shared memory."""

    nodes: Any
    node_offsets: Any
    n_rows: int
    n_slots: int
    stage, file, page_bytes = "slots", "slots.cu", 0
    kernel = staticmethod(kernels.slots)

    def arguments(self, first: int) -> dict[str, Any]:
        """Kernel arguments for the trees from ``first`` on, by parameter name."""
        return {"nodes": self.nodes, "node_offsets": self.node_offsets[first:], "n_slots": np.int32(self.n_slots)}


@dataclass(frozen=True)
class _Steps:
    """As `_Slots`; ``page_bytes``: shared memory of a warp besides the rows, two pages."""

    pages: Any
    tree_pages: Any
    n_rows: int
    depth: int
    n_groups: int
    page_words: int
    stage, file, page_bytes = "steps", "steps.cu", 2 * 4 * PAGE
    kernel = staticmethod(kernels.steps)

    def arguments(self, first: int) -> dict[str, Any]:
        return {
            "pages": self.pages,
            "first_page": self.tree_pages[first:],
            "n_groups": np.int32(self.n_groups),
            "page_words": np.int32(self.page_words),
            "depth": np.int32(self.depth),
        }


class BitslicePlacedForest(PlacedForest):
    """A forest as rows and programs, copied to a device; immutable.

    Parameters
    ----------
    device : GpuDevice
    forest : Forest
    layout : RowLayout
    values : LeafValues
        In the order of `gpuqs.layout.bitslice.gray_values`.
    settings : BitsliceSettings
    """

    def __init__(
        self, device: GpuDevice, forest: Forest, layout: RowLayout, values: LeafValues, settings: BitsliceSettings
    ) -> None:
        super().__init__(device, forest, values)
        self.settings, ranks = settings, layout.ranks
        self.n_columns, self.n_rank_planes = len(ranks.columns), int(ranks.plane_offsets[-1])
        self.n_rows, self.n_planes = layout.n_rows, layout.n_planes
        self.small = forest.n_leaves <= 64
        self.fast = self.small and values.step > 0 and self.n_outputs <= FAST_OUTPUTS
        allowed = kernels.summed(values.value.dtype, self.small)
        #: Whether `sum_few` adds up the leaf values of few documents.
        self.sums_few = self.small and values.value.dtype.kind == "f" and settings.summed is None
        #: Documents per thread that `sum_exact` may have, most first.
        self.summed = (settings.summed,) if settings.summed in allowed else allowed
        enough = device.scratch_bytes // (BATCH_TILES * ROW_BYTES * max(kernels.WORDS))
        kept = (enough - self.n_rank_planes - self.n_rows) // self.n_planes
        # If memory is scarce, batches are small, but a part has at least about as many planes as there are rows.
        part_trees = settings.part_trees or max(1, kept, self.n_rows // self.n_planes)
        parts = [
            (block, first, min(part_trees, end - first))
            for block, (start, end) in enumerate(pairwise(layout.block_offsets.tolist()))
            for first in range(start, end, part_trees)
        ]
        self.part_trees = max((n for _, _, n in parts), default=1)
        groups = np.append(np.arange(0, self.n_columns, COLUMNS), self.n_columns)
        self.max_planes = int(np.diff(ranks.plane_offsets[groups]).max(initial=0))
        self.max_bits = int(ranks.n_bits.max(initial=0))
        self._loaded = False
        with device.active():
            self._upload(forest, layout)
            self.parts = self._place_parts(parts, forest)

    def _upload(self, forest: Forest, layout: RowLayout) -> None:
        up, int32, ranks = self.device.upload, self._int32, layout.ranks
        self._upload_common(ranks.columns)
        self.plane_offsets = int32(ranks.plane_offsets)
        self.levels = {}
        for dtype in ("float32", "float64"):
            tables, offsets = level_tables(ranks, dtype)
            self.levels[dtype], self.level_offsets = up(padded(tables)), int32(offsets)
        segments, bounds = up(padded(layout.segments.view(np.uint32).reshape(-1, 4))), layout.block_segments.tolist()
        #: The segments of each tree block, and their number.
        self.segments = [(segments[first:], end - first) for first, end in pairwise(bounds)]
        self.programs = self._place_programs(layout.programs)

    def _place_parts(self, parts: list[tuple[int, int, int]], forest: Forest) -> list[_Part]:
        """``parts``: tree block, first tree and number of trees of each."""
        up, value_offsets = self.device.upload, self._int32(self.values.offsets)
        starts = np.array([first for _, first, _ in parts] + [self.n_trees], np.int32)
        of_output, self.output_trees = (up(padded(a.astype(np.int32))) for a in trees_by_output(starts, forest))
        return [
            _Part(block, first, n, self.programs.arguments(first), value_offsets[first:], of_output[number])
            for number, (block, first, n) in enumerate(parts)
        ]

    def _place_programs(self, programs: StepPrograms | SlotPrograms) -> _Steps | _Slots:
        up, int32 = self.device.upload, self._int32
        if isinstance(programs, SlotPrograms):
            nodes = up(padded(programs.nodes.view(np.uint64)))
            return _Slots(nodes, int32(programs.node_offsets), programs.n_slots + self.n_planes, programs.n_slots)
        pages, n_rows = programs.pages, programs.depth + max(self.n_planes - LOW_PLANES, 0) + 1
        return _Steps(
            up(padded(pages)), int32(programs.tree_pages), n_rows, programs.depth, programs.n_groups, pages.shape[1]
        )

    # -- scoring --------------------------------------------------------------------------

    def score(self, documents: Any, sums: Any, started: bool = False) -> None:
        if not self.parts and not started and documents.shape[0]:
            sums[...] = self.start
        add = self._sum_fast if self.fast else self._sum_exact
        for batch, words, part, planes in self._evaluated(documents):
            add(part, planes, words, sums[batch], started or part.first > 0)

    def _sum_exact(self, part: _Part, planes: Any, words: int, sums: Any, started: bool) -> None:
        leaf, n = self.values.value.dtype, sums.shape[0]
        arguments = {**self._summed(part, planes, n), "started": np.int32(started), "start": self.start, "sums": sums}
        if self._takes_few(n):
            with self.device.stage("sum_few"):
                self._launch_kernel(
                    self._compiled("sum_few.cu", kernels.sum_few(leaf, words)),
                    (-(-n // FEW), self.n_outputs),
                    (FEW_THREADS,),
                    shared_bytes=2 * (FEW_VALUES * leaf.itemsize + FEW_NUMBERS),
                    **arguments,
                )
            return
        each = min(self.summed, key=lambda d: self._busiest(-(-n // (SUMMED * d))) * d * WAVEFRONTS[d])
        # For the trees added at a time: one-byte leaf numbers and values, or two-byte numbers and where values begin.
        added = NUMBERS + ADDED // each * 64 * leaf.itemsize if self.small else 2 * NUMBERS + ADDED * 8
        with self.device.stage("sum_exact"):
            self._launch_kernel(
                self._compiled("sum_exact.cu", kernels.sum_exact(leaf, self.small, words, each)),
                (-(-n // (SUMMED * each)), self.n_outputs),
                (256,),
                shared_bytes=2 * added,
                **arguments,
            )

    def _takes_few(self, n: int) -> bool:
        """Whether to use `sum_few`: if no multiprocessor would get more than one of its thread blocks."""
        return self.sums_few and -(-n // FEW) * self.n_outputs <= self.device.attributes.multiprocessors

    def _busiest(self, n_blocks: int) -> int:
        """Thread blocks of the busiest multiprocessor, if each output has ``n_blocks``."""
        return -(-n_blocks * self.n_outputs // self.device.attributes.multiprocessors)

    def _sum_fast(self, part: _Part, planes: Any, words: int, sums: Any, started: bool) -> None:
        n, n_tiles = sums.shape[0], -(-sums.shape[0] // TILE)
        enough = 2 * self.device.attributes.multiprocessors
        group = next((g for g in GROUPS if n_tiles * -(-part.n_trees // g) * self.n_outputs >= enough), min(GROUPS))
        n_groups = -(-part.n_trees // group)
        partial = self.device.empty((n_groups, n, self.n_outputs), np.int64)
        with self.device.stage("sum_fast"):
            self._launch_kernel(
                self._compiled("sum_fast.cu", kernels.sum_fast(words)),
                (n_tiles, n_groups, self.n_outputs),
                (256,),
                shared_bytes=32 << 10,
                **self._summed(part, planes, n),
                group=np.int32(group),
                partial=partial,
            )
        self._add_partial(partial, n_groups, sums, started)

    def _summed(self, part: _Part, planes: Any, n: int) -> dict[str, Any]:
        """Arguments that say what is summed."""
        width = self.values.value.shape[1]
        return {
            **self._numbers(part, planes, n, np.int32),
            "value": self.leaf_value,
            "width": np.int32(width),
            "every_tree": np.int32(width > 1 or self.n_outputs == 1),
            "output_offsets": part.output_offsets,
            "output_trees": self.output_trees,
        }

    def _numbers(self, part: _Part, planes: Any, n: int, counted: type) -> dict[str, Any]:
        """Arguments that say where the leaf numbers of ``n`` documents lie, and to which trees they belong."""
        return {
            "planes": planes,
            "n_planes": np.int32(self.n_planes),
            "n_documents": counted(n),
            "first_tree": np.int32(part.first),
            "n_trees": np.int32(part.n_trees),
            "offsets": part.value_offsets,
        }

    def leaves(self, documents: Any, out: Any) -> None:
        self._look_up(documents, self.leaf_id, 1, out)

    def per_tree(self, documents: Any, out: Any) -> None:
        self._look_up(documents, self.leaf_value, self.values.value.shape[1], out)

    def _look_up(self, documents: Any, table: Any, width: int, out: Any) -> None:
        for batch, words, part, planes in self._evaluated(documents):
            n = batch.stop - batch.start
            self._per_element(
                "look_up_leaves.cu",
                kernels.look_up_leaves(table.dtype),
                n * part.n_trees,
                **self._numbers(part, planes, n, np.int64),
                words=np.int32(WARP * words),
                table=table,
                width=np.int32(width),
                all_trees=np.int32(self.n_trees),
                out=out[batch],
            )

    def _evaluated(self, documents: Any) -> Iterator[tuple[slice, int, _Part, Any]]:
        """For each batch and part of the forest: the batch, words per lane of its tiles, the part, its leaf numbers."""
        total = documents.shape[0] if self.parts else 0
        words = self.settings.words or (2 if total > TILE else 1)
        rows = TILE * words
        most = self._batch_tiles(-(-total // rows), words)
        ranks, predicates, leaves = (  # reused by all batches
            self.device.empty((most, max(n, 1), WARP * words), np.uint32)
            for n in (self.n_rank_planes, self.n_rows, self.part_trees * self.n_planes)
        )
        for start in range(0, total, most * rows):
            batch = slice(start, min(start + most * rows, total))
            n_tiles = -(-(batch.stop - start) // rows)
            if self.n_columns:
                with self.device.stage("rank_documents"):
                    self._rank(self._rounded_once(documents[batch]), words, n_tiles, ranks)
            self._load_kernels()
            decoded = None
            for part in self.parts:
                if part.block != decoded:
                    with self.device.stage("decode_predicates"):
                        self._decode(part.block, words, n_tiles, ranks, predicates)
                    decoded = part.block
                with self.device.stage(self.programs.stage):
                    self._run_programs(part, words, n_tiles, predicates, leaves)
                yield batch, words, part, leaves

    def _batch_tiles(self, total: int, words: int) -> int:
        """Tiles of a batch: even shares of ``total`` whose words fit the scratch memory."""
        tile = (self.n_rank_planes + self.n_rows + self.part_trees * self.n_planes) * ROW_BYTES * words
        tile += -(-self.part_trees // min(GROUPS)) * self.n_outputs * TILE * words * 8 if self.fast else 0
        most = max(1, min(self.device.scratch_bytes // tile, MAX_GRID))
        return max(1, -(-total // max(1, -(-total // most))))

    def _load_kernels(self) -> None:
        """At the first call, load the kernels for tiles of both sizes, so that any call warms up for both."""
        if self._loaded:
            return
        leaf = self.values.value.dtype
        for words in kernels.WORDS:
            self._compiled("decode_predicates.cu", kernels.decode_predicates(words))
            self._compiled(self.programs.file, self.programs.kernel(words))
            if self.fast:
                self._compiled("sum_fast.cu", kernels.sum_fast(words))
            else:
                for each in self.summed:
                    self._compiled("sum_exact.cu", kernels.sum_exact(leaf, self.small, words, each))
                if self.sums_few:
                    self._compiled("sum_few.cu", kernels.sum_few(leaf, words))
        self._loaded = True

    def _run_programs(self, part: _Part, words: int, n_tiles: int, predicates: Any, leaves: Any) -> None:
        programs, attributes = self.programs, self.device.attributes
        name, threads = programs.kernel(words), WARP * WARPS
        shared = WARPS * (programs.n_rows * ROW_BYTES * words + programs.page_bytes)
        resident = attributes.multiprocessors * resident_blocks(attributes, threads, self._registers(name), shared)
        # With two trees per warp, the second's program is staged ahead. This is worth it only if one tile still fills
        # the device: the L2 cache holds the rows of only a few tiles.
        trees = self.settings.warp_trees or (2 if part.n_trees > 2 * WARPS * resident else 1)
        self._launch_kernel(
            self._compiled(programs.file, name),
            (-(-part.n_trees // (WARPS * trees)), n_tiles),
            (threads,),
            shared_bytes=shared,
            rows=predicates,
            n_rows=np.int32(self.n_rows),
            **part.programs,
            n_trees=np.int32(part.n_trees),
            n_planes=np.int32(self.n_planes),
            planes=leaves,
        )

    def _rank(self, documents: Any, words: int, n_tiles: int, ranks: Any) -> None:
        value, along, documents = self._value_dtype(documents.dtype), by_row(documents), as_numbers(documents)
        beside = VALUE_BYTES + self.max_planes * WARP * 4
        room = (SHARED - beside) // (COLUMNS * value.itemsize)  # thresholds that fit for each column
        n_staged = (1 << min(self.max_bits, MAX_STAGED, (room + 1).bit_length() - 1)) - 1
        n_groups, block_words = -(-self.n_columns // COLUMNS), self._block_words(n_tiles * words)
        document_stride, feature_stride = map(np.int64, documents.strides)
        self._launch_kernel(
            self._compiled("rank_documents.cu", kernels.rank_documents(documents.dtype, value, along)),
            (n_tiles * words * (WARP // block_words) * n_groups,),
            (WARP * COLUMNS,),
            shared_bytes=beside + COLUMNS * n_staged * value.itemsize,
            documents=documents,
            document_stride=document_stride,
            feature_stride=feature_stride,
            n_documents=np.int32(documents.shape[0]),
            n_columns=np.int32(self.n_columns),
            **self.readings,
            level_offsets=self.level_offsets,
            levels=self.levels[value.name],
            plane_offsets=self.plane_offsets,
            n_staged=np.int32(n_staged),
            block_words=np.int32(block_words),
            words=np.int32(WARP * words),
            planes=ranks,
        )

    def _block_words(self, n_tiles: int) -> int:
        """Words of documents that a thread block ranks: 32, or fewer if there would be too few thread blocks."""
        block_words, enough = WARP, 2 * self.device.attributes.multiprocessors
        n_blocks = n_tiles * -(-self.n_columns // COLUMNS)
        while block_words > MIN_WORDS and n_blocks < enough:
            block_words, n_blocks = block_words // 2, 2 * n_blocks
        return block_words

    def _decode(self, block: int, words: int, n_tiles: int, ranks: Any, predicates: Any) -> None:
        segments, n = self.segments[block]
        self._launch_kernel(
            self._compiled("decode_predicates.cu", kernels.decode_predicates(words)),
            (max(-(-n // WARPS), 1), n_tiles),
            (WARP * WARPS,),
            planes=ranks,
            n_planes=np.int32(max(self.n_rank_planes, 1)),
            segments=segments,
            n_segments=np.int32(n),
            n_rows=np.int32(self.n_rows),
            rows=predicates,
        )
