"""What the benchmarks ask of CUDA beside scoring: how many blocks of a kernel run at once, and what a profiler sees."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


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
    """What is queued inside is what a profiler sees that records on request; waits for it."""
    from gpuqs.devices.bindings import bindings, checked

    runtime = bindings("runtime")
    with device.active():
        device.wait()
        checked(runtime.cudaProfilerStart(), "the profiler does not start")
        try:
            yield
            device.wait()
        finally:
            checked(runtime.cudaProfilerStop(), "the profiler does not stop")
