"""What tuning needs to know of a machine: its name, its caches and their relative latencies; a GPU's name."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple, cast

from gpuqs.cpu_fallback import Machine, latency
from gpuqs.devices.base import Device, GpuDevice
from gpuqs.engines.base import CacheSizes

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_CPUINFO = Path("/proc/cpuinfo")
#: Bytes of the L1, L2 and L3 caches if the system does not report them: those of common processors.
COMMON = (32 << 10, 512 << 10, 8 << 20)
#: Upper limit of the memory that a pointer chase goes through, in bytes.
_MAX_CHASED = 64 << 20
#: Steps of a chase, which take some milliseconds.
_STEPS = 20_000
#: Upper limit of a latency ratio; larger readings come from a machine that slept.
_MAX_RATIO = 1000.0


@dataclass(frozen=True)
class Hierarchy:
    """The levels of memory of one core.

    Parameters
    ----------
    sizes : (int, int, int)
        Bytes of the caches L1, L2 and L3.
    ratios : (float, float, float)
        c2, c3 and c4: the cost of an access to L2, L3 and memory, in accesses to L1.
    """

    sizes: CacheSizes
    ratios: tuple[float, float, float]

    def level(self, n_bytes: float, share: float = 1.0) -> int:
        """The fastest level that holds ``n_bytes`` in a ``share`` of it: 1, 2 or 3; 4: memory."""
        return next((i for i, size in enumerate(self.sizes, 1) if n_bytes <= share * size), 4)

    def __getitem__(self, level: int) -> float:
        """The cost of an access to a level, in accesses to L1."""
        return (1.0, *self.ratios)[level - 1]


@cache
def processor() -> str:
    """The processor's name, as the system reports it."""
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
    except OSError:
        text = ""
    named = re.search(r"^model name\s*:\s*(.+)$", text, re.M)
    name = named[1] if named else platform.processor() or platform.machine()
    model = re.findall(r"^(?:cpu family|model|stepping)\s*:\s*(\d+)$", text, re.M)  # virtual machines hide the name
    return " ".join([name.strip(), *model])[:200] or "unknown processor"


class Target(NamedTuple):
    """What a plan is made on; it is used only on the same.

    Parameters
    ----------
    processor : str
        Name of the processor, or of the GPU.
    isa : str
        The instruction set; for a GPU, its `Device.kind`.
    compiled : bool
        Whether tree programs are machine code.
    """

    processor: str
    isa: str
    compiled: bool

    @property
    def kind(self) -> str:
        """The `Device.kind`."""
        return "cuda" if self.isa == "cuda" else "cpu"


def target(device: Device, machine: Machine) -> Target:
    """A device, as plans name it."""
    if device.kind == "cpu":
        return Target(processor(), *machine)
    return Target(cast(GpuDevice, device).attributes.name[:200], device.kind, True)


@cache
def hierarchy() -> Hierarchy:
    """This machine's hierarchy, measured at the first call, in some ten milliseconds."""
    return Hierarchy(cache_sizes(), measured_ratios(cache_sizes(), latency))


@cache
def cache_sizes() -> CacheSizes:
    """`read_sizes` of this machine."""
    return read_sizes(_CACHES)


def read_sizes(folder: Path) -> CacheSizes:
    """Bytes of the data caches that the system reports, or else those of `COMMON`."""
    sizes = dict(enumerate(COMMON, 1))
    for index in sorted(folder.glob("index*")):
        try:
            told = ((index / name).read_text(encoding="utf-8", errors="replace") for name in ("level", "type", "size"))
            level, kind, size = map(str.strip, told)
        except OSError:
            continue
        counted = re.fullmatch(r"(\d{1,9})([KM]?)", size)
        if kind != "Instruction" and level in "123" and counted and int(counted[1]):
            sizes[int(level)] = int(counted[1]) << {"": 0, "K": 10, "M": 20}[counted[2]]
    first, second = sizes[1], max(sizes[2], sizes[1])
    return first, second, max(sizes[3], second)


def measured_ratios(sizes: CacheSizes, chase: Callable[[int, int], float]) -> tuple[float, float, float]:
    """c2, c3 and c4: by pointer chases through half of each cache, and through more than the last one holds."""
    places = [min(size // 2, _MAX_CHASED) for size in sizes] + [min(2 * sizes[2], _MAX_CHASED)]
    readings = [chase(place, _STEPS) for place in places]
    first, ratios, least = max(readings[0], 1e-3), [], 1.0
    for reading in readings[1:]:
        least = min(max(least, reading / first), _MAX_RATIO)  # no level is faster than the one before it
        ratios.append(least)
    return ratios[0], ratios[1], ratios[2]
