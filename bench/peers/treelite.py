"""Treelite's own interpreter (GTIL)."""

from __future__ import annotations

from typing import Any

from peers.base import Contender, OfThreads, Peer, Source, of_libraries

converted = of_libraries("LightGBM", "XGBoost", "scikit-learn")


def as_treelite(source: Source) -> Any:
    """The model as Treelite reads it."""
    import treelite

    if source.library == "scikit-learn":
        return treelite.sklearn.import_model(source.live)
    if source.library == "XGBoost":
        return treelite.frontend.load_xgboost_model(str(source.path), format_choice="ubjson")
    return treelite.frontend.load_lightgbm_model(str(source.path))


def build(source: Source) -> OfThreads:
    import treelite

    model = as_treelite(source)
    return lambda n: {"Treelite": Contender(lambda X: treelite.gtil.predict(model, X, nthread=n, pred_margin=True))}


PEER = Peer(
    name="Treelite",
    package="treelite",
    distribution="treelite",
    rows="float32 NumPy rows",
    threads="nthread of each call",
    refuses=converted,
    build=build,
)
