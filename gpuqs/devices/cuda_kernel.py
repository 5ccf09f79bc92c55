"""A kernel that CuPy has loaded; cuda-python sets what CuPy does not."""

from __future__ import annotations

from typing import Any

from gpuqs.devices.bindings import bindings, checked
from gpuqs.devices.recording import Recorder


class CudaKernel:
    """A loaded kernel; implements `gpuqs.devices.base.Kernel`.

    Parameters
    ----------
    name : str
    function : cupy.cuda.Function
    recorder : Recorder
        The device's recorder.
    """

    def __init__(self, name: str, function: Any, recorder: Recorder) -> None:
        self.name = name
        self._function, self._recorder = function, recorder

    def __call__(
        self, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...], *, shared_mem: int = 0
    ) -> None:
        self._function(grid, block, args, shared_mem=shared_mem)
        if self._recorder.recording is not None:
            self._recorder.recording.launched(self, grid, block, args, shared_mem)

    @property
    def pointer(self) -> int:
        """The driver's handle of the kernel, as an integer."""
        return int(self._function.ptr)

    @property
    def handle(self) -> Any:
        """The kernel as cuda-python's ``CUfunction``."""
        return bindings("driver").CUfunction(self.pointer)

    def attribute(self, name: str) -> int:
        """The value of a kernel's attribute; ``name`` as in CUDA's ``CU_FUNC_ATTRIBUTE_...``."""
        driver = bindings("driver")
        kind = getattr(driver.CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{name}")
        told = driver.cuFuncGetAttribute(kind, self.handle)
        return int(checked(told, f"the driver does not report {name} of {self.name}"))

    @property
    def max_dynamic_shared_size_bytes(self) -> int:
        return self.attribute("MAX_DYNAMIC_SHARED_SIZE_BYTES")

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, n_bytes: int) -> None:
        driver = bindings("driver")
        kind = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        allowed = driver.cuFuncSetAttribute(self.handle, kind, n_bytes)
        checked(allowed, f"{self.name} cannot have {n_bytes:,} bytes of shared memory")
