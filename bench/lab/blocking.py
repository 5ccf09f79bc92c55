"""Paper 004's range cases: blocking orders, with as many documents and trees as fit in a level of the caches."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from datasets import SHAPES

from lab.plan import Given, Point

#: Guided sampling's parts of what would fit (paper 004, section 4.2, with half a cache for each of d and s).
MU = (1.0, 0.75, 0.5, 0.25)
#: Bytes of a node, of documents' values.
NODE, VALUE = 24, 4
#: The cases that Proposition 1 leaves.
COMPETITIVE = ("DSD2", "DSD2S1", "SDS2D1", "SDS2D2")
#: Where a system tells no cache sizes: of the papers' machines.
USUAL = (32 << 10, 256 << 10, 8 << 20)


@cache
def cache_sizes() -> tuple[int, int, int]:
    """Bytes of the first core's L1 data, L2 and L3 caches."""
    found = dict(zip((1, 2, 3), USUAL, strict=True))
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        try:
            kind, level, size = ((index / name).read_text().strip() for name in ("type", "level", "size"))
        except OSError:
            continue
        if kind != "Instruction":
            found[int(level)] = int(size.rstrip("KM")) << (20 if size.endswith("M") else 10)
    return found[1], found[2], found[3]


def fitting(level: int, item: int, most: int, mu: float) -> int:
    """Items of so many bytes that half a cache holds, times µ; all of them for level 4, the memory."""
    if level == 4:
        return most
    return max(1, min(most, int(mu * 0.5 * cache_sizes()[level - 1] / item)))


def case(name: str, point: Point, mu: float) -> tuple[str, Given]:
    """A case's order, and d and s of it; "DSD2S1" is DSDS whose d fits in L2, and whose s fits in L1."""
    letters, levels = name[:3], [int(c) for c in name[3:] if c.isdigit()]
    document = SHAPES[point.model.shape].n_features * VALUE
    tree = (2 * point.model.leaves - 1) * NODE
    first, second = (document, point.documents), (tree, point.model.trees)
    if letters == "SDS":
        first, second = second, first
    sizes = [fitting(level, *item, mu) for level, item in zip(levels, (first, second), strict=False)]
    order = letters if len(sizes) == 1 else letters + letters[1]
    return order, dict(zip("ds" if letters == "DSD" else "sd", sizes, strict=False))


CASES = tuple(
    [f"DSD{i}" for i in (1, 2, 3, 4)]
    + [f"DSD{i}S{j}" for j in (1, 2, 3, 4) for i in range(j, 5)]
    + [f"SDS{i}D{j}" for j in (1, 2, 3, 4) for i in range(j, 5)]
    + [f"SDS{i}" for i in (1, 2, 3, 4)]
)


def choices(name: str, point: Point, mus: tuple[float, ...] = (1.0, 0.5)) -> tuple[Given, ...]:
    """What guided sampling tries of a case."""
    tried = [dict(case(name, point, mu)[1]) for mu in mus]
    return tuple(each for at, each in enumerate(tried) if each not in tried[:at])


def order_of(name: str) -> str:
    """The system that runs a case."""
    return name[:3] if sum(c.isdigit() for c in name) == 1 else name[:3] + name[1]
