"""oneDAL, through daal4py of scikit-learn-intelex."""

from __future__ import annotations

from typing import Any

from peers import xgboost
from peers.base import Contender, OfThreads, Peer, Source, larger_than, of_libraries
from peers.treelite import as_treelite

_converted = of_libraries("LightGBM", "XGBoost", "CatBoost", "scikit-learn")
MAX_NODES = 2_000_000


def refuses(source: Source) -> str | None:
    return _converted(source) or larger_than(source.model.forest, MAX_NODES, "its converters walk trees in Python")


def convertible(source: Source) -> Any:
    """The model in a form that daal4py converts; it refuses rankers, so they are presented as regressions."""
    if source.library == "LightGBM":
        import lightgbm

        text = source.live.model_to_string()
        return lightgbm.Booster(model_str=text.replace("lambdarank", "regression"))
    if source.library == "XGBoost":
        return xgboost.as_regression(source)
    return as_treelite(source) if source.library == "scikit-learn" else source.live


def build(source: Source) -> OfThreads:
    import daal4py
    import daal4py.mb

    model = daal4py.mb.convert_model(convertible(source))

    def with_threads(n: int) -> dict[str, Contender]:
        daal4py.daalinit(n)
        return {"oneDAL": Contender(model.predict)}

    return with_threads


PEER = Peer(
    name="oneDAL",
    package="daal4py.mb",
    distribution="scikit-learn-intelex",
    rows="float32 NumPy rows",
    threads="daalinit, of the process",
    refuses=refuses,
    build=build,
)
