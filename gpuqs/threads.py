"""How many threads a call is worth, and how many it gets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gpuqs import cpu_fallback
from gpuqs.forest import Forest

#: Least microseconds of work for each thread of a call: one that sleeps takes some 40 to start.
WORK_EACH: Final = 60.0
#: The total work of several threads may be at most this many times that of one: small shares of a batch are scored less
#: efficiently, and other Python threads may need the processors, too. For long calls latency matters more.
MAX_WORK: Final = 4 / 3
MAX_WORK_OF_LONG: Final = 2.0
#: Calls that take one thread this many microseconds or more are long.
LONG: Final = 1000.0
#: Least documents of a thread, where documents are divided: engines process up to this many together.
MIN_SHARE: Final = 64
#: Microseconds per document: to write its leaf number in a tree, to add up its terms in a linear leaf, to encode one
#: value, and to look up its CTRs of one projection.
LEAF: Final = 1e-3
TERMS: Final = 8e-3
CODING: Final = 0.5e-3
LOOK_UP: Final = 2.5e-3
_MAX_WORTH: Final = 1 << 10


def threads_worth(share: Callable[[int], float]) -> int:
    """Threads that a call is worth, a power of two; ``share(n)``: microseconds that each of n threads would take."""
    alone, worth = share(1), 1
    most = alone * (MAX_WORK if alone < LONG else MAX_WORK_OF_LONG)
    while worth < _MAX_WORTH:
        each = share(2 * worth)
        if each < WORK_EACH or 2 * worth * each > most:
            break
        worth *= 2
    return worth


def threads_of_call(worth: int, asked: int | None = None) -> int:
    """Threads of a call that is worth ``worth`` threads; ``asked``: how many the caller asks for."""
    if asked is not None:
        return cpu_fallback.effective_threads(asked)
    return 1 if worth == 1 else min(worth, cpu_fallback.default_threads())


def look_up_cost(forest: Forest) -> float:
    """Microseconds that it takes to look up a document's CTRs."""
    return 0.0 if forest.ctrs is None else LOOK_UP * len(forest.ctrs.projections)


def look_up_threads(forest: Forest, n_documents: int, asked: int | None = None) -> int:
    """Threads that look up the CTRs of ``n_documents``; ``asked``: how many the caller asks for."""
    if forest.ctrs is None:
        return 1
    return threads_of_call(threads_worth(lambda n: -(-n_documents // n) * look_up_cost(forest)), asked)
