"""Compiled code, which reads LightGBM's plain trees, reads them as the general reader does."""

from __future__ import annotations

import re
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest

from gpuqs.cpu_fallback import lightgbm_trees
from gpuqs.errors import GpuqsError
from gpuqs.forest_arrays import ARRAYS
from gpuqs.formats import lightgbm


def model_text(kind: str, n_trees: int = 6) -> bytes:
    rng = np.random.default_rng(7)
    X = rng.normal(size=(400, 4))
    X[:, 3] = rng.integers(0, 6, 400)
    y = X[:, 0] + (X[:, 3] % 2) * (3 + X[:, 1])
    more: dict[str, Any] = {"linear_tree": kind == "linear"}
    if kind == "lone leaves":  # of a class that no row has
        y = (X[:, 0] > 0).astype(float)
        more, n_trees = {"objective": "multiclass", "num_class": 3}, n_trees // 3
    data = lgb.Dataset(X, y, categorical_feature=[3] if kind == "categories" else [])
    params = {"num_leaves": 7, "verbose": -1, "num_threads": 1, "min_data_in_leaf": 5, "min_data_per_group": 5}
    return lgb.train(params | more, data, n_trees).model_to_string().encode()


TEXTS = {kind: model_text(kind) for kind in ("numbers", "categories", "linear", "lone leaves")}


def outcome(text: bytes) -> Any:
    """The arrays, or the error message."""
    try:
        forest = lightgbm.read(text, "model")
    except GpuqsError as error:
        return str(error)
    return {name: (getattr(forest, name).dtype, getattr(forest, name).tobytes()) for name in ARRAYS}


def read_tree_by_tree(text: bytes, monkeypatch: pytest.MonkeyPatch) -> Any:
    nothing = {"n_leaves": np.zeros(0, np.int64)}
    with monkeypatch.context() as patched:
        patched.setattr(lightgbm_trees, "read", lambda text, at, *rest: (nothing, at))
        return outcome(text)


@pytest.mark.parametrize("kind", TEXTS)
def test_both_ways_read_the_same(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = TEXTS[kind]
    arrays = outcome(text)
    assert isinstance(arrays, dict) and arrays == read_tree_by_tree(text, monkeypatch)
    assert {"categories": "category_words", "linear": "linear_feature"}.get(kind, "feature") in [
        name for name, (_, values) in arrays.items() if values
    ]
    assert (b"num_leaves=1\n" in text) == (kind == "lone leaves")


@pytest.mark.parametrize("kind", TEXTS)
def test_plain_trees_are_read_in_compiled_code(kind: str) -> None:
    text = TEXTS[kind]
    first, end = text.index(b"\nTree="), text.index(b"\nend of trees")
    arrays, following = lightgbm_trees.read(text, first, end, 0, 1 << 20, 10)
    assert following == -1 and len(arrays["n_leaves"]) == 6
    arrays, following = lightgbm_trees.read(text, first, end, 0, 1, 10)
    assert len(arrays["n_leaves"]) == 1 and text[following:].startswith(b"\nTree=1\n")


def test_trees_that_are_not_plain_stand_between_others(monkeypatch: pytest.MonkeyPatch) -> None:
    text = TEXTS["numbers"].replace(b"\nTree=2\nnum_leaves=7\nnum_cat=0\n", b"\nTree=2 \nnum_leaves=07\nnum_cat=0\n")
    text = b"\n".join(line for line in text.split(b"\n") if not line.startswith(b"tree_sizes="))
    assert text != TEXTS["numbers"]
    assert isinstance(outcome(text), dict)
    assert outcome(text) == read_tree_by_tree(text, monkeypatch) == outcome(TEXTS["numbers"])


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"threshold=", b"threshold=1e999 "),
        (b"threshold=", b"threshold=0x1p3 "),
        (b"threshold=", b"threshold=  "),
        (b"threshold=", b"threshold=+"),
        (b"threshold=", b"threshold\n"),
        (b"threshold=", b"threshold=nan "),
        (b"threshold=", b"threshold=1\nthreshold="),
        (b"leaf_value=", b"leaf_value=1.\t"),
        (b"leaf_value=", b"leaf_value=-"),
        (b"split_feature=", b"split_feature=1.5 "),
        (b"split_feature=", b"split_feature=99999999999 "),
        (b"left_child=", b"left_child=-2147483648 "),
        (b"decision_type=", b"decision_type=-1 "),
        (b"decision_type=", b"decision_type=11 "),
        (b"decision_type=", b"decision_type=300 "),
        (b"decision_type=", b"decision_types="),
        (b"num_leaves=7", b"num_leaves=6"),
        (b"num_leaves=7", b"num_leaves=1"),
        (b"num_cat=0", b"num_cat=1"),
        (b"num_cat=0", b"is_linear=00\nnum_cat=0"),
        (b"num_cat=0", b"num_cat=0" + b"\n" * 1001),
        (b"Tree=1\n", b"Tree=01\n"),
        (b"Tree=1\n", b"Tree=2\n"),
    ],
)
def test_odd_text_is_read_or_refused_alike(old: bytes, new: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"\n".join(line for line in TEXTS["numbers"].split(b"\n") if not line.startswith(b"tree_sizes="))
    for count in (1, 2):  # in the first tree, in the second
        before, found, after = text.partition(b"\nTree=" + b"%d" % (count - 1))
        damaged = before + found + after.replace(old, new, 1)
        assert outcome(damaged) == read_tree_by_tree(damaged, monkeypatch)


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("categories", rb"num_cat=\d+", b"num_cat=7"),
        ("categories", rb"num_cat=\d+", b"num_cat=0"),
        ("categories", rb"cat_boundaries=0", b"cat_boundaries=1"),
        ("categories", rb"cat_boundaries=0 1", b"cat_boundaries=0 2"),
        ("categories", rb"cat_boundaries=0 1", b"cat_boundaries=0 -1"),
        ("categories", rb"cat_boundaries=0", b"cat_boundaries=0 0"),
        ("categories", rb"cat_threshold=\d+", b"cat_threshold=4294967295"),
        ("categories", rb"cat_threshold=\d+", b"cat_threshold=4294967296"),
        ("categories", rb"cat_threshold=\d+", b"cat_threshold=-1"),
        ("categories", rb"cat_threshold=", b"cat_threshold=1 "),
        ("linear", rb"is_linear=1", b"is_linear=2"),
        ("linear", rb"is_linear=1", b"is_linear=0"),
        ("linear", rb"is_linear=1", b"is_linear=x"),
        ("linear", rb"leaf_const=\S+", b"leaf_const=nan"),
        ("linear", rb"leaf_const=\S+ ", b"leaf_const="),
        ("linear", rb"num_features=\d+", b"num_features=-1"),
        ("linear", rb"num_features=\d+", b"num_features=999999999999"),
        ("linear", rb"num_features=\d+", b"num_features=9"),
        ("linear", rb"leaf_features=", b"leaf_features=  "),
        ("linear", rb"leaf_features=(.*)", rb"leaf_features=0 \1"),
        ("linear", rb"leaf_features=\s*\d+", b"leaf_features=-1"),
        ("linear", rb"leaf_features=\s*\d+", b"leaf_features=4"),
        ("linear", rb"leaf_features=\s*\d+", b"leaf_features=2147483648"),
        ("linear", rb"leaf_coeff=\s*\S+", b"leaf_coeff=inf"),
        ("linear", rb"leaf_coeff=(.*)", rb"leaf_coeff=\1 1.5"),
        ("linear", rb"leaf_coeff=(.*)", rb"leaf_coeff=\1\t"),
    ],
)
def test_odd_sets_and_linear_leaves_are_read_or_refused_alike(
    kind: str, old: bytes, new: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = b"\n".join(line for line in TEXTS[kind].split(b"\n") if not line.startswith(b"tree_sizes="))
    for tree in (1, 2):  # the first has no coefficients
        before, found, after = text.partition(b"\nTree=%d" % tree)
        damaged = before + found + re.sub(old, new, after, count=1)
        assert damaged != text
        assert outcome(damaged) == read_tree_by_tree(damaged, monkeypatch)


@pytest.mark.parametrize("kind", TEXTS)
def test_damaged_text_is_read_or_refused_alike(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(11)
    bytes_ = np.frombuffer(b" \n=-+.0123456789eEinfaT\t\rx", np.uint8)
    kinds = set()
    text = b"\n".join(line for line in TEXTS[kind].split(b"\n") if not line.startswith(b"tree_sizes="))
    first, end = text.index(b"\nTree=") + 1, text.index(b"\nend of trees")
    for _ in range(400):
        damaged = bytearray(text)
        damaged[rng.integers(first, end)] = rng.choice(bytes_)  # only one byte: of two faults, either may be reported
        got = outcome(bytes(damaged))
        kinds.add(type(got))
        assert got == read_tree_by_tree(bytes(damaged), monkeypatch)
    assert kinds == {str, dict}


@pytest.mark.parametrize(("at", "end"), [(3, 99), (3, 3), (-1, 4), (5, 4)])
def test_places_outside_the_text_are_refused(at: int, end: int) -> None:
    with pytest.raises(ValueError, match="no trees from"):
        lightgbm_trees.read(b"\nTree=0\n", at, end, 0, 1, 10)
