"""Paper 004's cost model against the paper's own numbers, and Proposition 1 by brute force."""

from __future__ import annotations

from itertools import product

import pytest

from gpuqs.tuning.blocking import (
    CASES,
    OF_LARGE_SCORERS,
    SMALL,
    SURVIVING,
    Case,
    Work,
    block_sizes,
    case_of,
    cost,
    exists,
    sample,
    surviving,
    vectors_beside,
)
from gpuqs.tuning.machine import Hierarchy

#: The paper's AMD Bulldozer (section 5.1): caches of 16 KB, 1 MB and 2 MB; costs c2, c3 and c4.
BULLDOZER = Hierarchy((16 << 10, 1 << 20, 2 << 20), (7.3, 25.1, 80.9))
C2, C3, C4 = BULLDOZER.ratios
FEATURES = {"Yahoo": 700, "MS": 136, "MQ": 46}
#: Bytes per leaf of a tree from which Table 3's bounds follow.
LEAF = 64
BY_NAME = {case.name: case for case in CASES}


def work(features: int, leaves: int, n: int = 10_000, m: int = 20_000) -> Work:
    return Work(4 * features, LEAF * leaves, n, m)


def test_there_are_28_range_cases_each_once() -> None:
    assert len(CASES) == len(BY_NAME) == 28
    assert [sum(case.loop == loop for case in CASES) for loop in ("DSD", "SDS", "DSDS", "SDSD")] == [4, 4, 10, 10]


@pytest.mark.parametrize(
    ("leaves", "bounds"), {10: (25, 1638, 3276), 50: (5, 327, 655), 150: (1, 109, 218)}.items(), ids=str
)
def test_scorers_that_fit_each_cache(leaves: int, bounds: tuple[int, int, int]) -> None:
    """Table 3. With a share of one half, half of the cache counts as all of it."""
    cases = (Case("SDS", None, level) for level in (1, 2, 3))
    assert tuple(int(block_sizes(case, work(136, leaves), BULLDOZER, 0.5)[1]) for case in cases) == bounds


@pytest.mark.parametrize(
    ("data", "bounds"), {"Yahoo": (5, 373, 747), "MS": (30, 1928, 3856), "MQ": (89, 5720, 11440)}.items(), ids=str
)
def test_vectors_that_fit_each_cache(data: str, bounds: tuple[int, int, int]) -> None:
    """Table 2; the paper's larger bounds differ by up to 0.4 % from 4 bytes per feature."""
    one = Work(4 * FEATURES[data], 640, 10**6, 10**6)
    got = [block_sizes(Case("DSD", level, None), one, BULLDOZER, 0.5)[0] for level in (1, 2, 3)]
    assert int(got[0]) == bounds[0]
    assert got[1:] == pytest.approx(bounds[1:], rel=0.004)


def test_blocks_take_half_of_a_cache_and_more_of_partly_read_vectors() -> None:
    for share, level in product((1.0, 0.75, 0.5, 0.25), (1, 2, 3)):
        d, s = block_sizes(BY_NAME[f"DSD{level}S{level}"], work(136, 10), BULLDOZER, share)
        size = BULLDOZER.sizes[level - 1]
        assert d == pytest.approx(0.5 * size / (share * 4 * 136))
        assert s == pytest.approx(0.5 * size / (share * 640))
    assert block_sizes(BY_NAME["DSD4S4"], work(136, 10, 123, 45), BULLDOZER) == (123, 45)


@pytest.mark.parametrize(
    ("name", "want"),
    {
        # Table 1
        "DSD1": 1 + C4 / 10 + 1 + (C2 + C3 + C4) / 20_000,
        "DSD4": 1 + C4 / 10 + 1 + C2 + C3 + C4,
        # Table 8
        "SDS1": 1 + C4 / 20 + 1 + C4 / 10_000,
        "SDS2": 1 + C4 / 20 + 1 + C2,
        "SDS3": 1 + C4 / 20 + 1 + C3,
        "SDS4": 1 + C4 / 20 + 1 + C4,
        # Table 9
        "DSD1S1": 1 + C4 / 20_000 + 1 + C4 / 10,
        "DSD2S1": 1 + C2 / 20 + 1 + C4 / 10,
        "DSD3S1": 1 + C3 / 20 + 1 + C4 / 10,
        "DSD4S1": 1 + C4 / 20 + 1 + C4 / 10,
        "DSD2S2": 1 + C2 / 20 + 1 + C2 + C4 / 10,
        "DSD3S2": 1 + C3 / 20 + 1 + C2 + C4 / 10,
        "DSD4S2": 1 + C4 / 20 + 1 + C2 + C4 / 10,
        "DSD3S3": 1 + C3 / 20 + 1 + C3 + C4 / 10,
        "DSD4S3": 1 + C4 / 20 + 1 + C3 + C4 / 10,
        "DSD4S4": 1 + C4 / 20 + 1 + C4,
        # Table 10
        "SDS1D1": 1 + C4 / 10_000 + 1 + C4 / 20,
        "SDS2D1": 1 + C2 / 10 + 1 + C4 / 20,
        "SDS3D1": 1 + C3 / 10 + 1 + C4 / 20,
        "SDS4D1": 1 + C4 / 10 + 1 + C4 / 20,
        "SDS4D4": 1 + C4 / 10 + 1 + C4,
    }.items(),
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_costs_are_those_of_the_tables(name: str, want: float) -> None:
    """With d = 10 and s = 20; the next test covers the miss rates that the paper leaves open."""
    assert cost(BY_NAME[name], 10, 20, work(136, 10), BULLDOZER) == pytest.approx(want)


def test_miss_rates_that_the_paper_leaves_open() -> None:
    """alpha2 < alpha3, both at most 1; alpha beta at least 1/m; a larger d misses more."""
    one = work(136, 10)
    for i, loop in product((2, 3), ("DSD", "SDSD")):
        name = f"DSD{i}" if loop == "DSD" else f"SDS{i}D{i}"
        d, s = block_sizes(BY_NAME[name], one, BULLDOZER)
        of_scorers = C4 / d if loop == "DSD" else BULLDOZER[i] / d
        others = {"DSD2": (C3 + C4) / one.m, "DSD3": C4 / one.m}.get(name, C4 / s)
        missed = cost(BY_NAME[name], d, s, one, BULLDOZER) - 2 - of_scorers - others
        below = sum(BULLDOZER.ratios[: i - 1])
        assert 0.5 * below < missed <= below
        assert cost(BY_NAME[name], 2 * d, s, one, BULLDOZER) > cost(BY_NAME[name], d, s, one, BULLDOZER) - of_scorers


@pytest.mark.parametrize(
    ("scorer", "vector", "counts"),
    [
        (1 << 10, 1 << 10, (4, 10, 10, 4)),
        (1 << 19, 1 << 10, (3, 10, 6, 4)),  # scenario 2: DSD and SDSD lose the content of L1
        (1 << 21, 1 << 10, (2, 10, 3, 4)),
        (1 << 23, 1 << 10, (1, 10, 1, 4)),
        (1 << 10, 1 << 19, (4, 6, 10, 3)),  # and with large vectors SDS and DSDS do
        (1 << 10, 1 << 21, (4, 3, 10, 2)),
        (1 << 10, 1 << 23, (4, 1, 10, 1)),
    ],
)
def test_scenarios_leave_as_many_cases_as_the_paper_says(
    scorer: int, vector: int, counts: tuple[int, int, int, int]
) -> None:
    one = Work(vector, scorer, 100, 100)
    there = [case.loop for case in CASES if exists(case, one, BULLDOZER)]
    assert tuple(there.count(loop) for loop in ("DSD", "DSDS", "SDSD", "SDS")) == counts


def test_larger_items_cost_what_the_paper_adds() -> None:
    small = work(136, 10)
    large_scorer, huge_scorer = (Work(small.vector_bytes, size, small.n, small.m) for size in (1 << 19, 1 << 23))
    large_vector = Work(1 << 19, small.scorer_bytes, small.n, small.m)
    for case, more in ((BY_NAME["DSD4"], C2), (BY_NAME["SDS4D2"], C2)):
        got = cost(case, 10, 20, large_scorer, BULLDOZER) - cost(case, 10, 20, small, BULLDOZER)
        missed = 0.0 if case.loop == "DSD" else C2  # alpha becomes 1; with d = 10 nothing was missed before
        assert got == pytest.approx(more + missed)
    assert cost(BY_NAME["DSD4"], 10, 20, huge_scorer, BULLDOZER) == pytest.approx(2 + C4 + C2 + C3 + C4)
    for name in ("DSD2S2", "SDS2"):
        got = cost(BY_NAME[name], 10, 20, large_vector, BULLDOZER) - cost(BY_NAME[name], 10, 20, small, BULLDOZER)
        assert got == pytest.approx(C2)


@pytest.mark.parametrize(("data", "leaves"), [("Yahoo", 10), ("Yahoo", 50), ("MS", 10), ("MS", 50), ("MQ", 10)])
def test_the_papers_data_sets_leave_the_four_cases(data: str, leaves: int) -> None:
    one = work(FEATURES[data], leaves)
    assert surviving(one, BULLDOZER) == SURVIVING
    points = sample(one, BULLDOZER)
    assert {point.case.name for point in points} == set(SURVIVING) and len(points) == 4 * 4
    assert points == sorted(points, key=lambda point: point.cost)


def test_the_papers_block_of_trees() -> None:
    """Section 5.3: Yahoo, F = 700, L = 64, tau = 1000, L3 = 2 MB: 75.4 documents of 4 F + L tau / 8 bytes each, plus
    4 F bytes of offsets and, per tree, (12 + L / 8) L bytes of thresholds, tree ids, leaves and bitvectors."""
    features, leaves, trees = 700, 64, 1000
    scorer = 4 * features + (12 + leaves / 8) * leaves * trees
    d = vectors_beside(scorer, 4 * features + leaves / 8 * trees, 2 << 20)
    assert d == pytest.approx(75.4, abs=0.05)


def test_large_trees_leave_six_cases() -> None:
    """Section 4.2: 150 leaves, c4 / s2 close to 1."""
    assert surviving(work(700, 150), BULLDOZER) == (*SURVIVING, *OF_LARGE_SCORERS)
    assert len(surviving(work(10_000, 10), BULLDOZER)) == 28


MACHINES = [
    Hierarchy((l1 << 10, l2 << 10, l3 << 20), (c2, c2 * c3, c2 * c3 * c4))
    for l1, l2, l3, c2, c3, c4 in product((16, 32, 48), (256, 1024, 2048), (2, 32), (3, 7.3), (3, 4), (2.5, 4))
    if l2 << 10 < l3 << 20
]


def test_proposition_1_by_brute_force() -> None:
    """The best of all 28 cases survives, up to the terms that the proposition neglects."""
    tried = exact = 0
    for machine, features, leaves, eta in product(MACHINES, (46, 136, 220, 700), (8, 10, 32, 50), (1.0, 2.0, 4.0)):
        one = Work(4 * features, LEAF * leaves, 10**6, 10**6, eta)  # neither n vectors nor m scorers fit in L3
        if surviving(one, machine) != SURVIVING:
            continue
        every = sample(one, machine, (1.0,), BY_NAME)
        best = min(point.cost for point in every)
        of_four = min(point.cost for point in every if point.case.name in SURVIVING)
        d2, s2 = block_sizes(BY_NAME["DSD2S2"], one, machine)
        dropped = one.eta * machine[4] / d2 + machine[4] / s2
        assert of_four <= best + dropped + 1e-3, (machine, one, every[0])
        tried, exact = tried + 1, exact + (of_four <= best)
    assert tried > 500
    assert exact > 0.8 * tried


def test_the_proposition_needs_its_conditions() -> None:
    """With vectors that no cache holds, another case is best, so the brute-force test can fail."""
    one = Work(1 << 18, 640, 10**6, 10**6)
    every = sample(one, BULLDOZER, (1.0,), BY_NAME)
    of_four = min(point.cost for point in every if point.case.name in SURVIVING)
    assert every[0].case.name not in SURVIVING and of_four > every[0].cost + SMALL


def test_points_lie_in_their_cases() -> None:
    one = work(136, 10, 10**6, 10**6)
    for point in sample(one, BULLDOZER, (1.0,), BY_NAME):
        assert case_of(point.case.loop, point.d, point.s, one, BULLDOZER) == point.case
