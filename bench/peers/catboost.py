"""CatBoost: rows, and a `Pool` that is made before."""

from __future__ import annotations

from peers.base import Peer, Source, Way, own_models_only


def build(source: Source, n_threads: int) -> dict[str, Way]:
    import catboost

    def score(rows: object) -> object:
        return source.live.predict(rows, prediction_type="RawFormulaVal", thread_count=n_threads)

    return {"CatBoost": Way(score), "CatBoost, Pool": Way(score, catboost.Pool)}


PEER = Peer(
    name="CatBoost",
    package="catboost",
    distribution="catboost",
    rows="float32 NumPy rows, or a Pool made before",
    threads="thread_count of each call",
    refuses=own_models_only("CatBoost"),
    build=build,
)
