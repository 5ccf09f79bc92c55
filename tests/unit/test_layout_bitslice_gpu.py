"""The GPU's rows and programs, run in NumPy, lead every document to the exit leaf of a walk."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from forests import exit_leaf_by_walk, forest_of_stumps, probing_documents, random_forest

from gpuqs.engines.reference import goes_left
from gpuqs.forest import CATEGORICAL, ZERO_MISSING, ZERO_THRESHOLD, Forest
from gpuqs.layout.bitslice import LOW_BITS
from gpuqs.layout.bitslice_gpu import RowLayout, build_rows
from gpuqs.layout.ranks import RankTables, build_ranks
from gpuqs.layout.slots import FIRST_SLOT, NODES_TOGETHER, ONES, ZEROS, SlotPrograms
from gpuqs.layout.steps import (
    AHEAD,
    ENDS_PAGE,
    ENDS_TREE,
    GROUP,
    LEVELS,
    MARK,
    MAX_DEPTH,
    PAGE,
    POP,
    PUSHES,
    STEPS,
    StepPrograms,
)


def ranked(forest: Forest, ranks: RankTables, column: int, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ranks of documents in a column, and which of the values are missing."""
    columns = ranks.columns
    x = documents[:, columns.feature[column]].astype(np.float64)
    missing = np.isnan(x)
    thresholds = ranks.threshold[ranks.offsets[column] : ranks.offsets[column + 1]]
    rank = np.searchsorted(thresholds, x, "left")
    if columns.routing[column] & CATEGORICAL:
        rank = ~goes_left(forest, int(np.argmax(columns.of_node == column)), x) + 0
    elif columns.routing[column] & ZERO_MISSING:
        missing |= np.abs(x) <= ZERO_THRESHOLD
    return np.where(missing, (1 << int(ranks.n_bits[column])) - 1, rank), missing


def decoded(forest: Forest, layout: RowLayout, block: int, documents: np.ndarray) -> np.ndarray:
    """The decoded rows of a tree block, bool [row, document]."""
    rows = np.zeros((layout.n_rows, len(documents)), bool)
    planes = layout.ranks.plane_offsets.tolist()
    for segment in layout.segments[layout.block_segments[block] : layout.block_segments[block + 1]]:
        column = planes.index(segment["plane"])
        rank, missing = ranked(forest, layout.ranks, column, documents)
        row = int(segment["row"])
        for low in range(1 << LOW_BITS):
            if segment["low"] >> low & 1:
                rows[row] = rank > (int(segment["high"]) << LOW_BITS) + low
                rows[row] &= ~(missing & bool(segment["marked"]))
                rows[row] ^= bool(segment["flip"] >> low & 1)
                row += 1
    return rows


def run_slots(programs: SlotPrograms, n_planes: int, tree: int, rows: np.ndarray) -> np.ndarray:
    """Planes of leaf numbers that a tree's slot program computes."""
    n_slots = programs.n_slots
    slots = np.zeros((n_slots + n_planes, rows.shape[1]), bool)
    slots[FIRST_SLOT:n_slots] = np.random.default_rng(0).random(slots[FIRST_SLOT:n_slots].shape) < 0.5
    slots[ONES] = True
    for node in programs.nodes[programs.node_offsets[tree] : programs.node_offsets[tree + 1]]:
        own = slots[node["end"]] | (slots[node["first"]] & rows[node["row"]])
        slots[node["own"]] = own
        slots[node["plane"]] ^= own
    assert slots[ONES].all() and not slots[ZEROS].any()
    return slots[n_slots:]


def run_steps(programs: StepPrograms, n_planes: int, tree: int, rows: np.ndarray) -> np.ndarray:
    """As `run_slots`, for steps; a flag ends each page. The last step needs no pop."""
    planes = np.zeros((max(n_planes, 3) + 1, rows.shape[1]), bool)  # a group of eight steps updates up to four planes
    a, top, stack, j = np.ones(rows.shape[1], bool), np.zeros(rows.shape[1], bool), [], 0
    first, end = programs.tree_pages[tree : tree + 2]
    for number in range(first, end):
        page = programs.pages[number]
        pushing = iter(page[programs.n_groups * GROUP : len(page) - AHEAD])
        for group in range(programs.n_groups):
            flags = page[programs.n_groups * STEPS + 2 * group :][:2].copy().view(np.uint8)
            for flag, row in zip(flags, page[group * STEPS :][:STEPS], strict=True):
                if flags[LEVELS] & MARK:
                    planes[j : j + 1] = rows[row]
                    j += 1
                    continue
                if flag & POP:
                    top = stack.pop()
                for _ in range(flag & PUSHES):
                    stack.append(top)
                    top = top | (a & rows[next(pushing)])
                assert len(stack) <= programs.depth
                a = top | (a & rows[row])
                j += 1
                planes[(j & -j).bit_length() - 1] ^= a
            if flags[ENDS_PAGE] & MARK:
                break
        assert bool(flags[ENDS_TREE] & MARK) == (number == end - 1)
    assert len(stack) <= 1 and not planes[n_planes:].any()
    return planes[:n_planes]


def run(layout: RowLayout, tree: int, rows: np.ndarray) -> np.ndarray:
    """Leaf numbers that a tree's program computes."""
    if isinstance(layout.programs, SlotPrograms):
        planes = run_slots(layout.programs, layout.n_planes, tree, rows)
    else:
        planes = run_steps(layout.programs, layout.n_planes, tree, rows)
    return (planes << np.arange(layout.n_planes)[:, None]).sum(axis=0)


def check(forest: Forest, documents: np.ndarray, max_predicates: int = 1 << 16) -> RowLayout:
    """Check both kinds of programs; return the default layout, with steps if they are possible."""
    slots = build_rows(forest, build_ranks(forest), max_predicates, "slots")
    assert isinstance(slots.programs, SlotPrograms)
    assert (np.diff(slots.programs.node_offsets) % NODES_TOGETHER == 0).all()
    steps = build_rows(forest, build_ranks(forest), max_predicates)
    if isinstance(steps.programs, StepPrograms):
        assert steps.programs.pages.shape[1] <= PAGE and steps.programs.depth <= MAX_DEPTH
    for layout in (slots, steps):
        check_layout(layout, forest, documents)
    return steps


def check_layout(layout: RowLayout, forest: Forest, documents: np.ndarray) -> None:
    for block, (start, stop) in enumerate(zip(layout.block_offsets, layout.block_offsets[1:], strict=False)):
        rows = decoded(forest, layout, block, documents)
        for tree in range(start, stop):
            number = run(layout, tree, rows)
            for document, code in zip(documents, number, strict=True):
                position = layout.position[exit_leaf_by_walk(forest, tree, document)]
                assert code == (position if layout.oblivious[tree] else position ^ position >> 1)


def negated(layout: RowLayout) -> float:
    """The share of predicates that are stored negated."""
    bits = [np.ascontiguousarray(layout.segments[name]).view(np.uint8) for name in ("flip", "low")]
    flipped, there = (int(np.unpackbits(of).sum()) for of in bits)
    return flipped / there


@pytest.mark.parametrize("shape", ["random", "chain", "complete", "oblivious"])
@pytest.mark.parametrize("leaves", [1, 2, 13, 64, 200])
def test_programs_end_at_the_exit_leaf(shape: str, leaves: int) -> None:
    rng = np.random.default_rng(leaves)
    forest = random_forest(rng, n_trees=7, max_leaves=leaves, shape=shape, n_features=3, n_thresholds=40)
    check(forest, probing_documents(rng, forest, 30))


def test_category_sets() -> None:
    rng = np.random.default_rng(1)
    forest = random_forest(rng, categorical=0.5, max_leaves=40)
    check(forest, probing_documents(rng, forest, 50))


def test_tree_blocks_have_rows_of_their_own() -> None:
    rng = np.random.default_rng(2)
    forest = random_forest(rng, n_trees=200, max_leaves=20, n_thresholds=60)
    layout = check(forest, probing_documents(rng, forest, 5), max_predicates=1050)
    assert layout.block_offsets.tolist() == [0, 128, 200] and layout.n_rows <= 1051


def test_children_change_places_where_most_nodes_of_a_predicate_want_it() -> None:
    """Predicates are negated so that, for most of their nodes, a child that is a single leaf is the left one."""
    rng = np.random.default_rng(3)
    forest = random_forest(rng, n_trees=100, max_leaves=30, n_features=4)
    layout = check(forest, probing_documents(rng, forest, 5))
    assert 0 < negated(layout) < 1
    chain = random_forest(rng, n_trees=5, max_leaves=50, shape="chain", n_thresholds=300)
    for turned in (chain, replace(chain, left=chain.right, right=chain.left)):
        share = negated(check(turned, probing_documents(rng, turned, 5)))
        assert share < 0.1 if turned is chain else share > 0.9


@pytest.mark.parametrize(("shape", "most"), [("chain", 5), ("complete", 9), ("random", 9)])
def test_few_slots_do(shape: str, most: int) -> None:
    rng = np.random.default_rng(4)
    forest = random_forest(rng, n_trees=50, max_leaves=64, shape=shape)
    programs = build_rows(forest, build_ranks(forest), evaluation="slots").programs
    assert isinstance(programs, SlotPrograms) and programs.n_slots <= most


@pytest.mark.parametrize(("leaves", "steps"), [(MAX_DEPTH + 2, True), (MAX_DEPTH + 3, False), (300, False)])
def test_stacks_that_are_too_deep_make_slots(leaves: int, steps: bool) -> None:
    """A right chain and a left chain with the same tests, so that no polarity suits both."""
    rng = np.random.default_rng(6)
    chain = random_forest(rng, n_trees=2, max_leaves=leaves, shape="chain", n_thresholds=900, n_features=3)
    first, second = slice(0, leaves - 1), slice(leaves - 1, None)
    arrays = {name: getattr(chain, name).copy() for name in ("feature", "threshold", "routing", "left", "right")}
    for name, of in {**{name: name for name in arrays}, "left": "right", "right": "left"}.items():
        arrays[name][second] = getattr(chain, of)[first]
    forest = replace(chain, **arrays)
    programs = check(forest, probing_documents(rng, forest, 8)).programs
    assert isinstance(programs, StepPrograms if steps else SlotPrograms)
    if isinstance(programs, StepPrograms):
        assert programs.depth == leaves - 2 == MAX_DEPTH


@pytest.mark.parametrize(("shape", "leaves", "deepest"), [("chain", 3000, 0), ("complete", 4096, 12)])
def test_trees_of_thousands_of_leaves_are_steps(shape: str, leaves: int, deepest: int) -> None:
    rng = np.random.default_rng(7)
    forest = random_forest(rng, n_trees=2, max_leaves=leaves, shape=shape, n_thresholds=20_000)
    programs = check(forest, probing_documents(rng, forest, 3)).programs
    assert isinstance(programs, StepPrograms) and programs.depth <= deepest
    assert programs.tree_pages[1] > 40


def test_forests_without_trees_or_tests() -> None:
    rng = np.random.default_rng(5)
    empty = random_forest(rng, n_trees=0)
    layout = check(empty, probing_documents(rng, empty, 3))
    assert isinstance(layout.programs, StepPrograms)
    assert (len(layout.segments), len(layout.programs.pages), layout.n_rows) == (0, 0, 1)
    stumps = forest_of_stumps(np.arange(300.0), rng)
    check(stumps, np.array([[-1.0], [0.0], [17.5], [299.0], [300.0], [np.nan]]))
