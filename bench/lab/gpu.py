"""`qs_gpu` in the tables: documents lie on the device, as in paper 000; without a GPU, the reason is given instead."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from baselines.tuned import Call, Job

from gpuqs.devices import find_device
from gpuqs.errors import GpuqsError


@cache
def absent() -> str | None:
    """Why nothing is timed on a GPU, or None."""
    try:
        find_device("cuda")
    except GpuqsError as problem:
        return str(problem).partition("\n")[0]
    return None


def name() -> str:
    """Name of the GPU."""
    told: str = find_device("cuda").attributes.name
    return told


def scorer(job: Job, tau: int | None) -> Call:
    """A call that scores documents on the device, in tree blocks of ``tau`` trees if given."""
    from gpuqs.engines.gpu.qs_gpu import QsGpu
    from gpuqs.engines.gpu.qs_placed import QsSettings

    device = find_device("cuda")
    engine = QsGpu(QsSettings(tree_block=tau))
    program = engine.prepare(job.forest, "exact", device=device)
    with device.active():
        X = device.upload(job.X)
        sums = device.empty((len(job.X), 1), program.values.sum_dtype)

    def call() -> Any:
        with device.active():
            engine.score(program, X, sums)
            device.synchronize()
        return sums

    return call


def differing(scores: Any, expected: np.ndarray) -> int:
    """How many sums, which are added in another order than the trees', are off by more than rounding explains."""
    import cupy

    return int((~np.isclose(cupy.asnumpy(scores)[:, 0], expected, rtol=1e-9, atol=1e-9)).sum())
