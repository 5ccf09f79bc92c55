"""Uses a tuned batch size for another one: times measured there correct the times predicted here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gpuqs.tuning.plan import Candidate, Tuned, Way

#: Another way than the untuned default is used only if it is expected to take less than this share of the default's
#: time, and less than the smaller number of documents divided by the larger: the further apart sizes are, the less
#: certain costs are.
SURELY = 0.9


def best_near(
    tuned: Tuned, n_documents: int, growth: Callable[[Candidate], float | None], usual: Way, n_threads: int
) -> Candidate | None:
    """The candidate of a tuned size that is best for another number of documents, near it.

    Parameters
    ----------
    tuned : Tuned
    n_documents : int
    growth : callable
        How many times as long a candidate is predicted to take as at the tuned size; None if it cannot be used.
    usual, n_threads
        The untuned default for ``n_documents``. Its engine without parameters stands for it if only that was measured.

    Returns
    -------
    Candidate or None
        None if the untuned default was not measured, because then nothing can be compared with it.
    """
    measured = [candidate for candidate in tuned.candidates if candidate.measured is not None]
    most = max((candidate.n_threads for candidate in measured), default=1)  # no more threads than were tuned for
    default_way = replace(usual, n_threads=min(n_threads, most))
    least = tuned.best.measured or 0.0  # lower times were luck: those candidates lost in turns
    expected: dict[Way, tuple[float, Candidate]] = {}
    for candidate in measured:
        if candidate.measured is not None and (times := growth(candidate)) is not None:
            expected[candidate.way] = max(candidate.measured, least) * times, candidate
    default = expected.get(default_way) or expected.get(replace(default_way, params=()))
    if default is None:
        return None
    best = min(expected.values(), key=lambda of_one: of_one[0])
    surely = min(SURELY, n_documents / tuned.n_documents, tuned.n_documents / max(n_documents, 1))
    return best[1] if best[0] < surely * default[0] else default[1]
