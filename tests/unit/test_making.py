"""The compiled loops over all nodes, and those that stand in for them, against their definitions in plain Python."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from forests import probing_documents, random_forest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Drawn, forests

BENCH = Path(__file__).parents[2] / "bench"
if str(BENCH) not in sys.path:
    sys.path.append(str(BENCH))

import plain_making  # noqa: E402

import gpuqs  # noqa: E402
from gpuqs.cpu_fallback import making  # noqa: E402
from gpuqs.forest import Forest  # noqa: E402
from gpuqs.layout.bitslice import build_bitslice  # noqa: E402
from gpuqs.layout.leaves import LeafRanges, number_leaves  # noqa: E402
from gpuqs.layout.ranks import build_ranks  # noqa: E402
from gpuqs.layout.traversal import pair_up  # noqa: E402


def renumbered(forest: Forest, rng: np.random.Generator) -> Forest:
    """The same trees with their nodes, but for roots, numbered at random: children may come before their parents."""
    arrays = {name: getattr(forest, name).copy() for name in ("feature", "threshold", "left", "right", "routing")}
    for start, stop in zip(forest.node_offsets[:-1], forest.node_offsets[1:], strict=True):
        if stop - start < 3:
            continue
        new = np.concatenate([[0], 1 + rng.permutation(stop - start - 1)])  # number of each node from now on
        old = start + np.argsort(new)
        for name, values in arrays.items():
            values[start:stop] = getattr(forest, name)[old]
            if name in ("left", "right"):
                inner = values[start:stop] >= 0
                values[start:stop][inner] = new[values[start:stop][inner]]
    return replace(forest, **arrays)


@pytest.mark.parametrize("shape", ["random", "chain", "complete"])
def test_any_numbering_of_nodes_gives_the_same_trees(shape: str) -> None:
    rng = np.random.default_rng(3)
    forest = random_forest(rng, n_trees=30, max_leaves=32, shape=shape)
    other = renumbered(forest, rng)
    in_tree = np.arange(other.n_nodes) - other.node_offsets[other.node_tree]
    assert any(((child >= 0) & (child < in_tree)).any() for child in (other.left, other.right))
    assert sorted(forest.depth) == sorted(other.depth)
    np.testing.assert_array_equal(number_leaves(other).position, number_leaves(forest).position)
    n = forest.n_nodes
    np.testing.assert_array_equal(pair_up(other)[0][n:], pair_up(forest)[0][n:])  # leaves' places
    programs = [build_bitslice(f, build_ranks(f), 1 << 16, 1 << 20, True).programs.nodes for f in (forest, other)]
    np.testing.assert_array_equal(*programs)
    X = probing_documents(rng, forest, 50)
    for engine in ("bitslice", "rankwalk", "walk"):
        got, want = (gpuqs.from_model(f).predict(X, engine=engine) for f in (other, forest))
        np.testing.assert_array_equal(got.view(np.int64), want.view(np.int64))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(forests(max_nodes=600))
def test_pairs_of_siblings_lie_in_preorder(drawn: Drawn) -> None:
    forest = drawn.forest()
    place, distance, tree_offsets = pair_up(forest)
    assert sorted(place) == list(range(len(place)))
    for tree in range(forest.n_trees):
        node, leaf = int(forest.node_offsets[tree]), forest.n_nodes + int(forest.leaf_offsets[tree])
        has_nodes = node < forest.node_offsets[tree + 1]
        waiting, free = [node if has_nodes else leaf], int(tree_offsets[tree])
        assert place[waiting[0]] == free
        free += 1
        while waiting:
            item = waiting.pop()
            if item >= forest.n_nodes:
                continue
            left, right = (node + c if c >= 0 else leaf + ~c for c in (int(forest.left[item]), int(forest.right[item])))
            assert (place[left], place[right]) == (free, free + 1) and distance[item] == free - place[item]
            waiting += [right, left]
            free += 2


def faults_of(forest: SimpleNamespace) -> dict[str, int]:
    """What `check_trees` finds, by the definition."""
    found: dict[str, int] = {}
    spans = list(zip(forest.node_offsets[:-1], forest.node_offsets[1:], strict=True))
    for name in ("left", "right"):
        for start, stop in spans:
            for node in range(start, stop):
                child = int(getattr(forest, name)[node])
                if not (0 < child < stop - start or -(stop - start + 1) <= child < 0):
                    found.setdefault(name, node)
    if found:
        return found
    for tree, (start, stop) in enumerate(spans):
        children = [int(c) for node in range(start, stop) for c in (forest.left[node], forest.right[node])]
        for node in range(1, stop - start):
            if children.count(node) != 1:
                found.setdefault("node", start + node)
        for leaf in range(stop - start + 1) if stop > start else ():
            if children.count(~leaf) != 1:
                found.setdefault("leaf", int(forest.leaf_offsets[tree]) + leaf)
    if found:
        return found
    for start, stop in spans:
        reached, waiting = set(), [0] if stop > start else []
        while waiting:
            node = waiting.pop()
            reached.add(node)
            waiting += [c for c in (int(forest.left[start + node]), int(forest.right[start + node])) if c >= 0]
        for node in sorted(set(range(stop - start)) - reached)[:1]:
            found.setdefault("cycle", start + node)
    return found


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.integers(0, 3), st.booleans())
def test_faults_of_damaged_trees_are_found(seed: int, n_changes: int, swaps: bool) -> None:
    rng = np.random.default_rng(seed)
    forest = random_forest(rng, n_trees=4, max_leaves=6)
    names = ("node_offsets", "leaf_offsets", "left", "right", "leaf_value")
    damaged = SimpleNamespace(**{name: getattr(forest, name).copy() for name in names})
    for _ in range(n_changes if forest.n_nodes else 0):
        one, other = (getattr(damaged, rng.choice(["left", "right"])) for _ in range(2))
        i, j = rng.integers(0, forest.n_nodes, 2)
        if swaps:  # of children in one tree: loops
            one[i], other[j] = other[j], one[i]
        else:
            one[i] = rng.integers(-8, 8)
    for check_trees in (making.check_trees, plain_making.check_trees):
        found, depth = check_trees(damaged)
        assert found == faults_of(damaged)
        if not found:
            assert depth.min(initial=0) == 0 and len(depth) == forest.n_nodes


@settings(max_examples=40, deadline=None, derandomize=True)
@given(forests(max_nodes=600))
def test_leaves_are_numbered_alike_without_compiled_loops(drawn: Drawn) -> None:
    forest = drawn.forest()
    for compiled, plain in zip(making.number_leaves(forest), plain_making.number_leaves(forest), strict=True):
        np.testing.assert_array_equal(plain, compiled)
    np.testing.assert_array_equal(plain_making.check_trees(forest)[1], forest.depth)


@pytest.mark.parametrize("seed", range(20))
def test_predicates_and_places_are_those_of_compiled_loops(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_predicates, sizes = int(rng.integers(1, 40)), rng.integers(0, 20, rng.integers(0, 12))
    first_node = np.append(0, np.cumsum(sizes)).astype(np.int64)
    predicate = rng.integers(0, n_predicates, first_node[-1]).astype(np.int32)
    limits = int(rng.integers(1, 50)), int(rng.integers(1, 100))
    places = np.append(0, np.cumsum(sizes + 1)), rng.random(len(sizes)) < 0.5, 64 * np.arange(len(sizes))
    compiled = making.number_predicates(predicate, n_predicates, first_node, *limits), making.gray_places(*places)
    plain = plain_making.number_predicates(predicate, n_predicates, first_node, *limits)
    for seen, want in zip(plain, compiled[0], strict=True):
        np.testing.assert_array_equal(seen, want)
    np.testing.assert_array_equal(plain_making.gray_places(*places), compiled[1])


@pytest.mark.parametrize("n", [0, 1, 5, 20_000])
@pytest.mark.parametrize("n_values", [1, 30, 1 << 40])
@pytest.mark.parametrize("making", [making, plain_making])
def test_distinct_keys_are_numpys(making: ModuleType, n: int, n_values: int) -> None:
    rng = np.random.default_rng(n)
    keys = rng.integers(-n_values, n_values, n)
    for of_type in (keys, keys / 7):
        first, number = making.distinct(of_type)
        _, want_first, want = np.unique(of_type, return_index=True, return_inverse=True)
        np.testing.assert_array_equal(first, want_first)
        np.testing.assert_array_equal(number, want)
    groups = rng.integers(0, 3, n).astype(np.int32)
    first, number = making.distinct(keys / 7, groups)
    pairs = np.stack([groups, keys], axis=1)
    _, want_first, want = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
    np.testing.assert_array_equal(first, want_first)
    np.testing.assert_array_equal(number, want.ravel())


@pytest.mark.parametrize("making", [making, plain_making])
def test_zeros_of_either_sign_are_one_key_and_infinities_two(making: ModuleType) -> None:
    first, number = making.distinct(np.array([np.inf, -0.0, 5e-324, 0.0, -np.inf]))
    assert first.tolist() == [4, 1, 2, 0] and number.tolist() == [3, 1, 2, 1, 0]


def test_keys_without_a_group_for_each_are_refused() -> None:
    with pytest.raises(ValueError, match="group"):
        making.distinct(np.zeros(3), np.zeros(2, np.int32))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 60))
def test_superblocks_hold_as_many_blocks_as_are_allowed(seed: int, most: int, most_nodes: int) -> None:
    rng = np.random.default_rng(seed)
    firsts = np.concatenate([[0], np.cumsum(rng.integers(0, 20, rng.integers(0, 12)))])
    predicate = rng.integers(0, 50, firsts[-1], np.int32)
    ends, distinct, n_distinct, number = making.number_predicates(predicate, 50, firsts, most, most_nodes)
    block, at = 0, 0
    for end, n in zip(ends.tolist(), n_distinct.tolist(), strict=True):
        stop = block + 1
        while stop < len(firsts) - 1:
            nodes = predicate[firsts[block] : firsts[stop + 1]]
            if len(set(nodes)) > most or len(nodes) > most_nodes:
                break
            stop += 1
        nodes = slice(firsts[block], firsts[stop])
        assert end == stop
        assert distinct[at : at + n].tolist() == sorted(set(predicate[nodes]))
        np.testing.assert_array_equal(distinct[at : at + n][number[nodes]], predicate[nodes])
        block, at = stop, at + n
    assert block == len(firsts) - 1 and at == len(distinct)


def test_ranges_of_a_tree_without_nodes() -> None:
    forest = random_forest(np.random.default_rng(0), n_trees=2, max_leaves=1)
    ranges = number_leaves(forest)
    assert isinstance(ranges, LeafRanges) and ranges.position.tolist() == [0, 0] and len(ranges.first) == 0
    assert pair_up(forest)[0].tolist() == [0, 1]
