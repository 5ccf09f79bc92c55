"""A bit-sliced forest on one device, and the launches that score documents there.

    foreach chunk of documents whose words fit the L2 cache, as far as they fill the device:
        planes of ranks <- rank_documents(documents)
        foreach tree block:
            rows <- decode_predicates(planes of ranks)
            foreach few of its trees:
                planes of leaf numbers <- steps(rows), or slots(rows)
                sums <- sum_exact(sums, planes), in tree order; of whole numbers sums + sum_fast(planes)

Everything is queued on the current stream; nothing here waits for the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuqs.devices.base import GpuDevice, Kernel
from gpuqs.devices.sources import register_budget
from gpuqs.engines.gpu import kernels
from gpuqs.engines.gpu.occupancy import resident_blocks
from gpuqs.engines.gpu.placed import PlacedForest, as_numbers, by_row, padded, trees_by_output
from gpuqs.forest import Forest
from gpuqs.forks import lazy
from gpuqs.layout.bitslice_gpu import RowLayout
from gpuqs.layout.leaves import LeafValues
from gpuqs.layout.qs_gpu import WARP
from gpuqs.layout.ranks import level_tables
from gpuqs.layout.slots import SlotPrograms
from gpuqs.layout.steps import PAGE, StepPrograms

#: Documents of a tile of one word a lane, and bytes of a row of such a tile.
TILE, ROW_BYTES = 32 * WARP, 4 * WARP
#: Columns that a thread block ranks together, bytes of their documents' values that it holds twice, and the most levels
#: of a column's thresholds that it holds: eight always fit.
COLUMNS, VALUE_BYTES, MOST_STAGED = 8, 2 * 8 * 33 * 16, 9
#: Bytes of dynamic shared memory that a kernel may have without opting in.
SHARED = 48 << 10
#: Warps of a thread block that decodes or evaluates.
WARPS = 4
#: Planes of leaf numbers that `steps` keeps in registers.
LOW_PLANES = 3
#: Thread blocks that a grid may have along its second axis; the kernels' loops do the rest.
MAX_GRID = 65_535
#: Share of the L2 cache that a chunk's words may take, and warps that fill a multiprocessor.
L2_SHARE, FULL = 2, 32
#: Trees whose values `sum_fast` holds at a time, and most outputs that it is for: of more, `sum_exact` has work enough.
GROUP, FAST_OUTPUTS = 64, 16
#: Bytes of leaf numbers of a tile of one word a lane, at most: they stay in the L2 cache until they are summed.
PART_BYTES = 1 << 20


@dataclass(frozen=True)
class BitsliceSettings:
    """What tests choose by hand; None leaves it to the policy.

    Parameters
    ----------
    words : {1, 2}, optional
        Words of documents a lane.
    max_predicates : int, optional
        Predicates of a tree block.
    part_trees : int, optional
        Trees whose leaf numbers are kept at a time.
    warp_trees : int, optional
        Trees that a warp takes one after the other.
    evaluation : {"steps", "slots"}
        As `build_rows` has it.
    """

    words: int | None = None
    max_predicates: int | None = None
    part_trees: int | None = None
    warp_trees: int | None = None
    evaluation: str = "steps"


@dataclass(frozen=True)
class _Part:
    """The planes of leaf numbers of the ``number``-th part of the forest: ``n_trees`` trees from ``first`` on."""

    number: int
    first: int
    n_trees: int
    planes: Any


@dataclass(frozen=True)
class _Slots:
    """Programs on a device; ``n_rows``: rows of words that a warp has in shared memory."""

    nodes: Any
    node_offsets: Any
    n_rows: int
    n_slots: int
    stage, file, page_bytes = "slots", "slots.cu", 0
    kernel = staticmethod(kernels.slots)

    def arguments(self, first: int) -> tuple:
        """What the kernel is told about the trees from ``first`` on."""
        return self.nodes, self.node_offsets[first:], np.int32(self.n_slots)


@dataclass(frozen=True)
class _Steps:
    """As `_Slots`; ``page_bytes``: what a warp has beside the rows, two pages."""

    pages: Any
    tree_pages: Any
    n_rows: int
    depth: int
    n_groups: int
    page_words: int
    stage, file, page_bytes = "steps", "steps.cu", 2 * 4 * PAGE
    kernel = staticmethod(kernels.steps)

    def arguments(self, first: int) -> tuple:
        numbers = (np.int32(self.n_groups), np.int32(self.page_words), np.int32(self.depth))
        return self.pages, self.tree_pages[first:], *numbers


class BitslicedForest(PlacedForest):
    """A forest as rows and programs, copied to a device; immutable.

    Parameters
    ----------
    device : GpuDevice
    forest : Forest
    layout : RowLayout
    values : LeafValues
        As `gpuqs.layout.bitslice.gray_values` puts them.
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
        self.block_segments = layout.block_segments.tolist()
        part_trees = settings.part_trees or max(1, PART_BYTES // (self.n_planes * ROW_BYTES))
        #: Tree block, first tree, trees.
        self.parts = [
            (block, first, min(part_trees, end - first))
            for block, (start, end) in enumerate(zip(layout.block_offsets, layout.block_offsets[1:], strict=False))
            for first in range(start, end, part_trees)
        ]
        self.part_trees = max((n for _, _, n in self.parts), default=1)
        groups = np.append(np.arange(0, self.n_columns, COLUMNS), self.n_columns)
        self.most_planes = int(np.diff(ranks.plane_offsets[groups]).max(initial=0))
        self.most_bits = int(ranks.n_bits.max(initial=0))
        with device.active():
            self._upload(forest, layout)

    def _upload(self, forest: Forest, layout: RowLayout) -> None:
        up, int32, ranks = self.device.upload, self._int32, layout.ranks
        self._upload_common(ranks.columns)
        self.plane_offsets = int32(ranks.plane_offsets)
        self.levels = {}
        for dtype in ("float32", "float64"):
            tables, offsets = level_tables(ranks, dtype)
            self.levels[dtype], self.level_offsets = up(padded(tables)), int32(offsets)
        self.segments = up(padded(layout.segments.view(np.uint32).reshape(-1, 4)))
        self.programs = self._place_programs(layout.programs)
        self.value_offsets = int32(self.values.offsets)
        starts = np.array([first for _, first, _ in self.parts] + [self.n_trees], np.int32)
        of_output, self.output_trees = (up(padded(a.astype(np.int32))) for a in trees_by_output(starts, forest))
        self.output_offsets = of_output

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
        for chunk, words, parts in self._chunks(documents):
            for part in parts:
                add = self._sum_fast if self.fast else self._sum_exact
                add(part, words, sums[chunk], started or part.number > 0)

    def _sum_exact(self, part: _Part, words: int, sums: Any, started: bool) -> None:
        leaf = self.values.value.dtype
        value_bytes = 64 * leaf.itemsize if self.small else 32 * WARP  # of tables, or of the numbers' higher bytes
        with self.device.stage("sum_exact"):
            self.device.kernel("sum_exact.cu", kernels.sum_exact(leaf, self.small, words))(
                (-(-sums.shape[0] // TILE), self.n_outputs),
                (256,),
                (*self._summed(part, sums.shape[0]), np.int32(started), self.start, sums),
                shared_mem=8 * (value_bytes + 32 * WARP),
            )

    def _sum_fast(self, part: _Part, words: int, sums: Any, started: bool) -> None:
        n, n_groups = sums.shape[0], -(-part.n_trees // GROUP)
        partial = self.device.empty((n_groups, n, self.n_outputs), np.int64)
        with self.device.stage("sum_fast"):
            self.device.kernel("sum_fast.cu", kernels.sum_fast(words))(
                (-(-n // TILE), n_groups, self.n_outputs),
                (256,),
                (*self._summed(part, n), partial),
                shared_mem=32 << 10,
            )
        self._add_partial(partial, n_groups, sums, started)

    def _summed(self, part: _Part, n: int) -> tuple:
        """Arguments that say what is summed."""
        width = self.values.value.shape[1]
        return (
            *self._numbers(part, n, np.int32),
            self.leaf_value,
            np.int32(width),
            np.int32(width > 1 or self.n_outputs == 1),
            self.output_offsets[part.number],
            self.output_trees,
        )

    def _numbers(self, part: _Part, n: int, counted: type) -> tuple:
        """Arguments that say where the leaf numbers of ``n`` documents lie, and of which trees they are."""
        return (
            part.planes,
            np.int32(self.n_planes),
            counted(n),
            np.int32(part.first),
            np.int32(part.n_trees),
            self.value_offsets[part.first :],
        )

    def leaves(self, documents: Any, out: Any) -> None:
        self._look_up(documents, self.leaf_id, 1, out)

    def per_tree(self, documents: Any, out: Any) -> None:
        self._look_up(documents, self.leaf_value, self.values.value.shape[1], out)

    def _look_up(self, documents: Any, table: Any, width: int, out: Any) -> None:
        for chunk, words, parts in self._chunks(documents):
            n = chunk.stop - chunk.start
            for part in parts:
                numbers = (*self._numbers(part, n, np.int64), np.int32(WARP * words))
                self._per_element(
                    "look_up_leaves.cu",
                    kernels.look_up_leaves(table.dtype),
                    n * part.n_trees,
                    (*numbers, table, np.int32(width), np.int32(self.n_trees), out[chunk]),
                )

    def _chunks(self, documents: Any) -> Iterator[tuple[slice, int, Iterator[_Part]]]:
        """Chunks of documents, the words a lane of their tiles, and the forest's parts, evaluated for them in turn."""
        documents = self._rounded_once(documents)
        total = documents.shape[0]
        words = self.settings.words or (2 if total > TILE else 1)
        step = self._chunk_tiles(words) * words * TILE
        for start in range(0, total if self.parts else 0, step):
            chunk = slice(start, min(start + step, total))
            yield chunk, words, self._evaluate(documents[chunk], words)

    def _chunk_tiles(self, words: int) -> int:
        """Tiles of a chunk: as many as the L2 cache has room for, or as fill the device; and fit the scratch memory."""
        attributes = self.device.attributes
        tile = (self.n_rank_planes + self.n_rows + self.part_trees * self.n_planes) * ROW_BYTES * words
        sums = -(-self.part_trees // GROUP) * self.n_outputs * TILE * words * 8 if self.fast else 0
        in_cache = attributes.l2_bytes // L2_SHARE // tile
        filling = -(-attributes.multiprocessors * FULL // self.part_trees)
        return max(1, min(max(in_cache, filling), self.device.scratch_bytes // (tile + sums)))

    @lazy
    def _loaded(self) -> list[Kernel]:
        """What tiles of either size need, so that one call of few documents or of many warms up for both."""
        names = [("decode_predicates.cu", kernels.decode_predicates), (self.programs.file, self.programs.kernel)]
        leaf = self.values.value.dtype
        exact = ("sum_exact.cu", lambda words: kernels.sum_exact(leaf, self.small, words))
        names.append(("sum_fast.cu", kernels.sum_fast) if self.fast else exact)
        return [self.device.kernel(file, name(words)) for file, name in names for words in kernels.WORDS]

    def _evaluate(self, documents: Any, words: int) -> Iterator[_Part]:
        _ = self._loaded  # at the first call
        n_tiles = -(-documents.shape[0] // (TILE * words))

        def rows(n: int) -> Any:
            return self.device.empty((n_tiles, max(n, 1), WARP * words), np.uint32)

        ranks, predicates, leaves = rows(self.n_rank_planes), rows(self.n_rows), rows(self.part_trees * self.n_planes)
        if self.n_columns:
            with self.device.stage("rank_documents"):
                self._rank(documents, words, n_tiles, ranks)
        decoded = -1
        for number, (block, first, n_trees) in enumerate(self.parts):
            if block != decoded:
                decoded = block
                with self.device.stage("decode_predicates"):
                    self._decode(block, words, n_tiles, ranks, predicates)
            with self.device.stage(self.programs.stage):
                self._run_programs(first, n_trees, words, n_tiles, predicates, leaves)
            yield _Part(number, first, n_trees, leaves)

    def _run_programs(self, first: int, n_trees: int, words: int, n_tiles: int, predicates: Any, leaves: Any) -> None:
        programs, attributes = self.programs, self.device.attributes
        name, threads = programs.kernel(words), WARP * WARPS
        shared = WARPS * (programs.n_rows * ROW_BYTES * words + programs.page_bytes)
        registers = register_budget(attributes.threads_per_multiprocessor, name)
        resident = attributes.multiprocessors * resident_blocks(attributes, threads, registers, shared)
        # Trees a warp, so that all warps run at once: programs are staged ahead.
        trees = self.settings.warp_trees or -(-n_trees * n_tiles // (WARPS * max(resident, 1)))
        self.device.kernel(programs.file, name)(
            (n_tiles, min(-(-n_trees // (WARPS * trees)), MAX_GRID)),
            (threads,),
            (
                predicates,
                np.int32(self.n_rows),
                *programs.arguments(first),
                np.int32(n_trees),
                np.int32(self.n_planes),
                leaves,
            ),
            shared_mem=shared,
        )

    def _rank(self, documents: Any, words: int, n_tiles: int, ranks: Any) -> None:
        value, along, documents = self._value_dtype(documents.dtype), by_row(documents), as_numbers(documents)
        beside = VALUE_BYTES + self.most_planes * WARP * 4
        room = (SHARED - beside) // (COLUMNS * value.itemsize)  # thresholds of each column: whole levels
        n_staged = (1 << min(self.most_bits, MOST_STAGED, (room + 1).bit_length() - 1)) - 1
        self.device.kernel("rank_documents.cu", kernels.rank_documents(documents.dtype, value, along))(
            (n_tiles * words * -(-self.n_columns // COLUMNS),),
            (WARP * COLUMNS,),
            (
                documents,
                *(np.int64(stride) for stride in documents.strides),
                np.int32(documents.shape[0]),
                np.int32(self.n_columns),
                *self.readings,
                self.level_offsets,
                self.levels[value.name],
                self.plane_offsets,
                np.int32(n_staged),
                np.int32(WARP * words),
                ranks,
            ),
            shared_mem=beside + COLUMNS * n_staged * value.itemsize,
        )

    def _decode(self, block: int, words: int, n_tiles: int, ranks: Any, predicates: Any) -> None:
        first, end = self.block_segments[block : block + 2]
        self.device.kernel("decode_predicates.cu", kernels.decode_predicates(words))(
            (n_tiles, min(max(-(-(end - first) // WARPS), 1), MAX_GRID)),
            (WARP * WARPS,),
            (
                ranks,
                np.int32(max(self.n_rank_planes, 1)),
                self.segments[first:],
                np.int32(end - first),
                np.int32(self.n_rows),
                predicates,
            ),
        )
