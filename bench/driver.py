"""What the benchmarks need from CUDA besides scoring: a device's speed, the number of resident blocks, profiling."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Hardware:
    """Clock in Hz and DRAM bandwidth in bytes per second, as reported by the device."""

    clock: float
    bandwidth: float


def hardware(device: Any) -> Hardware:
    from gpuqs.devices.cuda_attributes import read_attribute

    clock, memory_clock, bits = (
        read_attribute(device.index, name) for name in ("ClockRate", "MemoryClockRate", "GlobalMemoryBusWidth")
    )  # kHz, kHz, bits
    return Hardware(clock=clock * 1e3, bandwidth=2 * memory_clock * 1e3 * bits / 8)


def resident_blocks(device: Any, kernel: Any, threads: int, shared: int) -> int:
    """Thread blocks of a kernel that the driver lets run at once on one multiprocessor.

    Parameters
    ----------
    device : CudaDevice
    kernel : CudaKernel
        One of the device's.
    threads : int
        Threads per block.
    shared : int
        Bytes of dynamic shared memory per block.
    """
    from gpuqs.devices.bindings import bindings, checked

    driver = bindings("driver")
    with device.active():
        counted = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(kernel.handle, threads, shared)
    return int(checked(counted, f"{device!r} does not tell the occupancy of {kernel.name}"))


@contextlib.contextmanager
def profiled(device: Any) -> Iterator[None]:
    """Let a profiler that records on request see only the work queued inside; wait for that work."""
    from gpuqs.devices.bindings import bindings, checked

    runtime = bindings("runtime")
    with device.active():
        device.synchronize()
        checked(runtime.cudaProfilerStart(), "the profiler does not start")
        try:
            yield
            device.synchronize()
        finally:
            checked(runtime.cudaProfilerStop(), "the profiler does not stop")
