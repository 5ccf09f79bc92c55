"""Rows and programs of GPUs, run in NumPy, end every document at the leaf where a walk ends."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from forests import exit_leaf_by_walk, forest_of_stumps, probing_documents, random_forest

from gpuqs.engines.reference import goes_left
from gpuqs.forest import CATEGORICAL, ZERO_MISSING, ZERO_THRESHOLD, Forest
from gpuqs.layout.bitslice import LOW_BITS
from gpuqs.layout.bitslice_gpu import FIRST_SLOT, NODES_TOGETHER, ONES, ZEROS, RowLayout, build_rows
from gpuqs.layout.ranks import RankTables, build_ranks


def ranked(forest: Forest, ranks: RankTables, column: int, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Ranks on a column, and which of the values are missing."""
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
    """The rows of a tree block, bool [row, document]."""
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


def run(layout: RowLayout, tree: int, rows: np.ndarray) -> np.ndarray:
    """Leaf numbers that a tree's program gives."""
    slots = np.zeros((layout.n_slots + layout.n_planes, rows.shape[1]), bool)
    slots[FIRST_SLOT : layout.n_slots] = np.random.default_rng(0).random(slots[FIRST_SLOT : layout.n_slots].shape) < 0.5
    slots[ONES] = True
    for node in layout.nodes[layout.node_offsets[tree] : layout.node_offsets[tree + 1]]:
        own = slots[node["end"]] | (slots[node["first"]] & rows[node["row"]])
        slots[node["own"]] = own
        slots[node["plane"]] ^= own
    assert slots[ONES].all() and not slots[ZEROS].any()
    return (slots[layout.n_slots :] << np.arange(layout.n_planes)[:, None]).sum(axis=0)


def check(forest: Forest, documents: np.ndarray, max_predicates: int = 1 << 16) -> RowLayout:
    layout = build_rows(forest, build_ranks(forest), max_predicates)
    assert not layout.node_offsets[:-1].size or (np.diff(layout.node_offsets) % NODES_TOGETHER == 0).all()
    for block, (start, stop) in enumerate(zip(layout.block_offsets, layout.block_offsets[1:], strict=False)):
        rows = decoded(forest, layout, block, documents)
        for tree in range(start, stop):
            number = run(layout, tree, rows)
            for document, code in zip(documents, number, strict=True):
                position = layout.position[exit_leaf_by_walk(forest, tree, document)]
                assert code == (position if layout.oblivious[tree] else position ^ position >> 1)
    return layout


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
    """A node with a single leaf below has it on its left more often than the forest does."""
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
    assert build_rows(forest, build_ranks(forest)).n_slots <= most


def test_forests_without_trees_or_tests() -> None:
    rng = np.random.default_rng(5)
    empty = random_forest(rng, n_trees=0)
    layout = check(empty, probing_documents(rng, empty, 3))
    assert (len(layout.segments), len(layout.nodes), layout.n_rows) == (0, 0, 1)
    stumps = forest_of_stumps(np.arange(300.0), rng)
    check(stumps, np.array([[-1.0], [0.0], [17.5], [299.0], [300.0], [np.nan]]))
