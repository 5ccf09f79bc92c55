"""Growing arrays, and tables of nodes that are split into inner nodes and leaves."""

from __future__ import annotations

import numpy as np
import pytest

from gpuqs.cpu_fallback import node_tables
from gpuqs.errors import ModelFormatError
from gpuqs.formats.growing import GrowingArray
from gpuqs.formats.sklearn_trees import NodeTable, forest_arrays


@pytest.mark.parametrize("dtype", [np.int32, np.float64, np.uint8])
def test_arrays_hold_what_was_added(dtype: type) -> None:
    rng = np.random.default_rng(0)
    array, parts = GrowingArray(dtype), [rng.integers(0, 100, n) for n in (0, 3, 1, 0, 500, 2, 4000)]
    for part in parts:
        array.extend(part if len(part) % 2 else part.tolist())
        array.extend(np.stack([part, part], axis=1))
    want = np.concatenate([np.concatenate([part, np.repeat(part, 2)]) for part in parts]).astype(dtype)
    assert len(array) == len(want)
    np.testing.assert_array_equal(array.array(), want, strict=True)
    assert GrowingArray(dtype).array().shape == (0,)


def test_whole_numbers_that_do_not_fit_are_refused() -> None:
    with pytest.raises(OverflowError):
        GrowingArray(np.uint8).extend([256])


def by_definition(table: NodeTable, tree: int) -> dict[str, list[object]]:
    """One tree's nodes and leaves as a Forest stores them."""
    nodes = range(*table.bounds[tree : tree + 2].tolist())
    inner, leaves = ([i for i in nodes if bool(table.leaf[i]) == leaf] for leaf in (False, True))
    number = {i: k for k, i in enumerate(inner)} | {i: ~k for k, i in enumerate(leaves)}
    return {
        "feature": [table.feature[i] for i in inner],
        "threshold": [table.threshold[i] for i in inner],
        "routing": [table.routing[i] for i in inner],
        "left": [number[nodes[0] + int(table.left[i])] for i in inner],
        "right": [number[nodes[0] + int(table.right[i])] for i in inner],
        "leaf_id": [i - nodes[0] for i in leaves],
        "leaf_value": [table.value[i].tolist() for i in leaves],
    }


def made_up_table(rng: np.random.Generator, sizes: list[int], width: int, step: int) -> NodeTable:
    """Nodes whose children are random nodes of their tree; arrays are strided, with every ``step``-th item used."""
    n = sum(sizes)
    size = np.repeat(sizes, sizes)
    child = [np.repeat((rng.random(n) * size).astype(np.int64), step)[::step] for _ in range(2)]
    feature, threshold = (np.repeat(column, step)[::step] for column in (rng.integers(0, 9, n), rng.normal(size=n)))
    routing = rng.integers(0, 2, n).astype(np.uint8)
    starts = np.append(0, np.cumsum(sizes))
    value = rng.normal(size=(n, width))
    return NodeTable(rng.random(n) < 0.5, *child, feature, threshold, routing, value, starts=starts)


@pytest.mark.parametrize("step", [1, 3])
@pytest.mark.parametrize("width", [1, 3])
def test_tables_are_divided(width: int, step: int) -> None:
    rng = np.random.default_rng(width)
    tables = [made_up_table(rng, sizes, width, step) for sizes in ([7, 1, 12], [1], [5000, 3], [200] * 40)]
    arrays = forest_arrays(tables)
    trees = [by_definition(table, tree) for table in tables for tree in range(len(table.bounds) - 1)]
    for name in trees[0]:
        given = arrays[name]
        np.testing.assert_array_equal(given, np.array([x for tree in trees for x in tree[name]]).reshape(given.shape))
    for name, of in (("node_offsets", "left"), ("leaf_offsets", "leaf_id")):
        assert np.diff(arrays[name]).tolist() == [len(tree[of]) for tree in trees]


def test_no_tables() -> None:
    arrays = forest_arrays([])
    assert arrays["leaf_value"].shape == (0, 1) and arrays["node_offsets"].tolist() == [0]


@pytest.mark.parametrize("field", ["left", "right"])
@pytest.mark.parametrize("child", [-2, 3, 1 << 40, -(1 << 62)])
def test_children_outside_of_their_tree_are_refused(field: str, child: int) -> None:
    rng = np.random.default_rng(3)
    first, second = made_up_table(rng, [4, 4], 1, 1), made_up_table(rng, [5, 3], 1, 1)
    for table in first, second:
        table.leaf[:] = True
    second.leaf[6] = False
    second.left[6] = second.right[6] = 0
    getattr(second, field)[6] = child
    with pytest.raises(ModelFormatError, match="node 1: child is outside of its tree") as caught:
        forest_arrays([first, second])
    assert (caught.value.tree, caught.value.field) == (3, field)


@pytest.mark.parametrize("feature", [1 << 31, 1 << 32, -(1 << 32), -1])
def test_features_that_int32_does_not_hold_become_ones_that_no_forest_has(feature: int) -> None:
    table = made_up_table(np.random.default_rng(5), [5], 1, 1)
    table.leaf[:] = [False, False, True, True, True]
    table.feature[:2] = feature, 7
    assert forest_arrays([table])["feature"].tolist() == [-1, 7]


def test_columns_of_other_lengths_are_refused() -> None:
    table = made_up_table(np.random.default_rng(4), [4], 1, 1)
    names = "left", "right", "feature", "threshold", "routing", "value"
    columns = [table.leaf.view(np.uint8), *(getattr(table, name) for name in names)]
    for at in range(len(columns)):
        short = [column[:-1] if i == at else column for i, column in enumerate(columns)]
        with pytest.raises(ValueError, match="not of one length"):
            node_tables.divide(*short, table.bounds)
    with pytest.raises(ValueError, match="not of one length"):
        node_tables.divide(*columns, np.array([0, 5]))
    for bounds in [0, 5, 4], [0, -1, 4], [0, 3, 2, 4]:
        with pytest.raises(ValueError, match="descend"):
            node_tables.divide(*columns, np.array(bounds))
