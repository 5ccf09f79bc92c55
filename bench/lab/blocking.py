"""Paper 004's range cases as the tables run them: the blocking orders, with d and s from gpuqs's cost model."""

from __future__ import annotations

from collections.abc import Iterable

from datasets import SHAPES

from gpuqs.tuning import blocking
from gpuqs.tuning.machine import hierarchy
from lab.plan import Given, Point

#: Bytes of a node or leaf, as scorers/struct_plus.hpp asserts.
NODE = 32
#: Bytes of one feature value of a document.
VALUE = 4
#: The note on a table's page about these sizes.
PREDICTED = f"The cost model that gives d and s was told of {NODE} bytes a node, which is what the scorers hold."
_CASES = {case.name: case for case in blocking.CASES}
CASES = tuple(_CASES)


def choices(name: str, point: Point, shares: Iterable[float] = (1.0, 0.5)) -> tuple[Given, ...]:
    """The d and s that guided sampling tries for a case, for each share µ of its bytes that a block uses."""
    case, model = _CASES[name], point.model
    work = blocking.Work(
        vector_bytes=SHAPES[model.shape].n_features * VALUE,
        scorer_bytes=(2 * model.leaves - 1) * NODE,
        n=point.documents,
        m=model.trees,
    )
    tried: list[Given] = []
    for share in shares:
        d, s = blocking.block_sizes(case, work, hierarchy(), share)
        given = {"d": int(d)} if case.d_level else {}
        given |= {"s": int(s)} if case.s_level else {}
        if given not in tried:
            tried.append(given)
    return tuple(tried)


def order_of(name: str) -> str:
    """The system that runs a case."""
    return _CASES[name].loop
