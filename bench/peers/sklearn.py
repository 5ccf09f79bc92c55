"""scikit-learn: the estimator's own `predict`."""

from __future__ import annotations

from peers.base import Contender, OfThreads, Peer, Source, own_models_only


def build(source: Source) -> OfThreads:
    def with_threads(n: int) -> dict[str, Contender]:
        source.live.n_jobs = n
        return {"scikit-learn": Contender(source.live.predict)}

    return with_threads


PEER = Peer(
    name="scikit-learn",
    package="sklearn",
    distribution="scikit-learn",
    rows="float32 NumPy rows",
    threads="n_jobs of the estimator",
    refuses=own_models_only("scikit-learn"),
    build=build,
)
