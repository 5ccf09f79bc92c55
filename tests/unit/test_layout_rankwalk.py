"""The items of `rankwalk`, walked in Python, and its tests, evaluated in Python, give the defined exit leaves."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from forests import exit_leaf_by_walk, forest_of_columns, joined, probing_documents, random_forest

import gpuqs
from gpuqs import cpu_fallback
from gpuqs.engines import ENGINES
from gpuqs.forest import ZERO_MISSING, ZERO_THRESHOLD, Forest
from gpuqs.layout.ranks import build_ranks
from gpuqs.layout.rankwalk import (
    BLOCK_THRESHOLDS,
    DISTANCE_SHIFT,
    ENTRY_THRESHOLDS,
    JUMP_ENTRIES,
    JUMP_PLACES,
    JUMPING,
    LEAF_ON_RIGHT,
    MAX_ENTRIES,
    MAX_LANES,
    MAX_LEAVES,
    POSITION_SHIFT,
    REGISTERS_TOGETHER,
    SIGNED,
    TREE_BLOCK,
    WALKING,
    WALKING_NARROW,
    WALKS,
    RankWalkLayout,
    build_rankwalk,
    max_entries,
    threshold_blocks,
)


def codes(layout: RankWalkLayout, document: np.ndarray) -> list[int]:
    """A document's bytes, by definition."""
    ranks, columns = layout.ranks, layout.ranks.columns
    out = [0]
    for column, first, nan_left in layout.entries[1:].tolist():
        value = float(document[columns.feature[column]])
        if np.isnan(value) or (columns.routing[column] == ZERO_MISSING and abs(value) <= ZERO_THRESHOLD):
            out.append(0 if nan_left else 255)
            continue
        thresholds = ranks.threshold[ranks.offsets[column] : ranks.offsets[column + 1]]
        out.append(int(np.clip(np.count_nonzero(thresholds < value) - first, 0, 255)))
    return out


def walked(layout: RankWalkLayout, walk: int, code: list[int]) -> tuple[int, int]:
    """Position of a walk's exit leaf, and the number of steps."""
    at, n_steps = int(layout.root[walk]), 0
    while (item := int(layout.items[at])) >> DISTANCE_SHIFT:
        at += (item + (code[item % MAX_ENTRIES] << POSITION_SHIFT)) >> DISTANCE_SHIFT
        n_steps += 1
    assert item % MAX_ENTRIES == 0, "leaves ask the entry whose byte is 0"
    return item >> POSITION_SHIFT, n_steps


def asked(layout: RankWalkLayout, tree: int, code: list[int]) -> int:
    """The final label of a document after all tests of a tree."""
    at = 0
    tests = layout.tests[layout.node_offsets[tree] : layout.node_offsets[tree + 1]]
    for label, (entry, position, first) in enumerate(tests.tolist(), start=1):
        assert 0 < entry < len(layout.entries) and first < label
        if at == first and SIGNED - code[entry] < position:
            at = label
    return at


def jumped(layout: RankWalkLayout, tree: int, code: list[int]) -> int:
    """The label at a tree's root after all pointer doublings."""
    jumps = layout.jumps
    assert jumps is not None
    block, number = tree // TREE_BLOCK, int(np.searchsorted(jumps.trees, tree, side="right")) - 1
    assert jumps.blocks[block] <= number < jumps.blocks[block + 1]
    words = jumps.words[jumps.words_together * number :][: jumps.words_together]
    entry, position, stored = (words[name].ravel() for name in words.dtype.names or ())
    here = np.arange(len(entry))
    right = np.array([*code[1:], *[0] * JUMP_ENTRIES])[entry] > position
    leaf_on_right, onward = np.divmod(stored.astype(int), LEAF_ON_RIGHT)
    leaf_on_left = onward <= here
    on_right = np.where(leaf_on_right, here, np.where(leaf_on_left, here + 1, onward))
    next_place = np.where(right, on_right, np.where(leaf_on_left, here, here + 1)) % len(here)
    label = np.where(right, here + 1, onward)
    for _ in range(jumps.doublings[block]):
        next_place = next_place[next_place]
    root = int(jumps.root[tree])
    last = next_place[root]
    assert next_place[last] == last, "no way leads further"
    return int(label[last]) - root


def check(forest: Forest, documents: np.ndarray) -> None:
    layout = build_rankwalk(forest, build_ranks(forest))
    in_words = build_rankwalk(forest, build_ranks(forest), with_jumps=True)
    assert (in_words.jumps is None) == (len(layout.entries) > JUMP_ENTRIES + 1)
    assert in_words.jumps is None or in_words.jumps.words_together == 1 + (forest.n_leaves > JUMP_PLACES + 1)
    assert len(layout.entries) <= max_entries(layout.ranks.columns)
    for document in documents:
        code = codes(layout, document)
        for walk, in_block in enumerate(layout.tree.tolist()):
            if in_block < 0:
                assert walk >= forest.n_trees
                continue
            tree = walk // TREE_BLOCK * TREE_BLOCK + in_block
            position, n_steps = walked(layout, walk, code)
            assert position == layout.position[exit_leaf_by_walk(forest, tree, document)]
            assert n_steps <= layout.steps[walk // WALKS]
            assert asked(layout, tree, code) == position
            if in_words.jumps:
                assert jumped(in_words, tree, code) == position


@pytest.mark.parametrize(
    ("shape", "leaves"),
    [
        *(("random", leaves) for leaves in (1, 2, 30, JUMP_PLACES, MAX_LEAVES)),
        *product(("chain", "complete"), (JUMP_PLACES + 1, JUMP_PLACES + 2, MAX_LEAVES)),
    ],
)
@pytest.mark.parametrize("n_features", [1, 8])
def test_walks_end_at_the_exit_leaf(shape: str, leaves: int, n_features: int) -> None:
    rng = np.random.default_rng(leaves)
    forest = random_forest(rng, n_trees=7, max_leaves=leaves, shape=shape, n_features=n_features)
    check(forest, probing_documents(rng, forest, 20, np.float64))


def test_more_thresholds_than_a_byte_tells_apart_take_several_entries() -> None:
    rng = np.random.default_rng(1)
    forest = random_forest(rng, n_trees=20, max_leaves=100, shape="complete", n_features=1, n_thresholds=900)
    layout = build_rankwalk(forest, build_ranks(forest))
    assert len(np.unique(layout.entries["first"])) > 2
    assert not np.any(layout.entries["first"] % ENTRY_THRESHOLDS)
    check(forest, probing_documents(rng, forest, 40, np.float64))


@pytest.mark.parametrize("most", [12, JUMP_PLACES, MAX_LEAVES])
def test_small_trees_share_words(most: int) -> None:
    forest = random_forest(np.random.default_rng(5), n_trees=71, max_leaves=most)
    places = JUMP_PLACES if forest.n_leaves - 1 <= JUMP_PLACES else 2 * JUMP_PLACES - 1
    assert (places > JUMP_PLACES) == (most == MAX_LEAVES)
    jumps = build_rankwalk(forest, build_ranks(forest), tree_block=3 * WALKS, with_jumps=True).jumps
    assert jumps is not None and max(jumps.root) > places // 2
    nodes, first = np.maximum(np.diff(forest.node_offsets), 1), jumps.trees[:-1]
    assert jumps.trees[0] == 0 and np.all(np.diff(jumps.trees) > 0) and jumps.trees[-1] == forest.n_trees
    assert jumps.words_together * len(first) == len(jumps.words)
    assert jumps.blocks[0] == 0 and jumps.blocks[-1] == len(first)
    assert jumps.trees[jumps.blocks].tolist() == [0, 3 * WALKS, forest.n_trees], "a tree block's words are its own"
    for tree in range(forest.n_trees):
        begins = tree in first
        assert jumps.root[tree] == (0 if begins else jumps.root[tree - 1] + nodes[tree - 1])
        assert jumps.root[tree] + nodes[tree] <= places
        if begins and tree % (3 * WALKS):
            assert jumps.root[tree - 1] + nodes[tree - 1] + nodes[tree] > places, "there was no room for it"


def test_doublings_are_as_many_as_the_deepest_tree_of_a_block_wants() -> None:
    wanted = {1: 0, 3: 0, 4: 1, 5: 2, 6: 2, 7: 3, 10: 3, 11: 4, 18: 4, 19: 5, 34: 5, 35: 6, 66: 6, 67: 7, MAX_LEAVES: 7}
    for n_leaves, doublings in wanted.items():
        chain = random_forest(np.random.default_rng(1), n_trees=1, max_leaves=n_leaves, shape="chain")
        jumps = build_rankwalk(chain, build_ranks(chain), with_jumps=True).jumps
        assert jumps is not None and jumps.doublings.tolist() == [doublings]


def test_documents_of_more_bytes_than_tests_can_name_do_not_jump() -> None:
    rng = np.random.default_rng(6)
    for n_features in (60, JUMP_ENTRIES + 30):
        forest = random_forest(rng, n_trees=400, max_leaves=8, n_features=n_features)
        layout = build_rankwalk(forest, build_ranks(forest), with_jumps=True)
        assert (layout.jumps is None) == (len(layout.entries) > JUMP_ENTRIES + 1) == (n_features > JUMP_ENTRIES)
    for n_entries in (JUMP_ENTRIES, JUMP_ENTRIES + 1):
        forest = forest_of_columns(rng, [1] * n_entries)
        layout = build_rankwalk(forest, build_ranks(forest), with_jumps=True)
        assert len(layout.entries) == 1 + n_entries and (layout.jumps is None) == (n_entries > JUMP_ENTRIES)
        check(forest, probing_documents(rng, forest, 3, np.float64))


def test_every_tree_stands_in_one_group_of_about_its_depth() -> None:
    forest = random_forest(np.random.default_rng(2), n_trees=TREE_BLOCK + 21, max_leaves=12)
    layout = build_rankwalk(forest, build_ranks(forest))
    assert layout.block_offsets.tolist() == [0, TREE_BLOCK, TREE_BLOCK + 21]
    assert sorted(layout.tree[:TREE_BLOCK]) == list(range(TREE_BLOCK))
    assert sorted(layout.tree[TREE_BLOCK : forest.n_trees]) == list(range(21))
    for block in (layout.steps[: TREE_BLOCK // WALKS], layout.steps[TREE_BLOCK // WALKS :]):
        assert np.all(np.diff(block.astype(int)) >= 0)


def test_items_lie_in_the_order_of_walks() -> None:
    forest = random_forest(np.random.default_rng(3), n_trees=TREE_BLOCK + 21, max_leaves=12)
    layout = build_rankwalk(forest, build_ranks(forest))
    roots = layout.root[: forest.n_trees].astype(int)
    assert np.all(np.diff(roots) > 0) and roots[0] == 0
    assert layout.group_items[:-1].tolist() == roots[::WALKS].tolist()
    assert layout.group_items[-1] == len(layout.items)


@pytest.mark.parametrize("isa", cpu_fallback.available_isas())
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_number_of_documents_walks_or_is_asked_to_the_same_leaves(
    isa: str, dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUQS_ISA", isa)
    rng = np.random.default_rng(4)
    shapes = [
        random_forest(rng, n_trees=41, max_leaves=MAX_LEAVES, n_features=2, n_thresholds=700),
        random_forest(rng, n_trees=9, max_leaves=MAX_LEAVES, shape="chain"),
        random_forest(rng, n_trees=30, max_leaves=9, categorical=0.4, n_outputs=3),
        random_forest(rng, n_trees=50, max_leaves=JUMP_PLACES),
        random_forest(rng, n_trees=25, max_leaves=JUMP_PLACES, shape="complete", n_features=3, n_thresholds=900),
        random_forest(rng, n_trees=25, max_leaves=MAX_LEAVES, shape="complete"),
        random_forest(rng, n_trees=400, max_leaves=8, n_features=JUMP_ENTRIES + 30),
        joined([random_forest(rng, n_trees=24, max_leaves=n, shape="chain") for n in (3, 40)]),  # two tree blocks
        joined([random_forest(rng, n_trees=1, max_leaves=n, shape="chain") for n in (70, 1, 30, 1, 1, MAX_LEAVES, 2)]),
        random_forest(rng, n_trees=7, max_leaves=JUMP_PLACES, shape="chain"),
        random_forest(rng, n_trees=400, max_leaves=8, n_features=60),
        random_forest(rng, n_trees=5, max_leaves=1),
    ]
    entries = build_rankwalk(shapes[-2], build_ranks(shapes[-2])).entries
    assert 192 < len(entries) <= JUMP_ENTRIES, "bytes of four registers"
    lanes = min(cpu_fallback.instruction_set().widest_word // 8, MAX_LANES)
    together = lanes * REGISTERS_TOGETHER
    least = [1, 2, WALKING, WALKING + 1, WALKING_NARROW, WALKING_NARROW + 1, JUMPING, JUMPING + 1]
    sizes = [*least, lanes, lanes + 1, 2 * lanes, 2 * lanes + 1, together, together + 3, 2 * together + 1]
    for forest in shapes:
        model, X = gpuqs.from_model(forest), probing_documents(rng, forest, 3 * together, dtype)
        leaves = model.predict(X, "leaf", engine="reference")
        for n in sizes:
            for block in (n, 128, 19):
                params = {"document_block": block, "tree_block": 24}
                program = ENGINES["rankwalk"].prepare(forest, "exact", params=params)
                out = np.empty((n, forest.n_trees), np.int32)
                for n_threads in (1, 2):
                    ENGINES["rankwalk"].leaves(program, X[:n], out, n_threads)
                    np.testing.assert_array_equal(out, leaves[:n])


#: Numbers of thresholds per column, around the ends of blocks and of blocks of samples.
COUNTS = [0, 1, 15, 16, 17, 255, 256, 257, 271, 272, 273, 4352, 4353, 9000]


def test_thresholds_in_blocks() -> None:
    rng = np.random.default_rng(1)
    of_column = [np.unique(rng.normal(size=n)) for n in COUNTS]
    offsets, threshold = np.append(0, np.cumsum(COUNTS)), np.concatenate(of_column)
    blocks = threshold_blocks(offsets, threshold.astype(np.float32), threshold)
    assert blocks.first[-1] == len(blocks.threshold64) and blocks.first_samples[-1] == len(blocks.sample64)
    for column, expected in enumerate(of_column):
        of_blocks = slice(*blocks.first[column : column + 2].tolist())
        of_samples = slice(*blocks.first_samples[column : column + 2].tolist())
        within, samples = blocks.threshold64[of_blocks].ravel(), blocks.sample64[of_samples].ravel()
        n_blocks = max(-(-len(expected) // BLOCK_THRESHOLDS), 1)
        assert len(within) == n_blocks * BLOCK_THRESHOLDS
        np.testing.assert_array_equal(within, np.append(expected, np.full(len(within) - len(expected), np.inf)))
        sampled = expected[BLOCK_THRESHOLDS - 1 :: BLOCK_THRESHOLDS][: n_blocks - 1]
        assert len(samples) == max(-(-len(sampled) // BLOCK_THRESHOLDS), 1) * BLOCK_THRESHOLDS
        np.testing.assert_array_equal(samples, np.append(sampled, np.full(len(samples) - len(sampled), np.inf)))
        np.testing.assert_array_equal(blocks.threshold32[of_blocks].ravel(), within.astype(np.float32))
        np.testing.assert_array_equal(blocks.sample32[of_samples].ravel(), samples.astype(np.float32))


@pytest.mark.parametrize("single", [True, False])
def test_documents_between_all_thresholds_of_a_column(isa: str, single: bool) -> None:
    """Stumps that sum to the number of thresholds below a value; the last threshold is infinite."""
    for n in COUNTS[1:]:
        threshold = np.append(np.arange(n - 1, dtype=np.float64), np.inf)
        stumps = Forest(
            n_features=1, node_offsets=np.arange(n + 1), leaf_offsets=np.arange(n + 1) * 2,
            feature=np.zeros(n, np.int32), threshold=threshold, left=np.full(n, ~0, np.int32),
            right=np.full(n, ~1, np.int32), routing=np.zeros(n, np.uint8), leaf_value=np.tile([[0.0], [1.0]], (n, 1)),
            input_dtype="float32" if single else "float64",
        )  # fmt: skip
        values = np.unique(np.concatenate([np.arange(min(n, 300)), np.arange(max(n - 300, 0), n)]))
        X = np.concatenate([[-np.inf, -1, -0.5], values, values + 0.5, [np.inf]])[:, None]
        X = X.astype(np.float32 if single else np.float64)
        model, below = gpuqs.from_model(stumps), np.count_nonzero(threshold < X, axis=1)
        for at in range(0, len(X), 8):
            np.testing.assert_array_equal(model.predict(X[at : at + 8], engine="rankwalk"), below[at : at + 8])
        np.testing.assert_array_equal([model.predict(row[None], engine="rankwalk")[0] for row in X[::7]], below[::7])
