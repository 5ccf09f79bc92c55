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

    from gpuqs.model import Model

__all__ = ["Model", "errors", "from_model", "load"]
__version__ = "0.1.0"


def load(path: str | os.PathLike[str] | bytes) -> Model:
    """Load a model from a file (or from the file's bytes); the format is found by content.

    Raises
    ------
    ModelFormatError
        The file is damaged, or in no format that gpuqs reads.
    UnsupportedModelError
        The model uses something that gpuqs does not evaluate.
    """
    return from_model(path)


def from_model(model: Any) -> Model:
    """Take over a live model of LightGBM, XGBoost, CatBoost or scikit-learn; see the README's table of formats."""
    from gpuqs.formats import read_model
    from gpuqs.model import Model

    return Model(read_model(model))


def __getattr__(name: str) -> Any:
    """`Model`, imported when it is first asked for: importing gpuqs stays fast."""
    if name == "Model":
        from gpuqs.model import Model

        return Model
    raise AttributeError(f"module 'gpuqs' has no attribute {name!r}")
