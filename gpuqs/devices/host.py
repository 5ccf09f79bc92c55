"""The host: its CPU, and NumPy arrays in its memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt


class Host:
    """The host; implements `gpuqs.devices.base.Device`. The only object is `HOST`."""

    kind = key = "cpu"

    def __init__(self) -> None:
        self._active = nullcontext()

    def __repr__(self) -> str:
        return "<cpu>"

    def __reduce__(self) -> str:
        return "HOST"

    def active(self) -> AbstractContextManager[None]:
        return self._active

    def adopt(self, X: Any) -> Any:
        return X if isinstance(X, np.ndarray) else None

    def holds(self, array: Any) -> bool:
        return True

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        return np.empty(shape, dtype)

    def run(self, fill: Callable[[Any, Any], None], documents: Any, out: Any) -> None:
        fill(documents, out)

    def own_answer(self, X: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        return None

    def answer_beside(self, X: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        return self.empty(shape, dtype)

    def hand_back(self, array: Any, X: Any) -> Any:
        return array

    def to_host(self, array: Any) -> npt.NDArray[Any]:
        return np.asarray(array)

    def synchronize(self) -> None:
        return None


HOST = Host()
