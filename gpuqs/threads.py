"""How many threads a call gets."""

from __future__ import annotations

from typing import Final

from gpuqs import cpu_fallback

#: Microseconds of one thread's work for each thread of a call: one that sleeps takes some 40 until it works, and small
#: shares of a batch take more work in all than large ones.
WORK_EACH: Final = 80.0


def threads_worth(work: float | None) -> int:
    """Threads that a call is worth which takes one thread ``work`` microseconds; None: it has no use for several."""
    return 1 if work is None else max(1, int(work / WORK_EACH))


def threads_of_call(worth: int, asked: int | None = None) -> int:
    """Threads of a call that is worth so many; ``asked``: what the caller wants."""
    if asked is not None:
        return cpu_fallback.effective_threads(asked)
    return 1 if worth == 1 else min(worth, cpu_fallback.default_threads())
