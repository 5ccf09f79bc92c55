"""Calls on GPUs that were made before: launched again at once, without deciding again what to launch.

A call of `Model.predict` with documents on a GPU repeats another if the documents have the same type, shape and
strides, the output is the same ("value" or "raw"), the precision is the same, and every other option has its default.
The first call of a form takes the general path, `gpuqs.calls`, and so does the second, which is recorded; later ones
are launched from here. For calls with ``out``, and for chunks of host documents, only the launches are repeated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np

from gpuqs.devices import GpuDevice
from gpuqs.forks import Lock
from gpuqs.kept import keep_some

#: Upper limits of forms whose launches are kept, and of forms that were seen once.
KEPT, SEEN = 512, 4096
#: Most documents of a call that is recorded: launches of more take a small part of its time.
MAX_DOCUMENTS = 1 << 18

#: The device's key, whether documents are the caller's, their shape, strides and type, and what is asked for.
Form: TypeAlias = tuple[Any, ...]
#: Fills an answer for documents.
Fill: TypeAlias = Callable[[Any, Any], None]
#: Repeats the launches that filled such an answer; False if it cannot.
Again: TypeAlias = Callable[[Any, Any], bool]

#: Stands for a recorded call and its answer's shape and type where there is none.
NOT_RECORDED: Final[tuple[Again | None, tuple[int, ...], Any]] = (None, (), None)


class RepeatedCalls:
    """The calls of one model, by their form; threads share it."""

    def __init__(self) -> None:
        self._devices: dict[type, tuple[GpuDevice, ...]] = {}
        self._calls: dict[Form, tuple[Again | None, tuple[int, ...], np.dtype[Any]]] = {}
        self._seen: dict[Form, None] = {}
        self._lock = Lock()

    def __bool__(self) -> bool:
        return bool(self._calls)

    def answer(self, X: Any, output: str, precision: str) -> Any:
        """The answer, on the current stream; None where no such call was recorded, or this one cannot repeat it."""
        devices = self._devices.get(type(X), ())
        device = next((device for device in devices if device.is_ready(X)), None)
        if device is None or type(output) is not str or type(precision) is not str:
            return None
        again, shape, dtype = self._calls.get(_form(device, True, X, output, precision), NOT_RECORDED)
        if again is None or device.address(X) % X.dtype.itemsize:  # the form includes the strides
            return None
        answer = device.empty(shape, dtype)
        return answer if again(X, answer) else None

    def filling(
        self, fill: Fill, device: GpuDevice, output: str, precision: str, *, callers: bool, record: bool
    ) -> Fill:
        """``fill``, which fills an answer for documents on the device, or a function that repeats its launches.

        ``callers``: documents are the caller's own, so that `answer` may serve later ones; else copied from the host.
        ``record``: the launches may be recorded, as the answer's memory is new.
        """
        if output not in ("value", "raw"):
            return fill

        def filled(X: Any, answer: Any) -> None:
            may = X.dtype.kind == "f" and X.shape[0] <= MAX_DOCUMENTS and device.is_ready(X)
            form = _form(device, callers, X, output, precision)
            again, *_ = self._calls.get(form, NOT_RECORDED) if may else NOT_RECORDED
            if again is not None and again(X, answer):
                return
            if may and record and form in self._seen and form not in self._calls:
                with self._lock.held():
                    self._seen.pop(form, None)  # what fails is not recorded the next time
                again = device.recorded(fill, X, answer)
                with self._lock.held():
                    known = self._devices.get(type(X), ())
                    if callers and device not in known:
                        self._devices[type(X)] = (*known, device)
                    keep_some(self._calls, form, (again, answer.shape, answer.dtype), KEPT)
            else:
                fill(X, answer)
                if may and form not in self._calls:
                    with self._lock.held():
                        keep_some(self._seen, form, None, SEEN)

        return filled


def _form(device: GpuDevice, callers: bool, X: Any, output: str, precision: str) -> Form:
    return device.key, callers, X.shape, X.strides, X.dtype, output, precision


def all_are(what: object, given: tuple[object, ...]) -> bool:
    """Whether all of ``given`` are the object ``what``."""
    return all(one is what for one in given)
