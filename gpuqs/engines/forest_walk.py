"""Walks over a forest's own arrays: a program that is quick to make, for a call before the forest is laid out."""

from __future__ import annotations

from typing import Final

from gpuqs import cpu_fallback
from gpuqs.cpu_fallback import Machine
from gpuqs.engines.cpu import CpuProgram
from gpuqs.forest import Forest
from gpuqs.layout.columns import find_columns
from gpuqs.layout.leaves import leaf_values

#: Upper limit of the nodes of a forest walked this way: the second call lays it out, and must not take too long (for
#: so many, some 0.1 s).
MAX_NODES: Final = 1 << 21
#: Nanoseconds per node or leaf that a document visits, from cold caches; at least for laying a forest out, once and per
#: node (1 to 100 trees of 31 leaves on an AMD EPYC, Zen 4; 10 to 20,000 trees of 64 leaves on an Intel server).
VISIT, LAYING_OUT, LAID_OUT_NODE = 9.0, 300e3, 50.0
#: A first call may take this share of the time for laying out, which the second call still has to do.
SHARE = 0.25


def comes_first(forest: Forest, n_documents: int) -> bool:
    """Whether scoring ``n_documents`` this way takes much less time than laying the forest out for an engine."""
    visits = n_documents * (int(forest.tree_depth.sum()) + forest.n_trees)
    return forest.n_nodes <= MAX_NODES and visits * VISIT < SHARE * (LAYING_OUT + forest.n_nodes * LAID_OUT_NODE)


def forest_walk(forest: Forest, machine: Machine) -> CpuProgram:
    """A program with exact sums; its leaves are numbered as in the forest."""
    values = leaf_values(forest, None, "exact")
    single = forest.input_dtype == "float32"
    scorer = cpu_fallback.ForestWalk(
        forest, find_columns(forest), forest.n_features, single=single, document_block=64, isa=machine.isa
    )
    return CpuProgram(values, scorer, cpu_fallback.Values(values))
