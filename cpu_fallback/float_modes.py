"""Calls that give the same bits whatever the caller's floating-point mode is."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from gpuqs.cpu_fallback.float_mode import DefaultFloatMode

Function = TypeVar("Function", bound=Callable[..., Any])


def in_default_float_mode(function: Function) -> Function:
    """Make a function round to nearest and keep denormals, without NumPy's arithmetic errors and warnings."""

    @wraps(function)
    def settled(*args: Any, **words: Any) -> Any:
        with DefaultFloatMode(), np.errstate(all="ignore"):
            return function(*args, **words)

    return settled  # type: ignore[return-value]
