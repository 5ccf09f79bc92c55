"""The walk's items and its nodes-only layout, walked in Python, give the exit leaves of the forest's definition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from forests import exit_leaf_by_walk, joined, leaning_forest, probing_documents, random_forest

from gpuqs.cpu_fallback import Machine, machine
from gpuqs.engines import ENGINES
from gpuqs.engines.walk import gathers
from gpuqs.forest import ZERO_MISSING, ZERO_THRESHOLD, Forest
from gpuqs.layout import walk
from gpuqs.layout.columns import round_down
from gpuqs.layout.ranks import build_ranks
from gpuqs.layout.tops import TOP_LEVELS, cut_off
from gpuqs.layout.traversal import pair_up
from gpuqs.layout.walk import MAX_LEAVES, MAX_SHORT_LEAVES, WalkLayout, build_walk, has_short_links, order_keys


def thresholds(keys: np.ndarray, nodes_alone: bool) -> np.ndarray:
    """The thresholds whose keys these are; of leaves' keys, NaN."""
    sign = keys.dtype.type(1) << keys.dtype.type(8 * keys.itemsize - 1)
    bits = keys if nodes_alone else np.where(keys & sign, keys ^ sign, ~keys)
    return bits.view(f"f{keys.itemsize}")


def walked(layout: WalkLayout, items: np.ndarray, tree: int, x: np.ndarray) -> int:
    """Leaf position where ``x`` (values by column) ends."""
    at = int(layout.tree_offsets[tree])
    kind = items["key"].dtype
    for _ in range(len(items) + 1):
        link = int(items["link"][at])
        column = link & ((1 << layout.column_bits) - 1)
        nan_left = link >> layout.column_bits & 1
        distance = link >> (layout.column_bits + 1)
        if distance == 0:
            key = items["key"][at]
            assert key > order_keys(np.array([np.inf], f"f{kind.itemsize}"))[0] and nan_left, "a walk stays at a leaf"
            most = MAX_SHORT_LEAVES if kind.itemsize == 4 else MAX_LEAVES
            return int(key) & (most - 1)
        value = x[column]
        goes_left = bool(nan_left) if np.isnan(value) else value <= thresholds(items["key"][at : at + 1], False)[0]
        at += distance + (not goes_left)
    raise AssertionError("the walk does not end")


def walked_over_nodes(layout: WalkLayout, nodes: np.ndarray, tree: int, x: np.ndarray) -> int:
    """The same in the nodes-only layout."""
    at, end = layout.tree_offsets[tree : tree + 2]
    passed = 0
    while at < end:
        link, threshold = int(nodes["link"][at]), thresholds(nodes["key"][at : at + 1], True)[0]
        value, n_left = x[link & ((1 << layout.column_bits) - 1)], link >> (layout.column_bits + 2)
        assert not np.isnan(threshold)
        goes_left = bool(link >> layout.column_bits & 1) if np.isnan(value) else value <= threshold
        if not goes_left:
            passed += n_left
        if n_left == 1 if goes_left else link >> (layout.column_bits + 1) & 1:
            break
        at += 1 if goes_left else n_left
    return passed


@pytest.mark.parametrize("nodes_alone", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("shape", "leaves"), [("random", 30), ("chain", 90), ("complete", 64), ("random", 1)])
@pytest.mark.parametrize("n_features", [1, 2, 8])
def test_walks_end_at_the_exit_leaf(
    dtype: type, shape: str, leaves: int, n_features: int, nodes_alone: bool
) -> None:
    rng = np.random.default_rng(leaves)
    forest = random_forest(rng, n_trees=7, max_leaves=leaves, shape=shape, n_features=n_features)
    layout = build_walk(forest, 3, nodes_alone=nodes_alone)
    assert len(layout.item32) == forest.n_nodes + (0 if nodes_alone else len(forest.leaf_value))
    assert layout.block_offsets.tolist() == [0, 3, 6, 7]
    items = layout.item64 if dtype is np.float64 else layout.item32
    columns = layout.columns
    for document in probing_documents(rng, forest, 20, dtype):
        x = document[columns.feature].astype(np.float64)
        x[(columns.routing == ZERO_MISSING) & (np.abs(x) <= ZERO_THRESHOLD)] = np.nan
        for tree in range(forest.n_trees):
            leaf = exit_leaf_by_walk(forest, tree, document)
            by = walked_over_nodes if nodes_alone else walked
            assert by(layout, items, tree, x) == layout.position[leaf]


@pytest.mark.parametrize("nodes_alone", [False, True])
def test_thresholds_for_float32_are_rounded_down(nodes_alone: bool) -> None:
    layout = build_walk(random_forest(np.random.default_rng(0)), 64, nodes_alone=nodes_alone)
    exact, single = (thresholds(items["key"], nodes_alone) for items in (layout.item64, layout.item32))
    np.testing.assert_array_equal(single, np.where(np.isnan(exact), np.nan, round_down(exact)))
    assert nodes_alone or np.isnan(exact).sum() > 0
    np.testing.assert_array_equal(layout.item32["link"], layout.item64["link"])


@pytest.mark.parametrize("nodes_alone", [False, True])
def test_forests_that_round_to_float32_have_items_of_float32_alone(nodes_alone: bool) -> None:
    forest = random_forest(np.random.default_rng(1), input_dtype="float32")
    layout = build_walk(forest, 64, nodes_alone=nodes_alone)
    as_wide = build_walk(replace(forest, input_dtype="float64"), 64, nodes_alone=nodes_alone)
    assert len(layout.item64) == 0 and len(as_wide.item64) == len(layout.item32)
    np.testing.assert_array_equal(layout.item32.view(np.uint8), as_wide.item32.view(np.uint8))


def test_links_have_room_for_the_largest_tree_that_fits() -> None:
    forest = leaning_forest(1 << 19, 600)
    assert has_short_links(forest)
    layout = build_walk(forest, 1, nodes_alone=True)
    link = int(layout.item32["link"][0])
    assert link >> 31 == 1 and link >> (layout.column_bits + 2) == 1 << 19 and layout.column_bits == 10


def test_trees_beyond_all_links_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    forest = leaning_forest(64, 3)
    monkeypatch.setattr("gpuqs.engines.walk.MAX_LEAVES", 64)
    assert ENGINES["walk"].why_not(forest) == "a tree has 65 leaves; walks hold 64"
    monkeypatch.setattr("gpuqs.engines.walk.MAX_LEAVES", 65)
    assert ENGINES["walk"].why_not(forest) is None


def test_larger_trees_have_wide_links_alone() -> None:
    forest = leaning_forest(1 << 20, 600)
    with pytest.raises(ValueError, match="links of 32 bits"):
        build_walk(forest, 1, nodes_alone=True)
    layout = build_walk(forest, 1, nodes_alone=False)
    assert not has_short_links(forest) and layout.wide and len(layout.item32) == 0
    x = np.full(600, np.inf)
    assert walked(layout, layout.item64, 0, x) == 1 << 20
    x[0] = -9.0
    leaf = exit_leaf_by_walk(forest, 0, x)
    assert walked(layout, layout.item64, 0, x) == layout.position[leaf] != 1 << 20


def test_blocks_end_where_items_would_be_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    forest = random_forest(np.random.default_rng(5), n_trees=9, max_leaves=4, shape="complete")  # three nodes each
    for most, offsets in ((1, range(10)), (6, [0, 2, 4, 6, 8, 9]), (11, [0, 3, 6, 9]), (99, [0, 4, 8, 9])):
        monkeypatch.setattr(walk, "MAX_TOGETHER", most)
        assert build_walk(forest, 4, nodes_alone=True).block_offsets.tolist() == [*offsets]


def levels_below(forest: Forest, tree: int, node: int, levels: int) -> list[int]:
    """The nodes ``levels`` below a node, and the leaves (as ``~leaf``) at or above that level."""
    if levels == 0 or node < 0:
        return [node]
    at = int(forest.node_offsets[tree]) + node
    return [x for c in (forest.left[at], forest.right[at]) for x in levels_below(forest, tree, int(c), levels - 1)]


@pytest.mark.parametrize(
    ("shape", "leaves"),
    [("random", 900), ("chain", 300), ("zigzag", 700), ("complete", 256), ("complete", 1024), ("oblivious", 512)],
)
def test_walks_begin_below_tops_where_programs_leave_them(shape: str, leaves: int) -> None:
    rng = np.random.default_rng(leaves)
    trees = [random_forest(rng, n_trees=1, max_leaves=n, shape=shape, n_thresholds=500) for n in (leaves, 1, 2, leaves)]
    forest = joined(trees)
    layout = build_walk(forest, 64, nodes_alone=False, with_tops=True)
    assert layout.tops is not None
    place, _, tree_offsets = pair_up(forest)
    top, at_exit = cut_off(forest)
    for tree in range(forest.n_trees):
        root = 0 if forest.node_offsets[tree] < forest.node_offsets[tree + 1] else ~0
        exits = levels_below(forest, tree, root, TOP_LEVELS)
        own = slice(top.leaf_offsets[tree], top.leaf_offsets[tree + 1])
        position = layout.tops.programs.position[own]
        assert at_exit[own][np.argsort(position)].tolist() == exits, "from left to right"
        for number, exit_ in enumerate(exits):
            coded = number if layout.tops.programs.oblivious[tree] else number ^ number >> 1
            leaf = forest.n_nodes + forest.leaf_offsets[tree] + ~exit_
            item = exit_ + forest.node_offsets[tree] if exit_ >= 0 else leaf
            assert layout.tops.start[tree, coded] == place[item] - tree_offsets[tree]


def test_tops_are_cut_off_where_programs_are_compiled_and_trees_are_large() -> None:
    rng = np.random.default_rng(1)
    large, small = (random_forest(rng, n_trees=2, max_leaves=n, shape="complete") for n in (512, 511))
    of_sets = random_forest(rng, n_trees=2, max_leaves=512, shape="complete", categorical=0.1)
    compiling, not_compiling = (Machine(machine().isa, compiles) for compiles in (True, False))

    def tops(forest: Forest, machine: Machine, **params: int) -> bool:
        settings = {p.name: p.default for p in ENGINES["walk"].parameters} | params
        return ENGINES["walk"]._lay_out(forest, lambda: build_ranks(forest), settings, machine).tops is not None

    assert tops(large, compiling) == tops(large, compiling, tree_block=3) == (not gathers(compiling))
    assert not tops(large, not_compiling) and not tops(large, compiling, tops=0)
    assert not tops(random_forest(rng, n_trees=70, max_leaves=600, shape="complete"), compiling, tree_block=65)
    assert not tops(small, compiling) and not tops(of_sets, compiling)
    forest = random_forest(rng, n_trees=1100, max_leaves=520, shape="complete", n_features=1)
    of_top = forest.depth < TOP_LEVELS
    many = np.zeros(forest.n_nodes)
    many[of_top] = rng.permutation(np.count_nonzero(of_top))  # more than ranks have
    assert not tops(replace(forest, threshold=many), compiling)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_keys_are_in_the_order_of_values(kind: type) -> None:
    info = np.finfo(kind)
    above_one = np.nextafter(kind(1), kind(2))
    positive = [info.smallest_subnormal, info.tiny, 1e-35, 0.5, 1.0, above_one, info.max, np.inf]
    values = np.array([*(-value for value in positive[::-1]), 0.0, *positive], kind)
    keys = order_keys(values)
    assert keys.dtype.itemsize == values.dtype.itemsize and keys[0] > 0 and (np.diff(keys.astype(object)) > 0).all()
    assert order_keys(np.array([-0.0], kind)) == order_keys(np.array([0.0], kind))
