"""Energy of the processor's packages, from Linux's RAPL counters (`/sys/class/powercap`)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

POWERCAP = Path("/sys/class/powercap")


class NoEnergy(Exception):
    """Why the counters cannot be read here."""


@dataclass(frozen=True)
class Zone:
    """The counter of one package: microjoules, starting again at zero beyond ``most``."""

    file: Path
    most: int

    def read(self) -> int:
        return int(self.file.read_text())


def packages(powercap: Path = POWERCAP) -> list[Zone]:
    """The counters of all packages; counters of their parts are left out, since packages include them."""
    folders = sorted(folder for folder in powercap.glob("*-rapl:*") if folder.name.count(":") == 1)
    if not folders:
        raise NoEnergy(f"{powercap} has no RAPL counters: virtual machines show none")
    try:
        zones = [Zone(f / "energy_uj", int((f / "max_energy_range_uj").read_text())) for f in folders]
        for zone in zones:
            zone.read()
    except OSError as problem:
        raise NoEnergy(f"{problem.filename} cannot be read: {problem.strerror}") from None
    return zones


def microjoules(call: Callable[[], object], zones: list[Zone], seconds: float = 0.3) -> float:
    """Microjoules of one call, for all packages and everything that runs there; repeated for ``seconds``."""
    began, before, calls = time.perf_counter(), [zone.read() for zone in zones], 0
    while not calls or time.perf_counter() - began < seconds:
        call()
        calls += 1
    used = [(zone.read() - start) % (zone.most + 1) for zone, start in zip(zones, before, strict=True)]
    return sum(used) / calls
