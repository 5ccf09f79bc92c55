"""gpuqs: scores documents with large ensembles of decision trees, fast and exactly, on GPU and CPU.

>>> import gpuqs
>>> model = gpuqs.load("model.txt")  # doctest: +SKIP
>>> scores = model.predict(X)  # doctest: +SKIP
"""

from __future__ import annotations

import os
from typing import Any

from gpuqs import errors
from gpuqs.formats import read_model
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
    return Model(read_model(path))


def from_model(model: Any) -> Model:
    """Take over a live model: ``lightgbm.Booster``, ``LGBMModel``, ``xgboost.Booster``, ``XGBModel``."""
    return Model(read_model(model))
