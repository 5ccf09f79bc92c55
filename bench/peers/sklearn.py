"""scikit-learn: the estimator's own `predict`."""

from __future__ import annotations

import numpy as np

from peers.base import Peer, Source, Way, own_models_only


def build(source: Source, n_threads: int) -> dict[str, Way]:
    def score(X: np.ndarray) -> np.ndarray:
        source.live.n_jobs = n_threads
        return source.live.predict(X)

    return {"scikit-learn": Way(score)}


PEER = Peer(
    name="scikit-learn",
    package="sklearn",
    distribution="scikit-learn",
    rows="float32 NumPy rows",
    threads="n_jobs of the estimator",
    refuses=own_models_only("scikit-learn"),
    build=build,
)
