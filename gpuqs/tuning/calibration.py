"""A short calibration of the engines' costs for this machine: one small forest, a factor for each engine, kept on disk.

The constants in `Engine.cost` were measured on one processor. Others scale them almost equally. A factor says how much
longer an engine's kernels take than predicted, relative to the median of the engines.

`Model.warm_up`, `Model.tune` and ``gpuqs calibrate`` calibrate, once per machine. A call that chooses an engine only
reads the factors: preparing a forest for six engines takes up to a tenth of a second in a new process, too long for a
call.
"""

from __future__ import annotations

import json
import math
import os
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

import numpy as np

from gpuqs import cpu_fallback
from gpuqs.cpu_fallback import Machine
from gpuqs.engines import ENGINES, Program
from gpuqs.engines.base import CALL
from gpuqs.engines.walk import gathers
from gpuqs.files import cache_folder, replacing
from gpuqs.forest import Forest
from gpuqs.forks import Lock
from gpuqs.layout.ranks import build_ranks
from gpuqs.tuning.machine import processor
from gpuqs.version import __version__

#: Upper limit of the seconds of a calibration, including all preparation; after that it stops, and no factor is used.
#: An idle machine takes a tenth of that.
LIMIT = 0.5
#: The smallest factor that is believed; only a busy machine gives smaller ones.
MIN_FACTOR = 0.4
#: The largest factor that is believed.
MAX_FACTOR = 2.5
#: The engines that are measured; `qs_oblivious` runs on bwqs's kernel.
MEASURED = ("bitslice", "rankwalk", "vqs", "qs", "bwqs", "walk")
_ALIKE = {"qs_oblivious": "bwqs"}
#: Time divided by predicted cost, with this forest on the machine where costs were measured; only ratios matter.
_AT_HOME = {"bitslice": 0.75, "rankwalk": 1.4, "vqs": 0.87, "qs": 0.83, "bwqs": 0.91, "walk": 1.4}
#: The same where gathers are fast, which they are not on that machine: measured on an Intel Xeon (Emerald Rapids).
_WITH_GATHERS = {"bitslice": 1.0, "rankwalk": 1.45, "vqs": 0.65, "walk": 1.95}
#: The same for `rankwalk` without jumps: measured on an AMD EPYC (Zen 4) with its AVX-512 hidden.
_RANKS_WALKED = 0.9
#: Documents of the calls that are measured.
SIZES = (2, 24)
#: How often each is measured; the shortest time counts.
_ROUNDS = 12
#: Engines predicted to take more than this many times as long as the best are not measured: they will not be chosen.
_TOO_SLOW = 3.0
#: Trees of the small forest that is scored.
_TREES = 100
#: Leaves of each of its trees.
_LEAVES = 64
#: Its features.
_FEATURES = 136
#: Distinct thresholds of each of its features.
_THRESHOLDS = 100
#: Upper limit of the bytes that are read of a file with factors.
_MAX_BYTES = 4096
#: Increased when the meaning of factors changes.
_FORMAT = 7

_lock = Lock()
_known: dict[Machine, dict[str, float]] = {}
_asked: set[Machine] = set()


def factor(engine: str, machine: Machine) -> float:
    """The factor for an engine's predicted cost on this machine, without the fixed cost of a call.

    It is only read, never measured here.
    """
    factors = _known.get(machine)
    if factors is None:
        factors = _known.setdefault(machine, _read(_path(machine)) or {})
    return factors.get(_ALIKE.get(engine, engine), 1.0)


def ensure(machine: Machine) -> None:
    """Calibrate, unless this was done before on this machine, is turned off, or could not be kept."""
    path = _path(machine)
    if path is not None and machine not in _asked and _read(path) is None:
        _asked.add(machine)  # this process does not try again if the machine is too busy
        calibrate_and_keep(machine, path)


def recalibrate(machine: Machine) -> tuple[dict[str, float], Path | None]:
    """Calibrate even if factors are kept; return the factors and where they are kept, or None if they are not."""
    path = _path(machine)
    return calibrate_and_keep(machine, path), path


def calibrate_and_keep(machine: Machine, path: Path | None) -> dict[str, float]:
    """Calibrate, and keep the factors; nothing is measured if they cannot be kept.

    Factors that were kept before stay if the machine is too busy now.
    """
    with suppress(OSError), _lock.held():
        if path is None:
            return {}
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not os.access(path.parent, os.W_OK) or (os.path.lexists(path) and not stat.S_ISREG(path.lstat().st_mode)):
            return {}
        measured = calibrate()
        if measured:
            with replacing(path) as file:
                file.write(json.dumps(measured).encode())
            _known[machine] = measured
            cpu_fallback.costs_changed()
        return measured
    return {}


def _path(machine: Machine) -> Path | None:
    """Where factors are kept; None if there is no such place, or if ``GPUQS_CALIBRATE=0`` turns them off."""
    home = cache_folder()
    if os.environ.get("GPUQS_CALIBRATE") == "0" or home is None:
        return None
    key = repr((processor(), machine, __version__, _FORMAT))
    return home / "calibration" / sha256(key.encode()).hexdigest()


def _read(path: Path | None) -> dict[str, float] | None:
    """The factors that were kept; None if there is no file, or if it is damaged or not ours."""
    try:
        if path is None or not stat.S_ISREG(path.stat().st_mode):
            return None
        with open(path, "rb") as file:
            kept = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    sound = isinstance(kept, dict) and all(
        name in MEASURED and type(value) in (int, float) and MIN_FACTOR <= value <= MAX_FACTOR
        for name, value in kept.items()
    )
    return {name: float(value) for name, value in kept.items()} if sound else None


def calibrate(now: Callable[[], float] = time.perf_counter, limit: float = LIMIT) -> dict[str, float]:
    """A factor for each engine, around 1; none if the time does not suffice."""
    ratios = measure(now, limit)
    if not ratios:
        return {}
    # The median engine keeps its cost, because a processor's overall speed changes no choice.
    middle = float(np.exp(np.median(np.log(list(ratios.values())))))
    return {name: float(np.clip(ratio / middle, MIN_FACTOR, MAX_FACTOR)) for name, ratio in ratios.items()}


def measure(now: Callable[[], float], limit: float) -> Mapping[str, float]:
    """Each engine's shortest calls relative to what is expected; none if the time does not suffice."""
    began, forest = now(), small_forest()
    X, ranks = _numbers((max(SIZES), _FEATURES)).astype(np.float32), build_ranks(forest)
    costs = {(name, n): _kernels(name, forest, n) for name in MEASURED if name in ENGINES for n in SIZES}
    best = {n: min(cost for (_, size), cost in costs.items() if size == n) for n in SIZES}
    programs: dict[str, Program] = {}
    for name in dict.fromkeys(name for name, _ in costs):
        if now() - began > limit / 2:
            return {}
        programs[name] = ENGINES[name].prepare(forest, "exact", ranks=lambda: ranks)
    least: dict[tuple[str, int], float] = {}
    sums = np.empty((max(SIZES), 1))
    for turn in range(1 + _ROUNDS):  # the first makes machine code and allocates scratch
        for (name, n), cost in costs.items():
            if cost > _TOO_SLOW * best[n]:
                continue  # it will not be chosen for this size
            if now() - began > limit:
                return {}
            start = now()
            ENGINES[name].score(programs[name], X[:n], sums[:n])
            taken = now() - start
            if turn:
                least[name, n] = min(least.get((name, n), taken), taken)
    ratios: dict[str, list[float]] = {}
    for (name, n), seconds in least.items():
        ratios.setdefault(name, []).append(math.log(seconds * 1e6 / costs[name, n]))
    return {name: math.exp(sum(logs) / len(logs)) / at_home(name) for name, logs in ratios.items()}


def at_home(name: str) -> float:
    """An engine's time divided by its predicted cost on machines where the costs are right."""
    if name in _WITH_GATHERS and gathers():
        return _WITH_GATHERS[name]
    if name == "rankwalk" and not cpu_fallback.instruction_set().has_jumps:
        return _RANKS_WALKED
    return _AT_HOME[name]


def _kernels(name: str, forest: Forest, n_documents: int) -> float:
    """An engine's cost without the fixed cost of a call."""
    cost = ENGINES[name].cost(forest, n_documents)
    assert cost is not None
    return cost - CALL


def small_forest() -> Forest:
    """Balanced trees over a grid of thresholds."""
    inner = _LEAVES - 1
    n_nodes = _TREES * inner
    child = 2 * np.arange(inner)[:, None] + np.array([1, 2])
    child = np.where(child < inner, child, inner - 1 - child).astype(np.int32)  # beyond the nodes are leaves: ~i
    return Forest(
        n_features=_FEATURES,
        node_offsets=np.arange(_TREES + 1, dtype=np.int64) * inner,
        leaf_offsets=np.arange(_TREES + 1, dtype=np.int64) * _LEAVES,
        feature=(_numbers((n_nodes,)) * _FEATURES).astype(np.int32),
        threshold=np.ceil(_numbers((n_nodes,), 1) * _THRESHOLDS) / _THRESHOLDS,
        left=np.tile(child[:, 0], _TREES),
        right=np.tile(child[:, 1], _TREES),
        routing=np.zeros(n_nodes, np.uint8),
        leaf_value=_numbers((_TREES * _LEAVES, 1)),
    )


def _numbers(shape: tuple[int, ...], skipped: int = 0) -> np.ndarray:
    """Numbers in [0, 1) that look random; NumPy's generators take as long to import as all else here."""
    return (np.arange(skipped, skipped + math.prod(shape)) * 0.6180339887498949 % 1.0 * 997.13 % 1.0).reshape(shape)
