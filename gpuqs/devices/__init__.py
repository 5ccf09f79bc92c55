"""What gpuqs runs on, and how code gets there."""

from __future__ import annotations

from typing import Any

from gpuqs.devices.base import Device, GpuDevice
from gpuqs.devices.host import HOST

__all__ = ["HOST", "Device", "GpuDevice", "find_device"]


def find_device(device: Any) -> Device:
    """The device of a name: "cpu", or as `cuda_device` takes it; a `Device` is given back.

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
    from gpuqs.devices.cuda import cuda_device  # here: a sixth of what is imported to score on the host

    return cuda_device(device)
