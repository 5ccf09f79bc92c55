"""CUDA devices that ask no driver, for tests that need no GPU."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from emulation.device import RTX3090

from gpuqs.devices.cuda import CudaDevice, _Entered
from gpuqs.devices.recording import Recorder


class CudaError(RuntimeError):
    """Stands in for CuPy's errors."""

    def __init__(self, status: int) -> None:
        super().__init__(f"CUDA says {status}")
        self.status = status


class MadeUpModule:
    """Stands in for `cupy.cuda.Module`: keeps what it is given to load."""

    def load(self, cubin: bytes) -> None:
        self.cubin = cubin

    def get_function(self, symbol: str) -> SimpleNamespace:
        return SimpleNamespace(module=self, symbol=symbol, ptr=4096)


def made_up_device(**attributes: Any) -> CudaDevice:
    """An RTX 3090 except for ``attributes``."""
    device = object.__new__(CudaDevice)
    device.index, device._captured, device._kernels, device._recorder = 0, [], {}, Recorder()
    device._entered, device._model_memory = _Entered(), SimpleNamespace(note=lambda stream: None)
    device.attributes = replace(RTX3090, **attributes)
    stream = SimpleNamespace(ptr=0, is_capturing=lambda: False, synchronize=lambda: None)
    cuda = SimpleNamespace(
        Device=lambda index: nullcontext(),
        Module=MadeUpModule,
        get_current_stream=lambda: stream,
        driver=SimpleNamespace(CUDADriverError=CudaError),
        runtime=SimpleNamespace(CUDARuntimeError=CudaError, driverGetVersion=lambda: 12040),
    )
    device._cupy = SimpleNamespace(cuda=cuda)
    return device
