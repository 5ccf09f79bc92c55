"""Nodes in preorder, walked in Python, give the exit leaves of the forest's definition."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from forests import exit_leaf_by_walk, probing_documents, random_forest

from gpuqs.forest import ZERO_MISSING, ZERO_THRESHOLD
from gpuqs.layout.columns import round_down
from gpuqs.layout.walk_gpu import MISSING_LEFT, NODE32, NODE64, RIGHT_IS_LEAF, PreorderLayout, build_preorder


def walked(layout: PreorderLayout, nodes: np.ndarray, tree: int, x: np.ndarray) -> int:
    """The exit leaf of ``x`` (values by column), numbered from left to right."""
    at, leaf = layout.roots[tree].tolist()
    inner = at >= 0
    while inner:
        node = nodes[at]
        value, flags, n_left = x[int(node["column"]) % RIGHT_IS_LEAF], int(node["column"]), int(node["n_left"])
        right = not flags & MISSING_LEFT if np.isnan(value) else value > node["threshold"]
        inner = not flags & RIGHT_IS_LEAF if right else n_left > 1
        at, leaf = (at + n_left, leaf + n_left) if right else (at + 1, leaf)
    return leaf


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize(("shape", "leaves"), [("random", 30), ("chain", 90), ("complete", 64), ("random", 1)])
@pytest.mark.parametrize("turned", [False, True])
def test_walks_end_at_the_exit_leaf(dtype: type, shape: str, leaves: int, turned: bool) -> None:
    rng = np.random.default_rng(leaves)
    forest = random_forest(rng, n_trees=7, max_leaves=leaves, shape=shape)
    if turned:
        forest = replace(forest, left=forest.right, right=forest.left)
    layout = build_preorder(forest)
    nodes, columns = layout.node64 if dtype is np.float64 else layout.node32, layout.columns
    for document in probing_documents(rng, forest, 20, dtype):
        x = document[columns.feature].astype(np.float64)
        x[(columns.routing == ZERO_MISSING) & (np.abs(x) <= ZERO_THRESHOLD)] = np.nan
        for tree in range(forest.n_trees):
            leaf = exit_leaf_by_walk(forest, tree, document)
            assert walked(layout, nodes, tree, x) == forest.leaf_offsets[tree] + layout.position[leaf]


def test_nodes_are_what_kernels_load() -> None:
    layout = build_preorder(random_forest(np.random.default_rng(0)))
    np.testing.assert_array_equal(layout.node32["threshold"], round_down(layout.node64["threshold"]))
    for nodes, kind in ((layout.node32, NODE32), (layout.node64, NODE64)):
        words = nodes.view(np.uint32).reshape(-1, 4)
        assert kind.itemsize == 16
        np.testing.assert_array_equal(words[:, 2:], np.stack([nodes["column"], nodes["n_left"]], axis=1))
