"""`gpuqs verify`: what agrees is certified, and planted disagreements are found and shown."""

from __future__ import annotations

import json
import lzma
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agreement import on_cpu
from click.testing import CliRunner, Result
from forests import random_forest

import gpuqs
from gpuqs.cli.commands import cli
from gpuqs.engines.reference import goes_left
from gpuqs.errors import InputError, ModelFormatError, UnsupportedModelError
from gpuqs.forest import CATEGORICAL, NAN_LEFT, ZERO_MISSING, Forest
from gpuqs.verify import Check, RowMaker, compare_made_rows, open_source, verify
from gpuqs.verify.check import ulps_between

trained = pytest.importorskip("trained")

LIGHTGBM = ("categories", "zero_as_missing with nan", "multiclass", "rf", "odd scales", "one leaf")
XGBOOST = ("categories", "nan", "softprob", "vector leaves", "dart", "forest")
CASES = [("lightgbm", name) for name in LIGHTGBM] + [("xgboost", name) for name in XGBOOST]


@cache
def model_bytes(library: str, name: str) -> bytes:
    if library == "lightgbm":
        return trained.lightgbm_trained(name).booster.model_to_string().encode()
    return bytes(trained.xgboost_trained(name).booster.save_raw("json" if name == "nan" else "ubj"))


def verify_command(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["verify", *map(str, arguments)])


def planted(library: str, name: str, change: Callable[[Forest], Forest], rows: int = 600) -> Check:
    """The check of a forest that differs slightly from the library's model."""
    source = open_source(model_bytes(library, name))
    check = Check(source, forest=change(source.forest))
    compare_made_rows(check, rows, 0, 1)
    return check


def test_a_model_from_a_device_that_never_ends() -> None:
    with pytest.raises(ModelFormatError, match="/dev/zero: is in no format that gpuqs reads") as caught:
        verify("/dev/zero")
    assert "LightGBM text" in str(caught.value) and "scikit-learn" not in str(caught.value)  # scikit-learn has no files


# -- agreement ------------------------------------------------------------------------------


@pytest.mark.parametrize(("library", "name"), CASES)
def test_trained_models_agree(library: str, name: str) -> None:
    data = model_bytes(library, name)
    model = gpuqs.from_model(data)
    outcome = verify(data, rows=400, engines=["all"])
    assert outcome.ok and outcome.first is None
    assert outcome.rows == {"made rows": 400}
    able = [name for name, reason in on_cpu(model).items() if reason is None]
    assert [tally.engine for tally in outcome.tallies] == able
    for tally in outcome.tallies:
        assert (tally.leaves, tally.scores) == (400 * model.n_trees, 400 * model.n_outputs)
        assert (tally.leaves_agree, tally.scores_agree, tally.largest_ulps) == (tally.leaves, tally.scores, 0)
        assert tally.values_agree == tally.values > 0


@pytest.mark.parametrize("kind", ["plain", "categories", "scaled"])
def test_catboost_models_agree(tmp_path: Path, kind: str) -> None:
    catboost = pytest.importorskip("catboost")
    X, target = trained.with_categories(np.random.default_rng(1))
    quiet = {"thread_count": 1, "allow_writing_files": False, "verbose": False}
    model = catboost.CatBoostRegressor(iterations=15, depth=4, one_hot_max_size=50, **quiet)
    pool = catboost.Pool(X, target)
    if kind == "categories":
        table = X.astype(object)
        table[:, [1, 5]] = np.nan_to_num(X[:, [1, 5]]).astype(int).astype(str)
        pool = catboost.Pool(table, target, cat_features=[1, 5])
    model.fit(pool)
    if kind == "scaled":
        model.set_scale_and_bias(0.3, 0.7)
    model.save_model(str(tmp_path / "model.json"), format="json", pool=pool)
    outcome = verify(tmp_path / "model.json", rows=400)
    assert outcome.ok, outcome.first
    assert (outcome.bound > 0) == (kind == "scaled")
    assert any(tally.scores_within > 0 for tally in outcome.tallies) == (kind == "scaled")
    assert outcome.notes and all("CatBoost" in note and "its file" in note for note in outcome.notes)
    if kind == "categories":
        assert (gpuqs.load(tmp_path / "model.json").forest.routing & CATEGORICAL).any()
    # The bound on scores of scaled models hides no wrong leaf value.
    source = open_source(tmp_path / "model.json")
    value = source.forest.leaf_value * (1 + 1e-9)
    check = Check(source, forest=replace(source.forest, leaf_value=value))
    compare_made_rows(check, 50, 0, 1)
    assert not check.certificate.ok


def test_progress_is_told() -> None:
    told: list[tuple[int, int]] = []
    verify(model_bytes("lightgbm", "rf"), rows=3000, progress=lambda done, total: told.append((done, total)))
    assert len(told) > 1 and told == sorted(told) and told[-1] == (3000, 3000)


def test_few_rows_and_few_trees() -> None:
    for rows in (1, 2, 3):
        assert verify(model_bytes("lightgbm", "categories"), rows=rows).rows == {"made rows": rows}
    nothing = verify(model_bytes("lightgbm", "categories"), rows=0)
    assert not nothing.ok and nothing.first is None
    text = trained.lightgbm_trained("rf").booster.model_to_string(num_iteration=1)
    assert verify(text.encode(), rows=50).ok


# -- made rows ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("input_dtype", ["float64", "float32"])
def test_made_rows_reach_every_node_on_its_threshold(dtype: type, input_dtype: str) -> None:
    forest = gpuqs.from_model(model_bytes("lightgbm", "categories")).forest
    if input_dtype == "float32":
        threshold = forest.threshold.astype(np.float32).astype(np.float64)
        forest = replace(forest, threshold=threshold, input_dtype="float32")
    forest = forest.select(slice(5, 8))
    X = RowMaker(forest).make(60 * forest.n_nodes, np.dtype(dtype))
    step = np.float32 if np.float32 in (dtype, np.dtype(input_dtype).type) else np.float64
    with np.errstate(over="ignore"):
        X = X.astype(input_dtype)
    numeric = met = missing = 0
    for tree in range(forest.n_trees):
        base = int(forest.node_offsets[tree])
        there = {0: np.ones(len(X), bool)}
        for at in range(int(forest.node_offsets[tree + 1]) - base):  # LightGBM numbers parents first
            node, rows = base + at, there[at]
            x = X[:, forest.feature[node]].astype(np.float64)
            left = goes_left(forest, node, x)
            for child, side in ((forest.left[node], left), (forest.right[node], ~left)):
                there[int(child)] = rows & side
            assert (rows & left).any() and (rows & ~left).any(), "a side of a node that no row takes"
            missing += np.isnan(x[rows]).any()
            if not forest.routing[node] & CATEGORICAL:
                t = forest.threshold[node]
                low = step(t) if step(t) <= t else np.nextafter(step(t), step(-np.inf))
                numeric += 1
                met += sum((x[rows] == value).any() for value in (low, np.nextafter(low, step(np.inf))))
    assert numeric > 20 and forest.n_nodes - numeric > 20
    # Below a test of the same feature, a value may be unreachable by construction.
    assert met >= 1.9 * numeric
    assert missing >= 0.6 * forest.n_nodes


def test_made_rows_are_the_same_for_the_same_seed() -> None:
    forest = random_forest(np.random.default_rng(0), categorical=0.3)
    first, second, other = (RowMaker(forest, seed=seed).make(100, np.dtype(np.float64)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, second)
    assert (first != other).any()
    assert np.isinf(first).any() and np.isnan(first).any() and (first < 0).any()
    assert ((first == 0) & np.signbit(first)).any()
    assert ((np.abs(first) > 0) & (np.abs(first) < 1e-300)).any()
    finite = RowMaker(forest, infinite=False).make(500, np.dtype(np.float64))
    with np.errstate(over="ignore"):
        assert not np.isinf(finite.astype(np.float32)).any()


def test_batches_of_any_number_of_rows_take_no_memory() -> None:
    forest = random_forest(np.random.default_rng(0))
    batches = RowMaker(forest).batches(10_000)
    assert iter(batches) is batches and next(batches)[0] > 0  # made one by one, never held


def test_batches_alternate_between_float64_and_float32() -> None:
    maker = RowMaker(random_forest(np.random.default_rng(0)))
    for n in (0, 1, 2, 50, 5000):
        batches = list(maker.batches(n))
        assert sum(size for size, _ in batches) == n
        if n > 1:
            assert {str(dtype) for _, dtype in batches} == {"float64", "float32"}


def test_too_wide_models_are_refused() -> None:
    forest = replace(random_forest(np.random.default_rng(0)), n_features=1 << 24)
    with pytest.raises(UnsupportedModelError, match="16,777,216 features"):
        RowMaker(forest)


# -- planted disagreements ------------------------------------------------------------------


def _altered(forest: Forest, field: str, at: int, value: Any) -> Forest:
    changed = getattr(forest, field).copy()
    changed[at] = value
    return replace(forest, **{field: changed})


def _node(forest: Forest, chosen: Callable[[Forest], np.ndarray], depth: int = 3) -> int:
    """Some node of those chosen, in a late tree."""
    nodes = np.flatnonzero(chosen(forest) & (forest.depth == depth) & (forest.node_tree > 5))
    return int(nodes[len(nodes) // 2])


def _numeric(forest: Forest) -> np.ndarray:
    return (forest.routing & CATEGORICAL) == 0


@pytest.mark.parametrize(("library", "name"), [("lightgbm", "categories"), ("lightgbm", "rf"), ("xgboost", "nan")])
@pytest.mark.parametrize("toward", [np.inf, -np.inf])
def test_a_threshold_moved_by_one_ulp_is_found(library: str, name: str, toward: float) -> None:
    step = np.float64 if library == "lightgbm" else np.float32
    forest = gpuqs.from_model(model_bytes(library, name)).forest
    node = _node(forest, _numeric)
    old = forest.threshold[node]
    new = float(np.nextafter(step(old), step(toward)))
    check = planted(library, name, lambda forest: _altered(forest, "threshold", node, new), rows=12_000)
    first = check.certificate.first
    assert not check.certificate.ok and first is not None
    assert first.tree == forest.node_tree[node]
    assert first.leaf != first.their_leaf and first.leaf == first.path_leaf
    (step_,) = [step_ for step_ in first.path if step_.parts]
    assert step_.node == node - forest.node_offsets[first.tree]
    assert step_.value in (old, new) and repr(new) in step_.test
    assert first.values[step_.feature] == pytest.approx(step_.value, rel=1e-6)
    tally = check.certificate.tallies[0]
    assert 0 < tally.leaves - tally.leaves_agree < 100


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_another_link_is_found(library: str) -> None:
    outcome = planted(library, "nan", lambda forest: replace(forest, link="sqrt_signed")).certificate
    tally = outcome.tallies[0]
    assert not outcome.ok and outcome.first is None and tally.ok is False
    assert (tally.leaves_agree, tally.scores_agree) == (tally.leaves, tally.scores)
    assert 0 <= tally.values_agree < tally.values == 600
    assert re.fullmatch(r"first disagreement about values: row \d+ of made rows", outcome.values[0])
    assert "  values: gpuqs" in outcome.values[2]


@pytest.mark.parametrize(("library", "name"), [("lightgbm", "zero_as_missing with nan"), ("xgboost", "nan")])
def test_a_flipped_missing_direction_is_found(library: str, name: str) -> None:
    forest = gpuqs.from_model(model_bytes(library, name)).forest
    node = _node(forest, _numeric)
    flipped = forest.routing[node] ^ NAN_LEFT
    check = planted(library, name, lambda forest: _altered(forest, "routing", node, flipped))
    first = check.certificate.first
    assert first is not None and first.tree == forest.node_tree[node]
    (step,) = [step for step in first.path if step.parts]
    assert step.node == node - forest.node_offsets[first.tree]
    assert np.isnan(step.value) or (flipped & ZERO_MISSING and abs(step.value) <= 1e-34)
    assert step.left == bool(flipped & NAN_LEFT)


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_a_changed_category_is_found(library: str) -> None:
    forest = gpuqs.from_model(model_bytes(library, "categories")).forest
    node = _node(forest, lambda forest: ~_numeric(forest), depth=1)
    word = int(forest.category_offsets[node])
    other = forest.category_words[word] ^ np.uint32(1 << 6)
    check = planted(library, "categories", lambda forest: _altered(forest, "category_words", word, other), rows=2000)
    first = check.certificate.first
    assert first is not None and first.tree == forest.node_tree[node]
    (step,) = [step for step in first.path if step.parts]
    assert step.node == node - forest.node_offsets[first.tree] and int(step.value) == 6


@pytest.mark.parametrize(
    ("library", "name"),
    [("lightgbm", "multiclass"), ("xgboost", "softprob"), ("xgboost", "nan")],
)
def test_a_leaf_value_off_by_one_ulp_is_found(library: str, name: str) -> None:
    forest = gpuqs.from_model(model_bytes(library, name)).forest
    # The largest value: values that are small compared with the sums are rightly rounded away.
    leaf = int(np.abs(forest.leaf_value[:, 0]).argmax())
    tree = int(np.searchsorted(forest.leaf_offsets, leaf, "right")) - 1
    step = np.dtype(forest.sum_dtype).type
    new = float(np.nextafter(step(forest.leaf_value[leaf, 0]), step(np.inf)))
    check = planted(library, name, lambda forest: _altered(forest, "leaf_value", (leaf, 0), new))
    first, tally = check.certificate.first, check.certificate.tallies[0]
    assert tally.leaves_agree == tally.leaves
    assert tally.scores_agree < tally.scores
    assert 0 < tally.largest < 1e-5 and tally.largest_ulps >= 1
    assert first is not None
    assert (first.tree, first.among, first.output) == (tree, 1, forest.tree_output[tree])
    assert first.leaf == first.their_leaf == first.path_leaf == forest.leaf_id[leaf]
    assert first.leaf_value == new and first.score != first.their_score
    assert not any(step.parts for step in first.path)


def test_a_changed_base_score_shows_from_the_first_tree_on() -> None:
    check = planted("xgboost", "nan", lambda forest: replace(forest, base_score=forest.base_score + 1))
    first = check.certificate.first
    assert first is not None and first.tree == 0
    assert check.certificate.tallies[0].scores_agree == 0


def test_a_tree_among_several_of_an_iteration() -> None:
    forest = gpuqs.from_model(model_bytes("xgboost", "forest")).forest
    leaf = int(forest.leaf_offsets[7])
    check = planted("xgboost", "forest", lambda forest: _altered(forest, "leaf_value", (leaf, 0), 1.0))
    first = check.certificate.first
    assert first is not None and (first.tree, first.among) == (5, 5)


# -- rows of one's own ----------------------------------------------------------------------


def test_rows_of_ones_own_are_compared_too() -> None:
    data = model_bytes("lightgbm", "categories")
    X = trained.lightgbm_trained("categories").rows
    outcome = verify(data, X, rows=10)
    assert outcome.ok and outcome.rows == {"made rows": 10, "rows of X": len(X)}
    with pytest.raises(InputError):
        verify(data, X[:, :3], rows=10)


def test_infinite_rows_are_left_out_and_numbers_stay() -> None:
    source = open_source(model_bytes("xgboost", "nan"))
    forest = source.forest
    check = Check(source, forest=replace(forest, base_score=forest.base_score + 1))
    X = np.zeros((6, forest.n_features))
    X[0, 0], X[1, 2], X[3, 1] = np.inf, -1e300, np.inf
    check.add(X[:2], "rows of a file")
    check.add(X[2:], "rows of a file")
    outcome = check.certificate
    assert (outcome.rows, outcome.left_out) == ({"rows of a file": 3}, 3)
    assert outcome.first is not None and outcome.first.row == 2


# -- distances ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_ulps_between(dtype: type) -> None:
    x = np.array([1.0, -2.0, 0.0, -0.0, 1e-30, -1e30, 5e-324], dtype)
    np.testing.assert_array_equal(ulps_between(x, x), 0)
    for toward in (np.inf, -np.inf):
        np.testing.assert_array_equal(ulps_between(x, np.nextafter(x, dtype(toward)))[[0, 1, 4, 5]], 1)
    assert ulps_between(dtype([0.0]), dtype([-0.0])) == 1
    tiny = np.nextafter(dtype(0), dtype(1))
    assert ulps_between(np.array([tiny]), np.array([-tiny])) == 3
    assert ulps_between(dtype([1.0]), dtype([2.0])) == 1 << (23 if dtype is np.float32 else 52)


# -- what cannot be verified ----------------------------------------------------------------


def test_engines_are_checked() -> None:
    source = open_source(model_bytes("lightgbm", "rf"))
    with pytest.raises(InputError, match="engine 'warp' is not one of auto, all, bitslice"):
        Check(source, ["warp"])
    with pytest.raises(InputError, match=r"engine 'rankwalk' cannot run this model: .*leaves"):
        Check(open_source(trained.lightgbm_trained("300 leaves").booster.model_to_string().encode()), ["rankwalk"])
    twice = Check(source, ["walk", "rankwalk", "walk"]).certificate
    assert [tally.engine for tally in twice.tallies] == ["walk", "rankwalk"]


@pytest.mark.parametrize(("library", "pip"), [("lightgbm", "lightgbm"), ("xgboost", "xgboost")])
def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch, library: str, pip: str) -> None:
    data = model_bytes(library, "categories")
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InputError, match=f"pip install {pip}"):
        verify(data)


def test_formats_without_a_library_are_refused_by_name(tmp_path: Path) -> None:
    gpuqs.from_model(model_bytes("lightgbm", "rf")).save(tmp_path / "model.gpuqs")
    with pytest.raises(UnsupportedModelError, match=r"model\.gpuqs: gpuqs verifies files of LightGBM, X.* 'gpuqs'"):
        verify(tmp_path / "model.gpuqs")
    with pytest.raises(ModelFormatError, match="no format that gpuqs reads"):
        verify(b"not a model")
    with pytest.raises(ModelFormatError, match="model bytes"):
        verify(model_bytes("lightgbm", "rf")[:2000])


def test_what_the_library_itself_does_not_load_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise RuntimeError("bad tree\nStack trace: ...")

    monkeypatch.setattr("lightgbm.Booster.__init__", refuse)
    with pytest.raises(ModelFormatError, match=r"model bytes: LightGBM [\d.]+ itself cannot load the model: bad tree$"):
        verify(model_bytes("lightgbm", "rf"))


def test_models_that_crash_xgboost_are_refused() -> None:
    xgboost = pytest.importorskip("xgboost")
    if tuple(map(int, xgboost.__version__.split(".")[:2])) < (3, 2):
        pytest.skip("this XGBoost does not crash")
    path = Path(__file__).parents[1] / "data" / "xgboost" / "3.1.3.json.xz"
    model = json.loads(lzma.decompress(path.read_bytes()))["cases"]["vector leaves"]["model"]
    with pytest.raises(UnsupportedModelError, match=r"XGBoost 3\.\d\.\d crashes .* pip install 'xgboost<3\.2'"):
        verify(model.encode())


# -- the command ----------------------------------------------------------------------------


@pytest.fixture
def model_file(tmp_path: Path) -> Path:
    path = tmp_path / "model.txt"
    path.write_bytes(model_bytes("lightgbm", "categories"))
    return path


def test_the_command_certifies(model_file: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", trained.lightgbm_trained("categories").rows[:50])
    result = verify_command(model_file, tmp_path / "x.npy", "--rows", 300, "--engine", "walk", "--engine", "rankwalk")
    assert result.exit_code == 0, result.output
    assert f"rows compared: 300 made rows; 50 rows of {tmp_path / 'x.npy'}\n" in result.stdout
    for engine in ("walk", "rankwalk"):
        line = rf"^{engine} +exit leaves: 7,000 of 7,000 agree; raw scores: 350 of 350 equal bit for bit; largest diff"
        assert re.search(line + "erence 0; values: 350 of 350 equal bit for bit$", result.stdout, re.M)
    assert result.stdout.endswith("verified: everything agrees\n")


def test_the_command_shows_the_first_disagreement(model_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuqs.formats import lightgbm

    read = lightgbm.read
    forest = read(model_file.read_bytes(), "model")
    node = _node(forest, _numeric)
    tree = int(forest.node_tree[node])
    new = float(np.nextafter(forest.threshold[node], np.inf))
    monkeypatch.setattr(lightgbm, "read", lambda *given: _altered(read(*given), "threshold", node, new))
    result = verify_command(model_file, "--rows", 6000)
    assert result.exit_code == 1
    text = result.stdout
    assert re.search(r"^first disagreement: row [\d,]+ of made rows \(float64\)$", text, re.M)
    assert f"  tree {tree}\n" in text
    at = node - int(forest.node_offsets[tree])
    marked = rf"node {at}: Column_{forest.feature[node]} = {new!r}: left if <= {new!r}; missing goes \w+: left   <- Li"
    assert re.search(marked, text)
    assert text.count("goes the other way") == 1
    assert re.search(r"exit leaf: gpuqs \(\w+\) \d+, LightGBM [\d.]+ \d+\n", text)
    assert text.endswith("NOT verified\n")


def test_the_command_shows_a_wrong_leaf_value(model_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuqs.formats import lightgbm

    read = lightgbm.read
    monkeypatch.setattr(lightgbm, "read", lambda *given: _altered(read(*given), "leaf_value", (0, 0), 0.125))
    result = verify_command(model_file, "--rows", 300)
    assert result.exit_code == 1
    assert "leaf value in gpuqs: 0.125; sums differ starting with this tree\n" in result.stdout
    assert re.search(r"exit leaves: 6,000 of 6,000 agree; raw scores: \d+ of 300 equal", result.stdout)


def test_the_command_without_rows(model_file: Path) -> None:
    result = verify_command(model_file, "--rows", 0)
    assert result.exit_code == 1
    assert result.stdout.endswith("NOT verified: there were no rows to compare\n")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engine", "warp"], "--engine: 'warp' is not one of auto, all, "),
        (["--rows", "-1"], "-1 is not in the range 0<=x<=1000000000000"),
        (["no such file"], "does not exist"),
    ],
)
def test_bad_options(model_file: Path, options: list[str], message: str) -> None:
    result = verify_command(model_file, *options)
    assert result.exit_code != 0 and message in result.stderr
    assert "Traceback" not in result.output
