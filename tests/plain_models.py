"""Models whose calls are plain, and the same answers by other ways."""

from __future__ import annotations

from typing import Any

import numpy as np
from forests import random_forest

from gpuqs import cpu_fallback, plain_calls
from gpuqs.forest import Forest
from gpuqs.model import Model
from gpuqs.threads import threads_of_call


def made(**fields: Any) -> Forest:
    return random_forest(np.random.default_rng(5), **fields)


def calls_by(program_of: Any) -> cpu_fallback.PlainCalls:
    """Plain calls for raw scores of up to eight documents with eight columns."""
    few = {"n_features": 8, "most": 8, "max_at_once": 8, "brief": plain_calls.BRIEF}
    return cpu_fallback.PlainCalls(program_of=program_of, threads_of=threads_of_call, **few)


def asked_otherwise(model: Model, X: np.ndarray, **words: Any) -> np.ndarray:
    """The answer of the general path, which calls with a named engine take."""
    words = {name: value for name, value in words.items() if name not in ("num_iteration", "start_iteration")}
    return model.predict(X, **words, engine=model.engine_for(len(X)))
