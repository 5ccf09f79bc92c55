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
    """Load a model from a file, or from the bytes of one. The format is recognised by the content.

    All iterations in the file are scored. Where an XGBoost model stopped early and its file holds iterations past the
    best one, a UserWarning says so, because XGBoost's own classes disagree on whether to use them.

    Parameters
    ----------
    path : str, os.PathLike or bytes
        A file's path, or its content as bytes.
    mmap : bool
        Only for files that `Model.save` wrote: leave the leaf values in the file and map it into memory. They are then
        read when they are needed, and shared with other processes. Replace such a file (as `Model.save` does), and
        do not change it in place while a model uses it. If it is overwritten, scores change, though exit leaves do not
        and no memory outside the model is read; if it is cut short before the leaf values were read, the process ends
        by SIGBUS. By default everything is read into memory, and the file may change freely.
    categories : mapping or sequence, optional
        Which columns of frames and files hold categories, for models that do not say so themselves (LightGBM's do
        not). A mapping gives each column, by name or number, its categories in the order of their codes. A sequence
        names the columns alone, for models that keep the categories. Saved with the model.

    Returns
    -------
    Model

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
    """Take over a live model as its own ``predict`` uses it: trees after the best iteration are left out.

    Parameters
    ----------
    model : object
        LightGBM's ``Booster`` or ``LGBMModel``, XGBoost's ``Booster`` or ``XGBModel``, any ``CatBoost``, a tree, forest
        or boosted ensemble of scikit-learn's, a ``treelite.Model``, an ``onnx.ModelProto``, or a `gpuqs.forest.Forest`;
        the README's table of formats says what each may contain. Also a path or bytes as for `load`, the text of a
        model file, or a `Model`, which is returned as it is.
    categories : mapping or sequence, optional
        As for `load`.

    Returns
    -------
    Model

    Raises
    ------
    ModelFormatError
        The object is not a model, is not fitted, or comes from a library whose models gpuqs does not read.
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
            f"the model stopped early: iteration {best} was its best, but it holds {n} iterations. All are scored, as "
            f"Booster.predict does. XGBClassifier and XGBRegressor score up to the best; to do the same, pass {mend}",
            stacklevel=3,
        )


def __getattr__(name: str) -> Any:
    """`Model`, imported when it is first asked for: importing gpuqs stays fast."""
    if name == "Model":
        from gpuqs.model import Model

        return Model
    if name == "cpu_fallback" and find_spec("gpuqs.cpu_fallback") is None:
        raise ImportError(
            f"{__path__[0]} holds gpuqs's sources without the compiled modules; Python took it because it was started "
            "beside it. Start Python in another folder, or install the sources with 'pip install -e .'"
        )
    raise AttributeError(f"module 'gpuqs' has no attribute {name!r}")
