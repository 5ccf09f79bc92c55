"""Energy of a GPU, from NVML's counter for the whole board."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from typing import Any


class NoEnergy(Exception):
    """Why the counter cannot be read here."""


class Board:
    """The counter of one board: millijoules since its driver was loaded.

    Parameters
    ----------
    bus : str
        The device's PCI bus address, since NVML numbers devices differently from CUDA.
    library : optional
        Replaces the NVML library.
    """

    def __init__(self, bus: str, library: Any = None) -> None:
        if library is None:
            try:
                library = ctypes.CDLL("libnvidia-ml.so.1")
            except OSError as problem:
                raise NoEnergy(f"NVML cannot be loaded: {problem}") from None
        self._library, self._device = library, ctypes.c_void_p()
        self._checked("nvmlInit_v2")
        self._checked("nvmlDeviceGetHandleByPciBusId_v2", bus.encode(), ctypes.byref(self._device))
        self.millijoules()  # old boards have no counter

    def _checked(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status:
            raise NoEnergy(f"{name} gives status {status}")

    def millijoules(self) -> int:
        used = ctypes.c_ulonglong()
        self._checked("nvmlDeviceGetTotalEnergyConsumption", self._device, ctypes.byref(used))
        return used.value


def joules(call: Callable[[], object], wait: Callable[[], object], board: Board, seconds: float) -> tuple[float, int]:
    """Joules of one call, and how many calls were made: the counter updates only a few times per second."""
    call()
    wait()
    began, before, calls = time.perf_counter(), board.millijoules(), 0
    while not calls or time.perf_counter() - began < seconds:
        call()
        wait()
        calls += 1
    return (board.millijoules() - before) / 1000 / calls, calls
