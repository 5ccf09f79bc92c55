"""The compiled loops over all nodes and their NumPy substitutes against definitions in plain Python."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from forests import probing_documents, random_forest, repeated
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import Drawn, forests

BENCH = Path(__file__).parents[2] / "bench"
if str(BENCH) not in sys.path:
    sys.path.append(str(BENCH))

import plain_making  # noqa: E402

import gpuqs  # noqa: E402
from gpuqs.cpu_fallback import making  # noqa: E402
from gpuqs.cpu_fallback.scorer import max_threads  # noqa: E402
from gpuqs.forest import Forest  # noqa: E402
from gpuqs.layout.bitslice import build_bitslice, gray_values  # noqa: E402
from gpuqs.layout.columns import find_columns  # noqa: E402
from gpuqs.layout.leaves import LeafRanges, leaf_values, number_leaves  # noqa: E402
from gpuqs.layout.ranks import build_ranks  # noqa: E402
from gpuqs.layout.rankwalk import build_rankwalk  # noqa: E402
from gpuqs.layout.traversal import pair_up  # noqa: E402


def renumbered(forest: Forest, rng: np.random.Generator) -> Forest:
    """The same trees with all nodes except roots renumbered at random: children may come before their parents."""
    arrays = {name: getattr(forest, name).copy() for name in ("feature", "threshold", "left", "right", "routing")}
    for start, stop in zip(forest.node_offsets[:-1], forest.node_offsets[1:], strict=True):
        if stop - start < 3:
            continue
        new = np.concatenate([[0], 1 + rng.permutation(stop - start - 1)])  # new number of each node
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


@pytest.fixture
def many() -> Forest:
    """Enough trees, of 1 to 64 leaves, that threads share them."""
    part = random_forest(np.random.default_rng(8), n_trees=300, max_leaves=64, n_features=5)
    return repeated(part, 1 + (1 << 18) // len(part.leaf_value))


def all_that_is_made(forest: Forest) -> dict[str, np.ndarray]:
    """The arrays that threads build together, by name."""
    faults, depth = making.check_trees(forest)
    assert not faults
    made = {"depth": depth} | dict(enumerate(making.number_leaves(forest)))
    ranks = build_ranks(forest)
    for with_jumps in (False, True):
        layout = build_rankwalk(forest, ranks, 36, with_jumps)
        names = ("position", "items", "tests")
        made |= {(with_jumps, name): getattr(layout, name) for name in names}
        if layout.jumps:
            made |= {name: array for name, array in vars(layout.jumps).items() if isinstance(array, np.ndarray)}
    made["programs"] = build_bitslice(forest, ranks, 1 << 16, 1 << 20, True).programs.nodes
    values = leaf_values(forest, number_leaves(forest).position, "exact")
    made["values"] = values.value
    made["gray"] = gray_values(values, np.diff(forest.leaf_offsets), np.arange(forest.n_trees) % 3 == 0).value
    return made


def test_threads_make_what_one_makes(many: Forest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    alone = all_that_is_made(many)
    assert len(alone["words"]) and alone["doublings"].max() > 1
    for n_threads in (2, 5):
        monkeypatch.setenv("OMP_NUM_THREADS", str(n_threads))
        assert making.loading_threads() == n_threads
        together = all_that_is_made(many)
        assert together.keys() == alone.keys()
        for name, array in alone.items():
            assert array.tobytes() == together[name].tobytes(), name


def test_threads_are_for_large_forests_and_few_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    for n_threads, some in (("1", 1), ("3", 3), ("64", min(8, max_threads()))):
        monkeypatch.setenv("OMP_NUM_THREADS", n_threads)
        assert making.threads_for(1 << 18) == 1 and making.threads_for((1 << 18) + 1) == some


def test_code_that_threads_write_is_what_one_writes(many: Forest, monkeypatch: pytest.MonkeyPatch) -> None:
    X = probing_documents(np.random.default_rng(9), many, 70)
    scores = []
    for n_threads in ("1", "5"):
        monkeypatch.setenv("OMP_NUM_THREADS", n_threads)
        scores.append(gpuqs.from_model(many).predict(X, "leaf", engine="bitslice", n_threads=1))
    np.testing.assert_array_equal(*scores)
    np.testing.assert_array_equal(scores[0], gpuqs.from_model(many).predict(X, "leaf", engine="reference"))


@pytest.mark.parametrize("n_threads", ["1", "5"])
def test_threads_find_a_wrong_rank_wherever_it_is(
    many: Forest, n_threads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", n_threads)
    columns, ranks = find_columns(many), build_ranks(many)
    asked = columns.threshold, columns.of_node, len(columns), ranks.threshold, ranks.offsets
    of_node = ranks.of_node.copy()
    assert making.are_ranks(*asked, of_node)
    for node in (0, many.n_nodes // 2, many.n_nodes - 1):
        right = of_node[node]
        for wrong in (right + 1, right - 1, -1, 1 << 30):
            of_node[node] = wrong
            assert not making.are_ranks(*asked, of_node)
        of_node[node] = right
    assert making.are_ranks(*asked, of_node)


@pytest.mark.parametrize("name", ["left", "right", "node", "leaf", "cycle"])
def test_threads_find_the_first_fault(many: Forest, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("node_offsets", "leaf_offsets", "left", "right", "leaf_value")
    arrays = {of: getattr(many, of).copy() for of in names}
    large = np.flatnonzero(np.diff(many.node_offsets) > 8)
    for tree in large[[-1, len(large) // 3, len(large) // 2]]:
        nodes = slice(*many.node_offsets[tree : tree + 2])
        left, right = arrays["left"][nodes], arrays["right"][nodes]
        inner, outer = (np.flatnonzero(at) for at in (left > 0, left < 0))
        match name:
            case "left" | "right":
                (left if name == "left" else right)[3] = 1 << 20
            case "node":
                left[inner[-1]] = -1
            case "leaf":
                left[outer[-1]] = left[outer[0]]
            case "cycle":  # a node becomes its own child; its old left child replaces it
                node = inner[-1]
                for side in (left, right):
                    side[side == node] = left[node]
                left[node] = node
    found = []
    for n_threads in ("1", "2", "5"):
        monkeypatch.setenv("OMP_NUM_THREADS", n_threads)
        found.append(making.check_trees(SimpleNamespace(**arrays))[0])
    assert name in found[0] and found[1:] == found[:1] * 2
    assert found[0] == plain_making.check_trees(SimpleNamespace(**arrays))[0]


def faults_of(forest: SimpleNamespace) -> dict[str, int]:
    """The faults that `check_trees` must find, by definition."""
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
    compiled = making.number_predicates(predicate, n_predicates, first_node, *limits)
    plain = plain_making.number_predicates(predicate, n_predicates, first_node, *limits)
    for seen, want in zip(plain, compiled, strict=True):
        np.testing.assert_array_equal(seen, want)


@pytest.mark.parametrize(("dtype", "width"), [("int32", 1), ("float64", 1), ("float64", 2), ("int32", 3)])
@pytest.mark.parametrize("making", [making, plain_making])
def test_leaves_are_put_in_gray_code(making: ModuleType, dtype: str, width: int) -> None:
    rng = np.random.default_rng(5)
    sizes = rng.integers(1, 65, 12)
    offsets, oblivious = np.append(0, np.cumsum(sizes)), rng.random(len(sizes)) < 0.5
    start = 64 * np.arange(len(sizes) + 1)
    given = rng.integers(1, 1 << 30, (offsets[-1], width)).astype(dtype)
    ordered = np.zeros((start[-1], width), dtype)
    making.put_in_gray_code(offsets, oblivious, start, given, ordered)
    for tree, size in enumerate(sizes):
        for leaf in range(64):
            there = ordered[start[tree] + (leaf if oblivious[tree] else leaf ^ leaf >> 1)]
            assert there.tolist() == (given[offsets[tree] + leaf].tolist() if leaf < size else [0] * width)


@pytest.mark.parametrize("n", [0, 1, 2, 31, 1000])
@pytest.mark.parametrize("making", [making, plain_making])
def test_numbers_are_counted_and_those_with_a_flag_are_found(making: ModuleType, n: int) -> None:
    rng = np.random.default_rng(n)
    numbers, flags = rng.integers(0, 9, n).astype(np.int32), rng.integers(0, 4, n).astype(np.uint8) * 2
    flags[numbers == 4] &= 2
    assert making.counts(numbers, 12).tolist() == [int((numbers == number).sum()) for number in range(12)]
    found = making.flagged(numbers, flags, 4, 12)
    assert found.tolist() == [bool((flags[numbers == number] & 4).any()) for number in range(12)]
    assert found.dtype == bool


def test_flags_must_be_as_many_as_numbers() -> None:
    with pytest.raises(ValueError, match="flag"):
        making.flagged(np.zeros(3, np.int32), np.zeros(2, np.uint8), 1, 1)


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


@pytest.mark.parametrize(("width", "dtype"), [(1, "u1"), (3, "f4"), (2, "f8"), (50, "f8"), (7, "i2")])
@pytest.mark.parametrize(("n", "n_distinct"), [(0, 1), (1, 1), (50_000, 3), (50_000, 9_000)])
def test_distinct_rows_are_told_apart_by_their_bytes(n: int, n_distinct: int, width: int, dtype: str) -> None:
    rng = np.random.default_rng(width)
    pool = rng.integers(0, 256, (n_distinct, width * np.dtype(dtype).itemsize)).astype(np.uint8)  # NaNs, too
    rows = pool[rng.integers(0, n_distinct, n)]
    want = np.unique(rows, axis=0)
    for most in (len(want), n + 1):
        first, number = making.distinct_rows(rows.view(dtype), most)
        assert len(first) == len(want) and (np.diff(first) > 0).all() and len(number) == n
        np.testing.assert_array_equal(rows[first[number]], rows)
    if n:
        first, number = making.distinct_rows(rows.view(dtype), len(want) - 1)
        assert len(first) == len(number) == 0


def test_rows_that_differ_in_signs_alone_are_told_apart_soon() -> None:
    """Such differences would cancel out if the hash were a plain product."""
    signs = (np.arange(1 << 15)[:, None] >> np.arange(15)) & 1
    rows = np.where(signs, -1.0, 1.0)
    first, number = making.distinct_rows(rows, len(rows))
    assert first.tolist() == number.tolist() == list(range(len(rows)))


def test_rows_out_of_order_are_refused() -> None:
    with pytest.raises(ValueError, match="C order"):
        making.distinct_rows(np.zeros((8, 6))[::2], 4)


def test_keys_without_a_group_for_each_are_refused() -> None:
    with pytest.raises(ValueError, match="group"):
        making.distinct(np.zeros(3), np.zeros(2, np.int32))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.integers(1, 60))
def test_superblocks_hold_as_many_blocks_as_are_allowed(seed: int, most: int, max_nodes: int) -> None:
    rng = np.random.default_rng(seed)
    firsts = np.concatenate([[0], np.cumsum(rng.integers(0, 20, rng.integers(0, 12)))])
    predicate = rng.integers(0, 50, firsts[-1], np.int32)
    ends, distinct, n_distinct, number = making.number_predicates(predicate, 50, firsts, most, max_nodes)
    block, at = 0, 0
    for end, n in zip(ends.tolist(), n_distinct.tolist(), strict=True):
        stop = block + 1
        while stop < len(firsts) - 1:
            nodes = predicate[firsts[block] : firsts[stop + 1]]
            if len(set(nodes)) > most or len(nodes) > max_nodes:
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
