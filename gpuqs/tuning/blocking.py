"""The cost model of cache blocking (paper 004, section 4): 28 range cases of DSD, SDS, DSDS and SDSD.

D stands for a loop over feature vectors, S for one over scorers; the innermost loops go over blocks of ``d`` vectors
and ``s`` scorers. The data access cost ratio ``T = TD + eta * TS`` counts accesses in units of one to the L1 cache.
A range case says which level holds the blocks: SDS2D1 has s scorers that fit L2 (not L1), and d vectors that fit L1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from gpuqs.tuning.machine import Hierarchy

#: Proposition 1: where a vector and a scorer fit L1, and eta c4 / d2 and c4 / s2 are small, one of these is best.
SURVIVING = ("DSD2", "DSD2S1", "SDS2D2", "SDS2D1")
#: If c4 / s2 is not small, one of these may be best, too.
OF_LARGE_SCORERS = ("SDS3D1", "SDS3D2")
#: What counts as much less than one access to L1.
SMALL = 0.5
#: Shares of a vector and a scorer that a computation may really touch: points that guided sampling tries.
SHARES = (1.0, 0.75, 0.5, 0.25)
#: Share of a cache that vectors may occupy; scorers may occupy as much.
HALF = 0.5
_INNER = tuple((outer, inner) for inner in (1, 2, 3, 4) for outer in range(inner, 5))


@dataclass(frozen=True)
class Case:
    """A range case; ``d_level`` or ``s_level`` is None if the loop has no such block."""

    loop: str
    d_level: int | None
    s_level: int | None

    @property
    def name(self) -> str:
        d, s = self.d_level, self.s_level
        return {"DSD": f"DSD{d}", "SDS": f"SDS{s}", "DSDS": f"DSD{d}S{s}", "SDSD": f"SDS{s}D{d}"}[self.loop]


#: All range cases, in the order of the paper's Table 4.
CASES = (
    *(Case("DSD", d, None) for d in (1, 2, 3, 4)),
    *(Case("DSDS", d, s) for d, s in _INNER),
    *(Case("SDSD", d, s) for s, d in _INNER),
    *(Case("SDS", None, s) for s in (1, 2, 3, 4)),
)


@dataclass(frozen=True)
class Work:
    """What is computed: ``n`` vectors by ``m`` scorers.

    Parameters
    ----------
    vector_bytes, scorer_bytes : float
        Average sizes; a scorer may be a tree, or a block of trees.
    n, m : int
    eta : float
        Accesses to scorers for each access to a vector.
    """

    vector_bytes: float
    scorer_bytes: float
    n: int
    m: int
    eta: float = 1.0


@dataclass(frozen=True)
class Point:
    """A range case with its blocks, and the data access cost ratio that is predicted."""

    case: Case
    d: float
    s: float
    cost: float


def exists(case: Case, work: Work, memory: Hierarchy) -> bool:
    """Whether a range case is to be considered: blocks are not held by a faster cache than one of their items is."""
    of_vector, of_scorer = memory.level(work.vector_bytes), memory.level(work.scorer_bytes)
    # The innermost loop keeps a scorer (DSD, SDSD) or a vector (SDS, DSDS), which displaces blocks from faster caches.
    inner = of_scorer if case.loop in ("DSD", "SDSD") else of_vector
    return all(level is None or level >= inner for level in (case.d_level, case.s_level))


def cost(case: Case, d: float, s: float, work: Work, memory: Hierarchy) -> float:
    """T of a range case with blocks of d vectors and s scorers: the paper's Tables 1, 8, 9 and 10.

    The miss rates that the paper leaves open are taken as the shares of the block that faster caches cannot hold.
    """
    c = memory.__getitem__
    of_vector, of_scorer = memory.level(work.vector_bytes), memory.level(work.scorer_bytes)
    to_vector = c(of_vector) if of_vector > 1 else 0.0  # what TD adds if one vector does not fit L1
    to_scorer = c(of_scorer) if of_scorer > 1 else 0.0
    i, j = case.d_level or 0, case.s_level or 0
    if case.loop == "DSD":
        once = 1 / work.m
        vectors = [1 + (c(2) + c(3) + c(4)) * once, 1 + (c(3) + c(4)) * once, 1 + c(4) * once, 1 + c(2) + c(3) + c(4)]
        of_vectors = vectors[i - 1] + (_missed(i, d, of_scorer, work, memory, once) if i in (2, 3) else 0.0)
        of_scorers = 1 + c(4) if of_scorer == 4 else 1 + to_scorer + c(4) / d
    elif case.loop == "SDS":
        of_scorers = [1 + c(4) / work.n, 1 + c(2), 1 + c(3), 1 + c(4)][j - 1]
        of_vectors = 1 + c(4) if of_vector == 4 else 1 + to_vector + c(4) / s
    elif case.loop == "DSDS":
        of_vectors = 1 + to_vector + (c(4) / work.m if i == 1 else c(i) / s)
        of_scorers = 1 + (c(j) if j > 1 else 0.0) + (0.0 if j == 4 else c(4) / d)
    else:
        of_scorers = 1 + to_scorer + (c(4) / work.n if j == 1 else c(j) / d)
        misses = _missed(i, d, of_scorer, work, memory, 0.0) if i in (2, 3) else 0.0
        of_vectors = 1 + c(4) if i == 4 else 1 + misses + c(4) / s
    return of_vectors + work.eta * of_scorers


def _missed(level: int, d: float, of_scorer: int, work: Work, memory: Hierarchy, least: float) -> float:
    """alpha c2 + alpha beta c3: accesses to a block of vectors that L1, and L2, let through."""
    block = max(d * work.vector_bytes, 1.0)
    missed = 0.0
    for below in range(1, level):
        rate = 1.0 if of_scorer > below else min(max(1 - HALF * memory.sizes[below - 1] / block, least), 1.0)
        missed += rate * memory[below + 1]
    return missed


def block_sizes(case: Case, work: Work, memory: Hierarchy, share: float = 1.0) -> tuple[float, float]:
    """d and s of a range case: as many items as fit half of the cache, if each uses a ``share`` of its bytes."""

    def fitting(level: int | None, each: float, most: int) -> float:
        if level is None:
            return 1.0
        held = most if level == 4 else HALF * memory.sizes[level - 1] / (share * each)
        return min(max(held, 1.0), most)

    return fitting(case.d_level, work.vector_bytes, work.n), fitting(case.s_level, work.scorer_bytes, work.m)


def vectors_beside(scorer_bytes: float, vector_bytes: float, cache_bytes: float) -> float:
    """Vectors that fill a cache together with one scorer: the constraint for large scorers, QuickScorer's blocks of
    trees (section 5.3)."""
    return (cache_bytes - scorer_bytes) / vector_bytes


def sample(
    work: Work, memory: Hierarchy, shares: Iterable[float] = SHARES, names: Iterable[str] | None = None
) -> list[Point]:
    """Guided sampling: a point for each range case and share, the cheapest first.

    ``names``: of the cases to consider; by default those of Proposition 1 if it holds, else all.
    """
    wanted = set(names if names is not None else surviving(work, memory))
    return sorted(_points(work, memory, shares, wanted), key=lambda point: point.cost)


def _points(work: Work, memory: Hierarchy, shares: Iterable[float], wanted: set[str]) -> Iterator[Point]:
    for case in CASES:
        if case.name in wanted and exists(case, work, memory):
            for share in shares:
                d, s = block_sizes(case, work, memory, share)
                yield Point(case, d, s, cost(case, d, s, work, memory))


def surviving(work: Work, memory: Hierarchy) -> tuple[str, ...]:
    """The range cases of which one is best: those of Proposition 1, or all if its conditions do not hold."""
    fits = max(work.vector_bytes, work.scorer_bytes) <= memory.sizes[0]
    d2, s2 = HALF * memory.sizes[1] / work.vector_bytes, HALF * memory.sizes[1] / work.scorer_bytes
    if not fits or work.eta * memory[4] / d2 > SMALL:
        return tuple(case.name for case in CASES)
    return SURVIVING if memory[4] / s2 <= SMALL else (*SURVIVING, *OF_LARGE_SCORERS)


def case_of(loop: str, d: float, s: float, work: Work, memory: Hierarchy) -> Case:
    """The range case that blocks of d vectors and s scorers lie in."""
    d_level = memory.level(d * work.vector_bytes, HALF)
    s_level = memory.level(s * work.scorer_bytes, HALF)
    inner = memory.level(work.scorer_bytes if loop in ("DSD", "SDSD") else work.vector_bytes)
    d_level, s_level = max(d_level, inner), max(s_level, inner)
    if loop == "DSD":
        return Case(loop, d_level, None)
    if loop == "SDS":
        return Case(loop, None, s_level)
    # Of the two inner loops, the outer one's block is in no faster cache than the inner one's.
    return Case(loop, max(d_level, s_level), s_level) if loop == "DSDS" else Case(loop, d_level, max(d_level, s_level))
