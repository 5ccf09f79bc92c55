"""XGBoost: in-place prediction, its fastest from NumPy arrays."""

from __future__ import annotations

from typing import Any

from peers.base import Contender, OfThreads, Peer, Source, own_models_only


def as_regression(source: Source) -> Any:
    """The booster with an objective whose raw scores converters keep; they refuse or misinterpret rankers."""
    booster = source.live.copy()
    booster.set_param({"objective": "reg:squarederror"})
    return booster


def build(source: Source) -> OfThreads:
    booster = source.live

    def with_threads(n: int) -> dict[str, Contender]:
        booster.set_param({"nthread": n})
        return {"XGBoost": Contender(lambda X: booster.inplace_predict(X, predict_type="margin"))}

    return with_threads


PEER = Peer(
    name="XGBoost",
    package="xgboost",
    distribution="xgboost-cpu",
    rows="float32 NumPy rows, predicted in place",
    threads="nthread of the booster",
    refuses=own_models_only("XGBoost"),
    build=build,
)
