"""`rankwalk`: branch-free walks over ranks of one byte, for few documents at a time."""

from __future__ import annotations

from typing import ClassVar

from gpuqs import cpu_fallback
from gpuqs.engines.cpu import CpuEngine, CpuProgram, bind
from gpuqs.forest import Forest
from gpuqs.layout.columns import find_columns
from gpuqs.layout.leaves import leaf_values
from gpuqs.layout.rank_nodes import MAX_ENTRIES, MAX_LEAVES, build_rank_walk, most_entries
from gpuqs.layout.ranks import MAX_THRESHOLDS, RankTables, build_ranks, most_thresholds


class RankWalk(CpuEngine):
    """Sixteen trees side by side, all walked as far as the deepest of them goes."""

    name: ClassVar[str] = "rankwalk"
    summary: ClassVar[str] = "branch-free walks over ranks of one byte, for few documents"

    def supports(self, forest: Forest) -> str | None:
        if forest.n_leaves > MAX_LEAVES:
            return f"a tree has {forest.n_leaves} leaves; walks by rank hold {MAX_LEAVES}"
        columns = find_columns(forest)
        if (most := most_thresholds(columns)) > MAX_THRESHOLDS:
            return f"a feature has {most} distinct thresholds; ranks hold {MAX_THRESHOLDS}"
        if (most := most_entries(columns)) > MAX_ENTRIES:
            return f"its columns take up to {most} bytes of rank; nodes tell {MAX_ENTRIES} apart"
        return None

    def prepare(self, forest: Forest, precision: str, ranks: RankTables | None = None) -> CpuProgram:
        layout = build_rank_walk(forest, ranks or build_ranks(forest))
        scorer = cpu_fallback.RankWalk(
            layout, forest.n_features, single=forest.input_dtype == "float32", isa=cpu_fallback.isa()
        )
        return bind(leaf_values(forest, layout.ranges, precision), scorer)
