"""NVRTC through cuda-python: CUDA C++ to machine code, with exactly the given options. No GPU is needed.

CuPy's own compiler appends ``-ftz=true``, with which kernels would treat float32 denormals as zeros.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import TracebackType
from typing import Any

from gpuqs.devices.bindings import bindings, checked
from gpuqs.errors import DeviceError

_MEND = "pip install --upgrade 'gpuqs[cuda13]' (or 'gpuqs[cuda12]' for an older driver or GPU)"

#: Architectures of Jetson GPUs.
_JETSONS = (72, 87, 101, 110)


@cache
def version() -> tuple[int, int]:
    """NVRTC's own version.

    Raises
    ------
    DeviceError
        cuda-python or NVRTC's library is missing.
    """
    nvrtc = bindings("nvrtc")
    try:
        status, major, minor = nvrtc.nvrtcVersion()
    except RuntimeError as error:  # cuda-python loads the library at the first call
        raise DeviceError(f"GPU scoring needs NVRTC, which cannot be loaded ({error}); {_MEND}") from error
    checked((status,), "NVRTC does not report its version", _MEND)
    return major, minor


@cache
def architecture(capability: tuple[int, int]) -> int:
    """The newest architecture that NVRTC compiles for and the device runs, such as 86 for compute capability (8, 6).

    Raises
    ------
    DeviceError
        The device is older or newer than what NVRTC compiles for.
    """
    major, minor = capability
    own = ".".join(map(str, version()))
    known = checked(bindings("nvrtc").nvrtcGetSupportedArchs(), "NVRTC does not report its architectures", _MEND)
    # Machine code runs on devices with its major number and its or a later minor number; Jetson code only on its own.
    own_number = 10 * major + minor
    fitting = [number for number in known if number // 10 == major and number <= own_number]
    fitting = [number for number in fitting if number not in _JETSONS or number == own_number]
    if not fitting:
        raise DeviceError(f"NVRTC {own} does not compile for compute capability {major}.{minor}; {_MEND}")
    return int(max(fitting))


class Program:
    """A compiled source; a context manager that frees it.

    Parameters
    ----------
    source : str
    file : str
        Its name in messages.
    names : sequence of str
        Kernels, template arguments included.
    options : sequence of str
        All options for NVRTC.

    Raises
    ------
    DeviceError
        It does not compile; the message has the compiler's log.
    """

    def __init__(self, source: str, file: str, names: Sequence[str], options: Sequence[str]) -> None:
        self._nvrtc = bindings("nvrtc")
        self._file = file
        created = self._nvrtc.nvrtcCreateProgram(source.encode(), file.encode(), 0, [], [])
        self._program = self._checked(created)
        try:
            for name in names:
                self._checked(self._nvrtc.nvrtcAddNameExpression(self._program, name.encode()))
            encoded = [option.encode() for option in options]
            (status,) = self._nvrtc.nvrtcCompileProgram(self._program, len(encoded), encoded)
            if status != 0:
                log = self.read("ProgramLog").rstrip(b"\0").decode(errors="replace")
                raise DeviceError(f"{file} does not compile ({status.name}, {' '.join(options)}):\n{log[:4000]}")
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __enter__(self) -> Program:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._nvrtc.nvrtcDestroyProgram(self._program)

    def symbol(self, name: str) -> str:
        """A kernel's name in the machine code."""
        lowered: bytes = self._checked(self._nvrtc.nvrtcGetLoweredName(self._program, name.encode()))
        return lowered.decode()

    def read(self, what: str) -> bytes:
        """One of the compiler's outputs: "CUBIN", "PTX" or "ProgramLog"."""
        size = self._checked(getattr(self._nvrtc, f"nvrtcGet{what}Size")(self._program))
        data = bytearray(size + 1)
        self._checked(getattr(self._nvrtc, f"nvrtcGet{what}")(self._program, data))
        return bytes(data[:size])

    def _checked(self, result: tuple[Any, ...]) -> Any:
        return checked(result, f"NVRTC fails on {self._file}", _MEND)
