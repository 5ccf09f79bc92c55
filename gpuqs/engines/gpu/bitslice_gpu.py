"""`bitslice_gpu`: bit slices on GPUs, one bit per document, a boolean program per tree."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar, cast

import numpy as np

from gpuqs.devices.base import Device, GpuDevice
from gpuqs.engines.gpu.bitsliced import MAX_GRID, BitslicedForest, BitsliceSettings
from gpuqs.engines.gpu.engine import GpuEngine, GpuProgram
from gpuqs.engines.parameters import NONE_GIVEN, Params
from gpuqs.forest import Forest
from gpuqs.layout.bitslice import MAX_COLUMNS, MAX_PREDICATES, gray_values
from gpuqs.layout.bitslice_gpu import MAX_LEAVES, build_rows
from gpuqs.layout.category_tables import MAX_BYTES, table_bytes
from gpuqs.layout.columns import find_columns
from gpuqs.layout.leaves import leaf_values
from gpuqs.layout.ranks import MAX_THRESHOLDS, RankTables, build_ranks, most_thresholds
from gpuqs.outputs import class_labels


class BitsliceGpu(GpuEngine):
    """The bit-sliced engine on a GPU: the bits of the CPU's, in both precisions.

    Parameters
    ----------
    settings : BitsliceSettings, optional
    """

    name: ClassVar[str] = "bitslice_gpu"
    summary: ClassVar[str] = "bit-sliced on a GPU: 32 documents a word, a boolean program per tree"

    def __init__(self, settings: BitsliceSettings | None = None) -> None:
        self._settings = settings or BitsliceSettings()

    def supports(self, forest: Forest) -> str | None:
        if forest.n_leaves > MAX_LEAVES:
            return f"a tree has {forest.n_leaves:,} leaves; programs hold {MAX_LEAVES:,}"
        columns = find_columns(forest)
        if len(columns) > MAX_COLUMNS:
            return f"the trees test {len(columns):,} columns; programs hold {MAX_COLUMNS:,}"
        if (size := table_bytes(columns)) > MAX_BYTES:
            return f"its category sets take tables of {size >> 20} MiB; number the categories densely from 0"
        if (most := most_thresholds(columns)) > MAX_THRESHOLDS:
            return f"a feature has {most:,} distinct thresholds; ranks hold {MAX_THRESHOLDS:,}"
        if forest.n_outputs > MAX_GRID:
            return f"it has {forest.n_outputs:,} outputs, more than the {MAX_GRID:,} of one launch"
        padded = 2 * max(len(forest.leaf_value), 64 * forest.n_trees) * forest.leaf_value.shape[1]
        if max(padded, forest.category_words.size) >= 1 << 31:
            return "it has more leaf values or words of category sets than 32-bit indices count"
        return None

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
        tables = (ranks or partial(build_ranks, forest))()
        layout = build_rows(forest, tables, self._settings.max_predicates or MAX_PREDICATES)
        values = leaf_values(forest, layout.position, precision)
        values = gray_values(values, np.diff(forest.leaf_offsets), layout.oblivious)
        placed = BitslicedForest(cast(GpuDevice, device), forest, layout, values, self._settings)
        return GpuProgram(values, placed, class_labels(forest))
