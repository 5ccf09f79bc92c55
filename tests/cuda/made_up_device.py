"""CUDA devices without what they ask the driver for: for tests that need no GPU."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from emulation.device import RTX3090

from gpuqs.devices.cuda import CudaDevice
from gpuqs.devices.recording import Recorder


class MadeUpModule:
    """In the place of `cupy.cuda.Module`: keeps what it is given to load."""

    def load(self, cubin: bytes) -> None:
        self.cubin = cubin

    def get_function(self, symbol: str) -> SimpleNamespace:
        return SimpleNamespace(module=self, symbol=symbol, ptr=4096)


def made_up_device(cupy: Any = None, capturing: bool = False, **attributes: Any) -> CudaDevice:
    """An RTX 3090 but for ``attributes``; its allocators are CuPy's where that is given."""
    device = object.__new__(CudaDevice)
    device.index, device._captured, device._kernels, device._recorder = 0, [], {}, Recorder()
    device.attributes = replace(RTX3090, **attributes)
    stream = SimpleNamespace(is_capturing=lambda: capturing)
    cuda = SimpleNamespace(
        Device=lambda index: nullcontext(),
        Module=MadeUpModule,
        get_current_stream=lambda: stream,
        runtime=SimpleNamespace(deviceSynchronize=lambda: None),
    )
    if cupy is not None:
        cuda.get_allocator, cuda.using_allocator = cupy.cuda.get_allocator, cupy.cuda.using_allocator
    device._cupy = SimpleNamespace(cuda=cuda)
    return device
