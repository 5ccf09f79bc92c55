"""Timing in turns: intermittent noise affects all contenders equally."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.progress import track

#: Folder for the benches' results.
RESULTS = Path(__file__).parent / "results"
#: Most turns that a fast contender gets in a round.
TURNS = 8


@dataclass(frozen=True)
class Timing:
    """Seconds of one contender's calls."""

    median: float
    minimum: float


def progress(items: Iterable[Any], description: str) -> Iterable[Any]:
    """A progress bar if the output is a terminal."""
    return track(items, description, transient=True, disable=not Console().is_terminal)


def by_turns(contenders: Mapping[str, Callable[[], object]], rounds: int, budget: float = 60.0) -> dict[str, Timing]:
    """Time every contender in turns, after one call each to warm up.

    Each round has a different order, so that the contender after one that fills the caches changes. From the second
    round on, a contender that is faster than the average gets several turns, at most `TURNS`: even if slow ones allow
    only three rounds, a fast one's time is the median of some twenty calls.

    Parameters
    ----------
    contenders : dict of callables
    rounds : int
        Maximum number of rounds; at least three run.
    budget : float
        Seconds after which no further round starts.
    """
    for call in contenders.values():
        call()
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    order, shuffle = list(contenders), random.Random(0).shuffle
    began = time.perf_counter()
    for turn in progress(range(rounds), f"{len(contenders)} contenders"):
        if turn >= 3 and time.perf_counter() - began > budget:
            break
        if turn == 1:
            order = _turns({name: first for name, (first,) in seconds.items()})
        shuffle(order)
        for name in order:
            call = contenders[name]
            start = time.perf_counter()
            call()
            seconds[name].append(time.perf_counter() - start)
    return {name: Timing(float(np.median(s)), min(s)) for name, s in seconds.items()}


def _turns(seconds: dict[str, float]) -> list[str]:
    """The turns of a round, given each contender's time; they take at most twice as long as one call of each."""
    average = sum(seconds.values()) / max(1, len(seconds))
    return [name for name, took in seconds.items() for _ in range(max(1, min(TURNS, int(average / max(took, 1e-9)))))]


def processor() -> str:
    """The processor's name from the system; for AMD with its generation and whether AVX-512 is hidden."""
    try:
        with open("/proc/cpuinfo") as info:
            pairs = (line.partition(":")[::2] for line in info.read().partition("\n\n")[0].splitlines())
    except OSError:
        return "unknown processor"
    fields = {name.strip(): value.strip() for name, value in pairs}
    name = fields.get("model name", "unknown processor")
    generation = _zen(int(fields["cpu family"]), int(fields["model"])) if "AMD" in name else None
    if generation is None:
        return name
    hidden = generation >= 4 and "avx512f" not in fields["flags"].split()
    return f"{name} (Zen {generation}{', AVX2' if hidden else ''})"


def _zen(family: int, model: int) -> int | None:
    """The Zen generation of an AMD core, from its reported family and model."""
    if family == 25:
        return 4 if model in (*range(0x10, 0x20), *range(0x60, 0xB0)) else 3
    return {23: 2 if model >= 0x30 else 1, 26: 5}.get(family)


def processor_key() -> str:
    """The processor's name in the form used in file names."""
    return re.sub(r"[^a-z0-9]+", "-", processor().lower()).strip("-")


def keep(kind: str, report: Mapping[str, Any]) -> Path:
    """Write a bench's results on this processor; return the path without its suffix."""
    RESULTS.mkdir(exist_ok=True)
    stem = RESULTS / f"{kind}-{processor_key()}"
    stem.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
    return stem


def clock() -> float:
    """The clock reported by the system in GHz; 0 if it reports none."""
    try:
        with open("/proc/cpuinfo") as info:
            return next(float(line.partition(":")[2]) for line in info if line.startswith("cpu MHz")) / 1000
    except (OSError, StopIteration):
        return 0.0
