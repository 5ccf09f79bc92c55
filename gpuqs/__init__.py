"""gpuqs: scores documents with large ensembles of decision trees, fast and exactly, on GPU and CPU.

>>> import gpuqs
>>> model = gpuqs.load("model.txt")  # doctest: +SKIP
>>> scores = model.predict(X)  # doctest: +SKIP
"""

from __future__ import annotations

import os
import warnings
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gpuqs import errors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuqs.forest import Forest
    from gpuqs.model import Model
    from gpuqs.tuning.plan import Plan

    Categories = Mapping[str | int, Sequence[Any]] | Sequence[str | int]

__all__ = ["Model", "errors", "from_model", "load"]
__version__ = "0.1.0"


def load(path: str | os.PathLike[str] | bytes, *, mmap: bool = False, categories: Categories | None = None) -> Model:
    """Load a model from a file (or from the file's bytes); the format is found by content.

    All iterations that a file holds are scored; a UserWarning says so of a file of XGBoost's that holds more than
    its best iteration, where XGBoost's own classes differ on what to do.

    Parameters
    ----------
    path : str, os.PathLike or bytes
    mmap : bool
        For files that `Model.save` wrote: leave the leaf values in the file, mapped into memory, so that they are
        read when they are needed and shared with other processes. Such a file should be replaced (as `Model.save`
        does), not changed in place: one that is rewritten gives other scores, though no other leaves and no access
        to memory outside the model; one that is cut short ends the process (SIGBUS) if that happens before the
        leaf values were read. By default all is read into memory of this process, and the file may change freely.
    categories : mapping or sequence, optional
        Which columns of frames and files hold categories, where the model does not tell (as LightGBM's do not):
        each column (name or number) with its categories in code order; or the columns alone, where the model
        keeps their categories. Saved with the model.

    Raises
    ------
    ModelFormatError
        The file is damaged, or in no format that gpuqs reads.
    UnsupportedModelError
        The model uses something that gpuqs does not evaluate.
    """
    model = _model(path, mmap, categories)
    _warn_of_later_iterations(model)
    return model


def from_model(model: Any, *, categories: Categories | None = None) -> Model:
    """Take over a live model, as its own ``predict`` would use it: what early stopping left behind is not taken.

    Parameters
    ----------
    model : object
        LightGBM's ``Booster`` or ``LGBMModel``, XGBoost's ``Booster`` or ``XGBModel``, any ``CatBoost``,
        scikit-learn's trees, forests and boosted ensembles, a ``treelite.Model``, an ``onnx.ModelProto``, or a
        `gpuqs.forest.Forest`: the README's table of formats says what of each. Also what `load` takes, the
        text of a model, and a `Model`, which is given back.
    categories : mapping or sequence, optional
        As for `load`.

    Raises
    ------
    ModelFormatError
        The object is no model, is not fitted, or is of a library that gpuqs does not read.
    UnsupportedModelError
        The model uses something that gpuqs does not evaluate.
    """
    read = _model(model, False, categories)
    if read is not model:
        _warn_of_later_iterations(read)
    return read


def _model(source: Any, mmap: bool, categories: Categories | None) -> Model:
    from gpuqs.cpu_fallback import in_default_float_mode

    return in_default_float_mode(_read)(source, mmap, categories)


def _read(source: Any, mmap: bool, categories: Categories | None) -> Model:
    from gpuqs.formats import read_model
    from gpuqs.model import Model
    from gpuqs.told_categories import told

    if isinstance(source, Model) and categories is None:
        return source
    if isinstance(source, Model):
        forest, plan = source.forest, source.plan
    else:
        forest = read_model(source, mmap=mmap)
        plan = _plan_of(forest, source)
        _keep_arrays_of(forest)
    return Model(forest if categories is None else told(forest, categories), plan)


def _plan_of(forest: Forest, source: Any) -> Plan | None:
    """The plan in the file that a Forest was read from."""
    from gpuqs.formats.native import kept_plan

    if (kept := kept_plan(forest)) is None:
        return None
    from gpuqs.tuning.plan import from_json

    with errors.naming(str(source) if isinstance(source, (str, os.PathLike)) else "model bytes"):
        return from_json(kept)


def _keep_arrays_of(forest: Forest) -> None:
    """Hand what was kept in the file that a Forest was read from to the layouts."""
    from gpuqs.formats.native import kept_arrays

    if kept := kept_arrays(forest):
        from gpuqs.layout.ready import keep

        keep(forest, kept)


def _warn_of_later_iterations(model: Model, mend: str = "iteration_range=(0, model.best_iteration + 1)") -> None:
    """Warn, at the line that called the caller, where libraries differ on how much of a model to score."""
    best, n = model.best_iteration, model.n_iterations
    if best is not None and best + 1 < n and model.forest.source.startswith("XGBoost"):
        warnings.warn(
            f"the model stopped early: iteration {best} was its best, but it holds {n}. All are scored, as "
            f"Booster.predict does; XGBClassifier and XGBRegressor stop at the best: for that, pass {mend}",
            stacklevel=3,
        )


def __getattr__(name: str) -> Any:
    """`Model`, imported when it is first asked for: importing gpuqs stays fast."""
    if name == "Model":
        from gpuqs.model import Model

        return Model
    if name == "cpu_fallback" and find_spec("gpuqs.cpu_fallback") is None:
        raise ImportError(
            f"{__path__[0]} holds gpuqs's sources, without what is compiled: Python was started beside them. "
            "Start it in another folder, or install that checkout with 'pip install -e .'"
        )
    raise AttributeError(f"module 'gpuqs' has no attribute {name!r}")
