"""What a size that was tuned tells of another: what was measured there corrects what is predicted here."""

from __future__ import annotations

from collections.abc import Callable

from gpuqs.tuning.plan import Candidate, Tuned, Way

#: Beside the untuned default another way is used only where it is expected to take less than this share of its time, or
#: than the smaller number of documents is of the larger: the further off, the less certain are costs.
SURELY = 0.9


def best_near(
    tuned: Tuned, n_documents: int, growth: Callable[[Candidate], float | None], engine: str, n_threads: int
) -> Candidate | None:
    """Which of a size's candidates scores another number of documents, near it.

    Parameters
    ----------
    tuned : Tuned
    n_documents : int
    growth : callable
        How many times as long a candidate is predicted to take there as at the size; None where it cannot be used.
    engine, n_threads
        The untuned default there.

    Returns
    -------
    Candidate or None
        None: too little was measured to say, for that default was not.
    """
    measured = [candidate for candidate in tuned.candidates if candidate.measured is not None]
    most = max((candidate.n_threads for candidate in measured), default=1)  # who tuned for few threads wants no more
    as_default = Way(engine, (), min(n_threads, most))
    least = tuned.best.measured or 0.0  # what measured less lost to the chosen one by turns: it met a quieter moment
    default, expected = None, []
    for candidate in measured:
        if candidate.measured is not None and (times := growth(candidate)) is not None:
            expected.append((max(candidate.measured, least) * times, candidate))
            if candidate.way == as_default:
                default = expected[-1]
    if default is None:
        return None
    best = min(expected, key=lambda of_one: of_one[0])
    surely = min(SURELY, n_documents / tuned.n_documents, tuned.n_documents / max(n_documents, 1))
    return best[1] if best[0] < surely * default[0] else default[1]
