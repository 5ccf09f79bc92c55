"""gpuqs: scores documents with large ensembles of decision trees, fast and exactly, on GPU and CPU.

>>> import gpuqs
>>> model = gpuqs.load("model.txt")  # doctest: +SKIP
>>> scores = model.predict(X)  # doctest: +SKIP
"""

from __future__ import annotations

import os
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from gpuqs import errors
from gpuqs.version import __version__ as __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gpuqs.model import Model

    Categories = Mapping[str | int, Sequence[Any]] | Sequence[str | int]

__all__ = ["Model", "errors", "from_model", "load"]


def load(path: str | os.PathLike[str] | bytes, *, mmap: bool = False, categories: Categories | None = None) -> Model:
    """Load a model from a file, or from the bytes of one. The format is recognised by the content.

    All iterations in the file are scored. Where an XGBoost model stopped early and its file holds iterations past the
    best one, a UserWarning says so, because XGBoost's own classes disagree on whether to use them.

    Parameters
    ----------
    path : str, os.PathLike or bytes
        A file's path, or its content as bytes.
    mmap : bool
        Only for files that `Model.save` wrote: map the file into memory, so that leaf values are read from it when they
        are needed, and shared with other processes. While a model uses such a file, only replace it (as `Model.save`
        does where it may create files in the folder); do not change it in place. If it is overwritten, scores change,
        but exit leaves do not, and no memory outside the model is read; ``precision="fast"`` then gives numbers even
        where leaf values are NaN. If it is truncated before the leaf values were read, SIGBUS ends the process. By
        default everything is read into memory, and the file may change freely.
    categories : mapping or sequence, optional
        Which columns of frames and files hold categories, for models that do not say so themselves (LightGBM's do
        not). A mapping gives, for each column (by name or number), its categories in the order of their codes. A
        sequence only names the columns, for models that hold the categories themselves. Saved with the model.

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
    from gpuqs.loading import model_of, warn_of_later_iterations

    model = model_of(path, mmap=mmap, categories=categories)
    warn_of_later_iterations(model)
    return model


def from_model(model: Any, *, categories: Categories | None = None) -> Model:
    """Convert a live model, with the trees that its own ``predict`` uses: those after the best iteration are left out.

    Parameters
    ----------
    model : object
        LightGBM's ``Booster`` or ``LGBMModel``, XGBoost's ``Booster`` or ``XGBModel``, any ``CatBoost``, a tree, forest
        or boosted ensemble of scikit-learn's, a ``treelite.Model``, an ``onnx.ModelProto``, or a `gpuqs.forest.Forest`;
        the README's table of formats says what each may contain. Also a path or bytes as for `load`, the content of a
        model file as a str, or a `Model`, which is returned as it is.
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
    from gpuqs.loading import model_of, warn_of_later_iterations

    taken = model_of(model, categories=categories)
    if taken is not model:
        warn_of_later_iterations(taken)
    return taken


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def __getattr__(name: str) -> Any:
    """Import `Model` on first access, so that importing gpuqs stays fast."""
    if name == "Model":
        from gpuqs.model import Model

        return Model
    if name == "cpu_fallback" and find_spec("gpuqs.cpu_fallback") is None:
        raise ImportError(
            f"{__path__[0]} holds gpuqs's sources without the compiled modules; Python took it because it was started "
            "beside it. Start Python in another folder, or install the sources with 'pip install -e .'"
        )
    raise AttributeError(f"module 'gpuqs' has no attribute {name!r}")
