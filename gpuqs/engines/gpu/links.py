"""Links and class decisions on the device, by our own kernel, because CuPy's functions treat denormals as zeros."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuqs.devices.base import GpuDevice
from gpuqs.engines.gpu import kernels

THREADS = 256


def apply_link(device: GpuDevice, link: str, scale: float, divisor: float, sums: Any, out: Any) -> None:
    """Fill ``out`` ([D, K], of the sums' type; [D, 1] from "argmax") with the link's values of sums / divisor.

    Parameters
    ----------
    device : GpuDevice
    link, scale
        As for `gpuqs.links.apply_link`.
    divisor : float
        The trees that the sums are averages over, or 1.
    sums : float32 or float64 [D, K], C order
        May be ``out`` if that has K columns.
    out : array, C order
    """
    if link == "identity" and divisor == 1 and sums is out:
        return
    _launch(device, kernels.apply_link(sums.dtype, link), scale, divisor, sums, out)


def find_classes(device: GpuDevice, decision: str, scores: Any, out: Any) -> None:
    """Fill ``out`` (int64 [D, K], C order; [D, 1] from "argmax") with class numbers.

    ``decision`` is one of `gpuqs.links.CLASS_DECISIONS`, ``scores`` is like the sums of `apply_link`.
    """
    _launch(device, kernels.class_numbers(scores.dtype, decision), 1, 1, scores, out)


def _launch(device: GpuDevice, name: str, scale: float, divisor: float, sums: Any, out: Any) -> None:
    n, real = sums.shape[0], sums.dtype.type
    if n:
        device.kernel("apply_link.cu", name, kernels.registers(device.attributes.threads_per_multiprocessor, name))(
            (-(-n // THREADS),),
            (THREADS,),
            (sums, np.int64(n), np.int32(sums.shape[1]), real(divisor), real(scale), np.int32(out.shape[1]), out),
        )
