"""From a file or a live model to a `Model`: what `gpuqs.load`, `gpuqs.from_model` and `gpuqs.sklearn.wrap` share."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING, Any

from gpuqs import cpu_fallback
from gpuqs.errors import naming
from gpuqs.formats import read_model
from gpuqs.formats.native import kept_arrays, kept_plan
from gpuqs.layout import ready
from gpuqs.model import Model
from gpuqs.told_categories import told
from gpuqs.tuning.plan import Plan, from_json

if TYPE_CHECKING:
    from gpuqs import Categories
    from gpuqs.forest import Forest


@cpu_fallback.in_default_float_mode
def model_of(source: Any, *, mmap: bool = False, categories: Categories | None = None) -> Model:
    """Make a Model from what `gpuqs.load` or `gpuqs.from_model` accepts, with what its file holds besides the trees."""
    if isinstance(source, Model):
        if categories is None:
            return source
        forest, plan, kept = source.forest, source.plan, ready.kept(source.forest)
    else:
        forest = read_model(source, mmap=mmap)
        plan, kept = _plan_of(forest, source), kept_arrays(forest)
    if categories is not None:
        forest = told(forest, categories)
    ready.keep(forest, kept)
    return Model(forest, plan)


def _plan_of(forest: Forest, source: Any) -> Plan | None:
    """The plan in the file that a Forest was read from."""
    if (kept := kept_plan(forest)) is None:
        return None
    with naming(str(source) if isinstance(source, (str, os.PathLike)) else "model bytes"):
        return from_json(kept)


def warn_of_later_iterations(
    model: Model, mend: str = "iteration_range=(0, model.best_iteration + 1)", callers: int = 1
) -> None:
    """Warn, at the line ``callers`` levels above the caller, if libraries differ on how much of a model to score."""
    best, n = model.best_iteration, model.n_iterations
    if best is not None and best + 1 < n and model.forest.library == "XGBoost":
        warnings.warn(
            f"the model stopped early: iteration {best} was its best, but it holds {n} iterations. All are scored, as "
            f"Booster.predict does. XGBClassifier and XGBRegressor score up to the best; to do the same, pass {mend}",
            stacklevel=2 + callers,
        )
