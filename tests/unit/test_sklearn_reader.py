"""scikit-learn's estimators: the meaning of each array; unsupported estimators and pickles are refused by name."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpuqs
from gpuqs.errors import ModelFormatError, UnsupportedModelError
from gpuqs.forest import CATEGORICAL, NAN_LEFT, SET_RIGHT, WHOLE_CODES
from gpuqs.formats import read_model
from gpuqs.formats import sklearn as reader
from gpuqs.formats.sklearn_trees import forest_arrays, node_depths, table_of_tree
from gpuqs.links import apply_link

pytest.importorskip("sklearn", minversion="1.6")
import sklearn
from sklearn import calibration, dummy, ensemble, linear_model, model_selection, pipeline, preprocessing, tree

RNG = np.random.default_rng(0)
X = RNG.normal(size=(80, 3))
Y = X[:, 0] + 0.1 * X[:, 1]
CLASSES = np.array(["no", "yes"])[(Y > 0).astype(int)]


def test_arrays_of_a_tree() -> None:
    #      0: x1 <= 0.5 ? 1 : 4;  1: x0 <= -2 ? 2 : 3;  2, 3, 4: leaves
    held = SimpleNamespace(
        children_left=np.array([1, 2, -1, -1, -1]),
        children_right=np.array([4, 3, -1, -1, -1]),
        feature=np.array([1, 0, -2, -2, -2]),
        threshold=np.array([0.5, -2.0, -2.0, -2.0, -2.0]),
        missing_go_to_left=np.array([0, 1, 0, 0, 0], np.uint8),
    )
    table = table_of_tree(held, np.arange(5.0)[:, None] * 10)
    arrays = forest_arrays([table, table])
    assert arrays["node_offsets"].tolist() == [0, 2, 4]
    assert arrays["leaf_offsets"].tolist() == [0, 3, 6]
    assert arrays["feature"].tolist() == [1, 0] * 2
    assert arrays["threshold"].tolist() == [0.5, -2.0] * 2
    assert arrays["left"].tolist() == [1, ~0] * 2
    assert arrays["right"].tolist() == [~2, ~1] * 2
    assert arrays["routing"].tolist() == [0, NAN_LEFT] * 2
    assert arrays["leaf_value"].tolist() == [[20], [30], [40]] * 2
    assert arrays["leaf_id"].tolist() == [2, 3, 4] * 2
    assert node_depths(held).tolist() == [0, 1, 2, 2, 1]
    assert not table_of_tree(held, table.value, missing=False).routing.any()


@pytest.mark.parametrize("feature", [3, -1, 1 << 31, 1 << 32, -(1 << 32)])
def test_features_out_of_range_are_refused(feature: int) -> None:
    model = tree.DecisionTreeRegressor(max_depth=1).fit(X, Y)
    model.tree_.feature[0] = feature  # a view of the tree's nodes
    with pytest.raises(ModelFormatError, match=r"node 0: feature is not in \[0, 3\)") as caught:
        read_model(model)
    assert (caught.value.tree, caught.value.field) == (0, "feature")


@pytest.mark.parametrize("feature", [3, -1, -3, 1 << 32])
def test_features_of_histograms_out_of_range_are_refused(feature: int) -> None:
    model = ensemble.HistGradientBoostingRegressor(max_iter=2, min_samples_leaf=1).fit(X, Y)
    model._predictors[1][0].nodes["feature_idx"][0] = feature
    with pytest.raises(ModelFormatError, match=r"node 0: feature is not in \[0, 3\)") as caught:
        read_model(model)
    assert (caught.value.tree, caught.value.field) == (1, "feature")


def test_what_a_forest_tells_of_its_estimator() -> None:
    forest = read_model(ensemble.RandomForestClassifier(3, max_depth=2).fit(X, CLASSES))
    assert (forest.n_trees, forest.n_features, forest.n_outputs) == (3, 3, 2)
    assert forest.classes == ("no", "yes")
    assert forest.average
    assert (forest.input_dtype, forest.integer_dtype, forest.sum_dtype) == ("float32", "float32", "float64")
    assert forest.source == f"scikit-learn {sklearn.__version__}"
    assert forest.objective == "RandomForestClassifier gini"
    assert forest.feature_names == ()


def test_weights_of_samples_are_made_probabilities(monkeypatch: pytest.MonkeyPatch) -> None:
    """As releases before 1.4 do, which store the weights."""
    counts = np.array([[3.0, 1.0], [0.0, 0.0], [0.0, 7.0]])
    for release in ("1.3.2", "1.1.dev0", "1.3rc1"):
        monkeypatch.setattr(sklearn, "__version__", release)
        assert reader._probabilities(counts).tolist() == [[0.75, 0.25], [0, 0], [0, 1]]
    for release in ("1.4.0", "1.10.1", "1.8rc1", "2.0"):
        monkeypatch.setattr(sklearn, "__version__", release)
        assert reader._probabilities(counts) is counts


@pytest.mark.parametrize("kind", [tree.DecisionTreeClassifier, ensemble.RandomForestClassifier])
def test_values_that_are_no_shares_stay_as_they_are(kind: Any) -> None:
    model = kind(max_depth=3, random_state=0).fit(X, CLASSES)
    for part in getattr(model, "estimators_", [model]):
        part.tree_.value[:] = part.tree_.value * 0.5 + 0.1
    np.testing.assert_array_equal(gpuqs.from_model(model).predict(X), model.predict_proba(X))


@pytest.mark.parametrize("fitted", ["log_loss", "exponential"])
def test_the_link_is_that_of_the_loss_at_fit(fitted: str) -> None:
    model = ensemble.GradientBoostingClassifier(n_estimators=3, loss=fitted).fit(X, CLASSES)
    model.set_params(loss="exponential" if fitted == "log_loss" else "log_loss")
    np.testing.assert_allclose(gpuqs.from_model(model).predict(X), model.predict_proba(X)[:, 1], rtol=1e-15)


def test_gradient_boosting_starts_where_it_says() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for init, start in ((None, Y.mean()), ("zero", 0.0)):
            model = ensemble.GradientBoostingRegressor(n_estimators=3, init=init, learning_rate=0.3).fit(X, Y)
            forest = read_model(model)
            assert forest.base_first
            np.testing.assert_allclose(forest.base_score, [start], rtol=1e-12)
            assert forest.tree_weight.tolist() == [0.3] * 3


def test_isolation_link() -> None:
    mean_depth = np.array([[0.0], [2.0], [4.0]])
    np.testing.assert_array_equal(apply_link("isolation", 0.5, mean_depth), [[-1], [-0.5], [-0.25]])


def hist(values: Any, **params: Any) -> Any:
    """An estimator with numbers in the first column and one categorical feature in the second."""
    values = np.asarray(values)
    documents = np.empty((len(values) * 20, 2), values.dtype)
    documents[:, 0], documents[:, 1] = np.resize([0, 1], len(documents)), np.resize(values, len(documents))
    target = np.resize(np.arange(len(values)) % 2, len(documents)).astype(float)
    defaults = {"categorical_features": [1], "max_iter": 2, "min_samples_leaf": 2, "max_leaf_nodes": 2}
    return ensemble.HistGradientBoostingRegressor(**defaults | params).fit(documents, target)


def test_category_sets_hold_the_users_values() -> None:
    forest = read_model(hist([70.0, 5.0, 40.0]))
    assert forest.feature.tolist() == [1, 1]
    assert forest.schema.categories == ()
    for node in range(2):
        words = forest.category_words[forest.category_offsets[node] : forest.category_offsets[node + 1]]
        codes = {32 * word + bit for word, bits in enumerate(words.tolist()) for bit in range(32) if bits >> bit & 1}
        routing = int(forest.routing[node])
        assert routing & (CATEGORICAL | WHOLE_CODES) == CATEGORICAL | WHOLE_CODES
        assert bool(routing & SET_RIGHT) == bool(routing & NAN_LEFT)
        assert codes in ({5}, {40, 70})


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ([-1.0, 2.0, 3.0], "-1.0"),
        ([0.5, 2.0, 3.0], "0.5"),
        ([1.0, 2.0, 65_536.0], "65536.0"),
    ],
)
def test_categories_that_are_no_codes(values: list, named: str) -> None:
    with pytest.raises(UnsupportedModelError, match=rf"feature 1 has the category {named};.*OrdinalEncoder"):
        gpuqs.from_model(hist(values))


def test_categories_of_several_kinds() -> None:
    pd = pytest.importorskip("pandas")
    shades = np.resize(np.array(["red", None, "blue"], object), 90)
    frame = pd.DataFrame({"x": np.arange(90.0), "shade": pd.Series(shades, dtype=object)})
    model = ensemble.HistGradientBoostingRegressor(categorical_features=["shade"], max_iter=2)
    model.fit(frame, np.resize([0.0, 1.0, 2.0], 90))
    with pytest.raises(UnsupportedModelError, match="categorical feature 'shade' has the category None;"):
        gpuqs.from_model(model)


def test_categories_before_there_was_an_encoder() -> None:
    model = hist([0.0, 1.0, 2.0])
    model._preprocessor = None
    with pytest.raises(UnsupportedModelError, match=r"from scikit-learn 1\.4 on"):
        gpuqs.from_model(model)


def test_unknown_link_of_a_loss() -> None:
    model = hist([0.0, 1.0, 2.0])
    model._loss.link = type("CauchitLink", (), {})()
    with pytest.raises(UnsupportedModelError, match="HalfSquaredError with the link CauchitLink is not evaluated"):
        gpuqs.from_model(model)


@pytest.mark.parametrize(
    "estimator",
    [
        tree.DecisionTreeRegressor(),
        tree.ExtraTreeClassifier(),
        ensemble.RandomForestRegressor(),
        ensemble.GradientBoostingClassifier(),
        ensemble.HistGradientBoostingRegressor(),
        ensemble.IsolationForest(),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_not_fitted(estimator: Any) -> None:
    with pytest.raises(ModelFormatError, match=rf"^sklearn\.{type(estimator).__name__}: .*not fitted; call fit"):
        gpuqs.from_model(estimator)


def cut(model: Any) -> None:
    model.estimators_ = model.estimators_[:2]


def mixed(model: Any) -> None:
    model.estimators_[1] = ensemble.RandomForestClassifier(1).fit(np.eye(4), [0, 1, 2, 3]).estimators_[0]


def emptied(model: Any) -> None:
    model.estimators_[0] = None


def replaced(model: Any) -> None:
    model.estimators_ = 5


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (ensemble.IsolationForest, cut),
        (ensemble.RandomForestClassifier, mixed),
        (ensemble.ExtraTreesRegressor, emptied),
        (ensemble.ExtraTreesRegressor, replaced),
        (ensemble.GradientBoostingRegressor, emptied),
    ],
)
def test_estimators_whose_parts_do_not_fit_together(kind: Any, change: Any) -> None:
    model = kind(n_estimators=4).fit(np.eye(4), [0, 1, 0, 1])
    change(model)
    with pytest.raises(ModelFormatError, match=rf"sklearn\.{kind.__name__}: .* do not fit together .* as fit left it"):
        gpuqs.from_model(model)


@pytest.mark.parametrize("child", [-2, 3, 4])
@pytest.mark.parametrize("kind", [ensemble.RandomForestRegressor, ensemble.HistGradientBoostingRegressor])
def test_children_outside_of_their_tree(kind: Any, child: int) -> None:
    """Trees of three nodes, which are read together: node 4 belongs to the next tree."""
    X = np.random.default_rng(0).normal(size=(300, 3))
    size = {"max_depth": 1, "random_state": 0} | ({} if "Forest" in kind.__name__ else {"max_iter": 4})
    model = kind(**size).fit(X, X[:, 0])
    if "Forest" in kind.__name__:
        model.estimators_[1].tree_.children_left[0] = child
    else:
        model._predictors[1][0].nodes["left"][0] = child % 2**32
    with pytest.raises(ModelFormatError, match=f"sklearn.{kind.__name__}, tree 1, field 'left': node 0: child is outs"):
        gpuqs.from_model(model)


@pytest.mark.parametrize("child", [0, 1, -2, 10**6])
@pytest.mark.parametrize("side", ["left", "right"])
def test_isolation_trees_that_are_none(side: str, child: int) -> None:
    """Their depths are computed before a Forest checks them: cycles must end, and children outside are not followed."""
    model = ensemble.IsolationForest(n_estimators=3, random_state=0).fit(np.random.default_rng(0).normal(size=(50, 3)))
    for node in (0, 1):
        tree = model.estimators_[1].tree_
        children = getattr(tree, f"children_{side}")
        before, children[node] = int(children[node]), child
        if child != before:
            with pytest.raises(ModelFormatError, match=r"sklearn.IsolationForest, tree 1, field '(left|right)"):
                gpuqs.from_model(model)
        children[node] = before
    gpuqs.from_model(model)


def test_stages_without_trees() -> None:
    X = np.random.default_rng(0).normal(size=(100, 2))
    model = ensemble.HistGradientBoostingRegressor(max_iter=2).fit(X, X[:, 0])
    model._predictors = [[], []]
    np.testing.assert_array_equal(gpuqs.from_model(model).predict(X), model.predict(X))


class Doubled(ensemble.RandomForestRegressor):
    def predict(self, X: np.ndarray) -> np.ndarray:
        return 2 * super().predict(X)


class Renamed(ensemble.RandomForestRegressor):
    """A subclass with another name and the same predictions."""


def two_targets(kind: Any) -> Any:
    return kind(max_depth=2).fit(X, np.column_stack([CLASSES, CLASSES[::-1]]))


REFUSED = {
    "pipeline": (
        lambda: pipeline.make_pipeline(preprocessing.StandardScaler(), tree.DecisionTreeRegressor()).fit(X, Y),
        r"pass pipeline\[-1\], and score pipeline\[:-1\]\.transform",
    ),
    "search": (
        lambda: model_selection.GridSearchCV(tree.DecisionTreeRegressor(), {"max_depth": [1]}).fit(X, Y),
        r"pass search\.best_estimator_",
    ),
    "another ensemble": (
        lambda: ensemble.AdaBoostRegressor(n_estimators=2).fit(X, Y),
        r"AdaBoostRegressor: is not read; .*: RandomForestClassifier, .*DecisionTreeClassifier",
    ),
    "stack": (
        lambda: ensemble.StackingRegressor([("tree", tree.DecisionTreeRegressor(max_depth=2))], cv=2).fit(X, Y),
        r"StackingRegressor: is not read, only the estimators in it: set model\.estimators_ = \[gpuqs\.sklearn\.wrap",
    ),
    "calibrated": (
        lambda: calibration.CalibratedClassifierCV(tree.DecisionTreeClassifier(max_depth=2), cv=2).fit(X, CLASSES),
        r"CalibratedClassifierCV: is not read, only .* set each\.estimator = gpuqs\.sklearn\.wrap\(each\.estimator\)",
    ),
    "no trees": (lambda: linear_model.LinearRegression().fit(X, Y), "LinearRegression: is not read"),
    "own predict": (
        lambda: Doubled(2).fit(X, Y),
        "Doubled: has its own predict.*RandomForestRegressor does; pass an instance of that class itself",
    ),
    "tree of two targets": (lambda: two_targets(tree.DecisionTreeClassifier), "classifies 2 targets at once"),
    "forest of two targets": (lambda: two_targets(ensemble.ExtraTreesClassifier), "classifies 2 targets at once"),
    "init": (
        lambda: ensemble.GradientBoostingRegressor(n_estimators=2, init=linear_model.LinearRegression()).fit(X, Y),
        r"init=LinearRegression\(\)\), which is not evaluated; fit with init=None",
    ),
    "init by chance": (
        lambda: ensemble.GradientBoostingClassifier(
            n_estimators=2, init=dummy.DummyClassifier(strategy="stratified", random_state=0)
        ).fit(X, CLASSES),
        "starts at the predictions of another model",
    ),
    "isolation of single samples": (
        lambda: ensemble.IsolationForest(n_estimators=2, max_samples=1).fit(X),
        r"max_samples_=1\) score all documents alike",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    fit, message = REFUSED[name]
    with pytest.raises(UnsupportedModelError, match=message):
        gpuqs.from_model(fit())


def test_a_subclass_that_predicts_alike() -> None:
    model = Renamed(3, max_depth=3).fit(X, Y)
    np.testing.assert_array_equal(gpuqs.from_model(model).predict(X), model.predict(X))


def test_objects_of_others() -> None:
    class BaseEstimator:
        pass

    for thing in (BaseEstimator(), 7, None, [1]):
        assert reader.from_object(thing) is None


@pytest.mark.parametrize("protocol", [2, 3, pickle.HIGHEST_PROTOCOL])
def test_pickles_are_never_loaded(tmp_path: Path, protocol: int) -> None:
    path = tmp_path / "forest.pkl"
    path.write_bytes(pickle.dumps(Bomb(tmp_path / "gone off"), protocol))
    with pytest.raises(UnsupportedModelError, match=r"forest\.pkl: is a pickle, which gpuqs never loads.*joblib\.load"):
        gpuqs.load(path)
    assert not (tmp_path / "gone off").exists()
    pickle.loads(path.read_bytes())
    assert (tmp_path / "gone off").exists()


class Bomb:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.path,)


@pytest.mark.parametrize("compress", [0, 3, ("zlib", 9), ("gzip", 3)])
def test_files_of_joblib(tmp_path: Path, compress: Any) -> None:
    joblib = pytest.importorskip("joblib")
    path = tmp_path / "tree.joblib"
    joblib.dump(tree.DecisionTreeRegressor().fit(X, Y), path, compress=compress)
    with pytest.raises(UnsupportedModelError, match=r"tree\.joblib: is a pickle"):
        gpuqs.load(path)


@pytest.mark.parametrize(
    "head", [b"", b"\x80", b"\x80\x04pickle", b"tree\n", b"{", b"\x1f\x8b", b"\x1f\x8b\x08" + b"\xff" * 50, b"x\x9c"]
)
def test_other_files(head: bytes) -> None:
    assert not reader.recognises(head)


def test_reading_needs_no_scikit_learn(tmp_path: Path) -> None:
    code = "import sys, gpuqs.formats.sklearn as r; r.from_object(1); print('sklearn' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
