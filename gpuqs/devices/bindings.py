"""Access to cuda-python: its modules, and the results of its calls."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from gpuqs.errors import DeviceError


def bindings(name: str) -> Any:
    """A module of cuda-python: "runtime", "driver" or "nvrtc".

    Raises
    ------
    DeviceError
        It is not installed.
    """
    try:
        return import_module(f"cuda.bindings.{name}")
    except ImportError as error:
        raise DeviceError(
            f"GPU scoring needs cuda-python, which cannot be imported ({error}); install it with "
            "pip install 'gpuqs[cuda13]' (or 'gpuqs[cuda12]' for an older driver)"
        ) from error


def checked(result: tuple[Any, ...], what: str, mend: str = "look at nvidia-smi") -> Any:
    """The value of a call into cuda-python, whose first result is its status.

    Raises
    ------
    DeviceError
        The call failed; the message holds ``what``, the status and ``mend``.
    """
    status, *values = result
    if status != 0:
        raise DeviceError(f"{what}: {status.name}; {mend}")
    return values[0] if values else None
