"""The work of `Model.tune`: the user's rows, batch sizes, and a search among the model's programs on a device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from numbers import Real
from typing import Any

import numpy as np

from gpuqs import cpu_fallback
from gpuqs.chooser import Chooser
from gpuqs.chunks import rows_for_cpu, rows_for_gpu
from gpuqs.devices import HOST, Device
from gpuqs.devices.foreign import is_on_device
from gpuqs.encoded import EncodedDocuments
from gpuqs.errors import InputError
from gpuqs.keywords import as_integer
from gpuqs.placement import documents_of
from gpuqs.programs import Programs
from gpuqs.threads import threads_of_call
from gpuqs.tuning.calibration import LIMIT, ensure
from gpuqs.tuning.machine import target
from gpuqs.tuning.plan import MAX_SIZES, Candidate, Plan
from gpuqs.tuning.search import Asked, Clock, search
from gpuqs.version import __version__

#: Rows that are used, by the kind of device, unless larger batches are asked for: these are scored at the same speed
#: per document.
MAX_ROWS = {"cpu": 10_000, "cuda": 1 << 20}
#: Batch sizes that are tuned by default, in addition to the number of rows that are used.
SIZES = {"cpu": (1, 10, 100, 1000), "cuda": (1, 10, 100, 1000, 10_000, 100_000)}
#: Upper limit of the budget in seconds: some thirty years.
MAX_BUDGET = 10**9


def tune(
    programs: Programs,
    chooser: Chooser,
    device: Device,
    X: Any,
    budget_s: float,
    batch_sizes: Sequence[int] | None,
    n_threads: int | None,
    progress: Callable[[int, int | None], object] | None,
) -> Plan:
    """Make a plan for the programs' model on the active device; the other parameters are those of `Model.tune`."""
    clock, here = Clock(_budget(budget_s)), cpu_fallback.machine()
    device.synchronize()  # raises before anything is added to a graph that is being captured
    if isinstance(X, EncodedDocuments):
        raise InputError("tune cannot use encoded documents, which only one engine scores; pass plain documents")
    if device is HOST and is_on_device(X):
        raise InputError("X is on a GPU, the model is not; use model.to('cuda').tune(X), or pass a host array")
    documents, where = documents_of(X, programs.forest, device)
    if documents.n == 0:
        raise InputError("X holds no documents; give some of those that will be scored")
    most = min(documents.n, MAX_ROWS[device.kind])
    if where is HOST:  # no more than are handed over at a time
        most = min(most, (rows_for_cpu if device is HOST else rows_for_gpu)(documents, programs.forest))
    usual = {n for n in SIZES[device.kind] if n < most} | {most}
    sizes = sorted(usual) if batch_sizes is None else _sizes(batch_sizes, documents.n)
    max_threads = min(cpu_fallback.effective_threads(n_threads), cpu_fallback.default_threads())  # as calls will
    if device is not HOST:
        max_threads = 1  # engines of GPUs do not use more
    elif clock.budget_s >= 2 * LIMIT:
        ensure(here)

    def default(n_documents: int) -> Candidate:
        way = chooser.usual(n_documents, device, here)
        threads = threads_of_call(chooser.threads(way, n_documents, here))
        return Candidate(way.engine, way.params, min(threads, max_threads))

    asked = Asked(
        programs.forest.narrowed if documents.narrow else programs.forest,
        documents.rows(0, max(most, sizes[-1])),
        max_threads,
        lambda name, n_documents: chooser.warm_cost(name, n_documents, here),
        default,
        lambda name, params: programs.trial(name, params, documents.narrow, device, here),
        chooser.usable_engines(device),
        progress or (lambda done, total: None),
        device,
    )
    try:
        found, made = search(asked, sizes, clock)
    finally:
        device.synchronize()  # after an interrupt, too: X is the caller's again
    for (name, params), program in made.items():
        programs.keep(program, name, params, documents.narrow, device, here)
    return Plan(__version__, *target(device, here), found)


def _budget(budget_s: float) -> float:
    if isinstance(budget_s, (bool, np.bool_)) or not isinstance(budget_s, (Real, np.number)):
        raise ValueError(f"budget_s must be a number of seconds, not {budget_s!r}")
    if not 0 <= budget_s <= MAX_BUDGET:
        raise ValueError(f"budget_s must be in [0, {MAX_BUDGET:,}] seconds, not {budget_s!r}")
    return float(budget_s)


def _sizes(batch_sizes: Sequence[int], n_documents: int) -> list[int]:
    if not isinstance(batch_sizes, Iterable):
        raise ValueError(f"batch_sizes must be a sequence of integers, not {batch_sizes!r}")
    sizes = sorted({as_integer(n, "batch_sizes", 1) for n in batch_sizes})
    if not 1 <= len(sizes) <= MAX_SIZES:
        raise ValueError(f"batch_sizes must hold 1 to {MAX_SIZES} sizes, not {len(sizes)}")
    if sizes[-1] > n_documents:
        raise InputError(f"X holds {n_documents:,} documents; batches of {sizes[-1]:,} need at least that many")
    return sizes
