"""gpuqs: scores documents with large ensembles of decision trees, fast and exactly, on GPU and CPU.

>>> import gpuqs
>>> model = gpuqs.load("model.txt")  # doctest: +SKIP
>>> scores = model.predict(X)  # doctest: +SKIP
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuqs import errors

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence

    from gpuqs.model import Model

    Categories = Mapping[str | int, Sequence[Any]] | Sequence[str | int]

__all__ = ["Model", "errors", "from_model", "load"]
__version__ = "0.1.0"


def load(path: str | os.PathLike[str] | bytes, *, categories: Categories | None = None) -> Model:
    """Load a model from a file (or from the file's bytes); the format is found by content.

    Parameters
    ----------
    path : path or bytes
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
    return from_model(path, categories=categories)


def from_model(model: Any, *, categories: Categories | None = None) -> Model:
    """Take over a live model of LightGBM, XGBoost, CatBoost or scikit-learn; see the README's table of formats.

    ``categories`` as for `load`.
    """
    from dataclasses import replace

    from gpuqs.formats import read_model
    from gpuqs.model import Model

    forest = read_model(model)
    if categories is not None:
        forest = replace(forest, schema=forest.schema.placed(categories, forest.n_features))
    return Model(forest)


def __getattr__(name: str) -> Any:
    """`Model`, imported when it is first asked for: importing gpuqs stays fast."""
    if name == "Model":
        from gpuqs.model import Model

        return Model
    raise AttributeError(f"module 'gpuqs' has no attribute {name!r}")
