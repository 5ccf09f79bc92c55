"""What a CUDA device says of itself, through cuda-python."""

from __future__ import annotations

from gpuqs.devices.base import DeviceAttributes
from gpuqs.devices.bindings import bindings, checked


def read_attribute(index: int, attribute: str) -> int:
    """The value of a device's attribute; ``attribute`` is named as in CUDA's ``cudaDevAttr...``."""
    runtime = bindings("runtime")
    kind = getattr(runtime.cudaDeviceAttr, f"cudaDevAttr{attribute}")
    told = runtime.cudaDeviceGetAttribute(kind, index)
    return int(checked(told, f"cuda:{index} does not report its {attribute}"))


def read_attributes(index: int, name: str) -> DeviceAttributes:
    """All attributes that gpuqs uses; ``name`` is the device's."""

    def read(attribute: str) -> int:
        return read_attribute(index, attribute)

    return DeviceAttributes(
        name=name,
        compute_capability=(read("ComputeCapabilityMajor"), read("ComputeCapabilityMinor")),
        multiprocessors=read("MultiProcessorCount"),
        threads_per_multiprocessor=read("MaxThreadsPerMultiProcessor"),
        blocks_per_multiprocessor=read("MaxBlocksPerMultiprocessor"),
        shared_per_multiprocessor=read("MaxSharedMemoryPerMultiprocessor"),
        shared_per_block=read("MaxSharedMemoryPerBlockOptin"),
        shared_reserved=read("ReservedSharedMemoryPerBlock"),
        l2_bytes=read("L2CacheSize"),
        registers_per_multiprocessor=read("MaxRegistersPerMultiprocessor"),
    )
