"""CatBoost: from rows, and from a `Pool` made beforehand."""

from __future__ import annotations

from functools import partial

from peers.base import Contender, OfThreads, Peer, Source, own_models_only


def build(source: Source) -> OfThreads:
    import catboost

    def with_threads(n: int) -> dict[str, Contender]:
        score = partial(source.live.predict, prediction_type="RawFormulaVal", thread_count=n)
        return {"CatBoost": Contender(score), "CatBoost, Pool": Contender(score, catboost.Pool)}

    return with_threads


PEER = Peer(
    name="CatBoost",
    package="catboost",
    distribution="catboost",
    rows="float32 NumPy rows, or a Pool made before",
    threads="thread_count of each call",
    refuses=own_models_only("CatBoost"),
    build=build,
)
