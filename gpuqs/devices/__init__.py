"""The devices that gpuqs runs on, and how code gets onto them."""

from __future__ import annotations

from typing import Any

from gpuqs.devices.base import Device, GpuDevice
from gpuqs.devices.host import HOST

__all__ = ["HOST", "Device", "GpuDevice", "find_device"]


def find_device(device: Any) -> Device:
    """Return the device called "cpu" or any name that `cuda_device` accepts; a `Device` is returned as it is.

    Raises
    ------
    DeviceError
        As `cuda_device`.
    """
    if isinstance(device, str) and device == "cpu":
        return HOST
    if hasattr(device, "kind"):
        found: Device = device
        return found
    from gpuqs.devices.cuda import cuda_device  # here: it would be a sixth of the imports for the host

    return cuda_device(device)
