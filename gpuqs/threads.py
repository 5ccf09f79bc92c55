"""How many threads a call gets."""

from __future__ import annotations

from gpuqs import cpu_fallback
from gpuqs.forest import Forest

#: Less work than this is done sooner by one thread than by several.
THREAD_WORK = 500_000


def threads_of_call(forest: Forest, n_documents: int, asked: int | None = None, planned: int | None = None) -> int:
    """Threads that score so many documents: ``asked`` is what the caller wants, ``planned`` what the plan does."""
    if asked is None and planned is not None:
        return min(planned, cpu_fallback.default_threads())
    if asked is None and n_documents * forest.n_trees < THREAD_WORK:
        return 1
    return cpu_fallback.effective_threads(asked)
