"""What engines are predicted to cost, so that "auto" picks one and `Model.explain` can say why.

The figures were measured on one Zen 4 core with LambdaMART models of 1,000 trees; other processors
scale them much alike, which is all that a choice between engines needs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gpuqs import cpu_fallback
from gpuqs.forest import CATEGORICAL, Forest

#: Microseconds of a call before any document is scored.
CALL = 6.5
#: Nanoseconds per node and document.
QS_NODE = 0.23
VQS_NODE = {True: 0.08, False: 0.105}  # up to 32 leaves, more
#: Nanoseconds per node that a walk visits; twice that where too few documents keep the walks apart.
WALK_VISIT = 1.4
#: Nanoseconds per step of a walk by rank, and per column to code a document.
RANKWALK_STEP, RANKWALK_COLUMN = 0.57, 8.0
#: Nanoseconds per node and word of so many documents: interpreted programs, compiled ones.
BITSLICE_WORD = {False: {128: 1.9, 256: 2.6, 512: 4.3}, True: {128: 1.4, 256: 2.1, 512: 3.2}}
#: Nanoseconds per node and document of the NumPy reference.
REFERENCE_NODE = 20.0
#: Nanoseconds per category set and document: laid out by column, and by tables.
CATEGORY_SET, CATEGORY_SET_IN_TABLE = 5.0, 0.07
#: The vector engines without wide registers are slower than the figures above. NEON, which nobody has timed yet,
#: has registers as wide as SSE4.2.
NARROW = {"portable": 3.5, "sse4.2": 1.9, "neon": 1.9}


def predicted_microseconds(engine: str, forest: Forest, n_documents: int) -> float:
    """Predicted time to score ``n_documents`` with an engine on one thread, in microseconds."""
    nodes = max(forest.n_nodes, 1) * 1e-3
    sets = n_documents * int(np.count_nonzero(forest.routing & CATEGORICAL)) * 1e-3
    if engine != "reference":
        per_set = CATEGORY_SET_IN_TABLE if engine == "bitslice" else CATEGORY_SET
        return sets * per_set + _without_categories(engine, forest, n_documents, nodes)
    return CALL + n_documents * nodes * REFERENCE_NODE + forest.n_nodes * 5


def _without_categories(engine: str, forest: Forest, n_documents: int, nodes: float) -> float:
    isa = cpu_fallback.instruction_set()
    isa = cpu_fallback.instruction_set()
    if engine == "qs":
        return CALL + n_documents * nodes * QS_NODE
    if engine == "vqs":
        rows = math.ceil(n_documents / isa.lanes) * isa.lanes
        return CALL + rows * nodes * VQS_NODE[forest.n_leaves <= 32] * NARROW.get(isa.name, 1.0)
    if engine == "walk":
        visits = forest.n_trees * (1.5 * math.log2(max(forest.n_leaves, 2)) + 1) * 1e-3
        return CALL + n_documents * visits * WALK_VISIT * (2 if n_documents < 16 else 1)
    if engine == "rankwalk":
        deepest = np.zeros(forest.n_trees, np.int64)
        np.maximum.at(deepest, forest.node_tree, forest.depth + 1)
        steps, columns = int(deepest.sum()) * 1e-3, forest.n_features * 1e-3
        return CALL + n_documents * (steps * RANKWALK_STEP + columns * RANKWALK_COLUMN)
    widest = isa.widest_word
    whole, rest = divmod(n_documents, widest)
    costs = BITSLICE_WORD[cpu_fallback.compiles_programs()]
    word = next((w for w in costs if w >= rest), widest) if not whole else widest
    return CALL + (whole + (rest > 0)) * nodes * costs[word]


@dataclass(frozen=True)
class Choice:
    """One engine's row in an `Explanation`."""

    engine: str
    summary: str
    microseconds: float | None
    reason: str | None


@dataclass(frozen=True)
class Explanation:
    """Which engine scores so many documents, and what the others were predicted to cost.

    Printing it gives a table. ``choices`` has one row per engine; ``reason`` is set where an engine
    cannot run the model.
    """

    engine: str
    n_documents: int
    isa: str
    choices: tuple[Choice, ...]

    def __str__(self) -> str:
        lines = [f"{self.n_documents:,} documents: {self.engine} ({self.isa}, predicted for one thread)"]
        for choice in self.choices:
            mark = "->" if choice.engine == self.engine else "  "
            if choice.reason is not None:
                cost = f"cannot: {choice.reason}"
            else:
                each = choice.microseconds / max(self.n_documents, 1)  # type: ignore[operator]
                cost = f"{each:12,.3f} us a document   {choice.summary}"
            lines.append(f"{mark} {choice.engine:<10} {cost}")
        return "\n".join(lines)

    __repr__ = __str__
