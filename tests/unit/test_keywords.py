"""The libraries' own keywords: what they mean, what contradicts what, and that every model takes them alike."""

from __future__ import annotations

import pickle
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from forests import probing_documents, random_forest

from gpuqs.calls import Calls
from gpuqs.chooser import Chooser
from gpuqs.errors import InputError, UnsupportedModelError
from gpuqs.forest import Forest
from gpuqs.keywords import output_and_trees
from gpuqs.model import Model
from gpuqs.programs import Programs
from gpuqs.schema import Schema
from gpuqs.sklearn import wrap


def make(**fields: Any) -> Forest:
    return random_forest(np.random.default_rng(0), n_trees=12, **fields)


def starts(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


FOREST = make(iteration_starts=starts(0, 3, 4, 9, 12))
MODEL = Model(FOREST)
X = probing_documents(np.random.default_rng(1), FOREST, 40)


@pytest.mark.parametrize(
    ("asked", "output", "trees"),
    [
        ({}, "value", None),
        ({"raw_score": True}, "raw", None),
        ({"output_margin": True}, "raw", None),
        ({"raw_score": True, "output_margin": True}, "raw", None),
        ({"pred_leaf": True}, "leaf", None),
        ({"raw_score": np.True_, "pred_leaf": 0}, "raw", None),
        ({"raw_score": np.int64(0), "pred_leaf": 1}, "leaf", None),
        ({"iteration_range": [1, np.int64(3)]}, "value", slice(3, 9)),
        ({"num_iteration": 4}, "value", None),
        ({"num_iteration": 2}, "value", slice(0, 4)),
        ({"start_iteration": 1}, "value", slice(3, 12)),
        ({"start_iteration": 9}, "value", slice(12, 12)),
        ({"start_iteration": 2, "num_iteration": 1, "raw_score": True}, "raw", slice(4, 9)),
        ({"iteration_range": (0, 0)}, "value", None),
        ({"iteration_range": (0, 4)}, "value", None),
        ({"iteration_range": (1, 3)}, "value", slice(3, 9)),
        ({"iteration_range": (2, 2)}, "value", slice(4, 4)),
    ],
    ids=str,
)
def test_what_they_mean(asked: dict[str, Any], output: str, trees: slice | None) -> None:
    assert output_and_trees(FOREST, "value", None, **asked) == (output, trees)
    np.testing.assert_array_equal(MODEL.predict(X, **asked), MODEL.predict(X, output, trees=trees))


def test_the_same_said_twice_is_no_contradiction() -> None:
    np.testing.assert_array_equal(MODEL.predict(X, "raw", raw_score=True), MODEL.predict(X, "raw"))
    np.testing.assert_array_equal(MODEL.predict(X, "leaf", pred_leaf=True), MODEL.predict(X, "leaf"))
    np.testing.assert_array_equal(MODEL.predict(X, pred_contrib=False, raw_score=False), MODEL.predict(X))


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"output": "leaf", "raw_score": True}, "output='leaf' and raw_score=True contradict"),
        ({"output": "raw", "pred_leaf": True}, "output='raw' and pred_leaf=True contradict"),
        ({"raw_score": True, "pred_leaf": True}, "raw_score=True and pred_leaf=True contradict"),
        ({"output": "class", "output_margin": True}, "output='class' and output_margin=True contradict"),
        ({"trees": slice(0, 3), "num_iteration": 1}, "all select trees"),
        ({"trees": slice(0, 3), "iteration_range": (0, 1)}, "all select trees"),
        ({"start_iteration": 1, "iteration_range": (0, 1)}, "all select trees"),
        ({"iteration_range": (0, 5)}, r"\(0, 5\) is not within the model's 4 iterations"),
        ({"iteration_range": (3, 2)}, "not within"),
        ({"iteration_range": (-1, 2)}, "not within"),
        ({"iteration_range": 3}, "two integers"),
        ({"iteration_range": (0, 1, 2)}, "two integers"),
        ({"iteration_range": (0, 1.5)}, "each end of iteration_range must be an integer, not 1.5"),
        ({"num_iteration": "3"}, "num_iteration must be an integer, not '3'"),
        ({"start_iteration": 0.5}, "start_iteration must be an integer"),
        ({"start_iteration": np.zeros(2, int)}, "start_iteration must be an integer"),
        ({"raw_score": np.array([1, 0])}, r"raw_score must be True or False, not array\(\[1, 0\]\)"),
        ({"output_margin": "no"}, "output_margin must be True or False, not 'no'"),
        ({"pred_leaf": None}, "pred_leaf must be True or False, not None"),
        ({"pred_contrib": 2}, "pred_contrib must be True or False, not 2"),
        ({"output": ["raw"]}, r"output must be one of .*, not \['raw'\]"),
        ({"output": 100}, "output must be one of .*, not 100; pass numbers of iterations by keyword, as num_it"),
        ({"output": None, "pred_leaf": True}, "output must be one of .*, not None"),
        ({"trees": slice(0.0, 2.0)}, "each end of trees must be an integer, not 0.0"),
        ({"trees": slice(0, "2")}, "each end of trees must be an integer, not '2'"),
    ],
    ids=str,
)
def test_contradictions_and_bad_values(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        MODEL.predict(X, **asked)


def test_what_is_not_offered() -> None:
    explaining = ("pred_contrib", "pred_contribs", "pred_interactions", "approx_contribs")
    for name in (*explaining, "pred_early_stop", "training"):
        mend = ".*ask the training library" if name in explaining else "; leave it out"
        with pytest.raises(UnsupportedModelError, match=f"{name}=True is not offered{mend}"):
            MODEL.predict(X, **{name: True})
        with pytest.raises(ValueError, match=f"{name} must be True or False, not 'no'"):
            MODEL.predict(X, **{name: "no"})
        np.testing.assert_array_equal(MODEL.predict(X, **{name: False}), MODEL.predict(X))
    for verbose in (None, False, True, 2):  # CatBoost's
        np.testing.assert_array_equal(MODEL.predict(X, task_type="CPU", verbose=verbose), MODEL.predict(X))
    for name, here, there in (("task_type", "CPU", "GPU"), ("device_type", "cpu", "gpu")):
        np.testing.assert_array_equal(MODEL.predict(X, **{name: here}), MODEL.predict(X))
        with pytest.raises(UnsupportedModelError, match=f"{name} must be '{here}', not '{there}'; .*device='cuda'"):
            MODEL.predict(X, **{name: there})
    for value in (True, False):
        np.testing.assert_array_equal(MODEL.predict(X, validate_features=value), MODEL.predict(X))
    by_name = Model(replace(MODEL.forest, schema=Schema(library="XGBoost")))
    np.testing.assert_array_equal(by_name.predict(X, validate_features=True), MODEL.predict(X))
    with pytest.raises(UnsupportedModelError, match=r"position of columns.*leave it out.*pass a table as an array"):
        by_name.predict(X, validate_features=False)


def test_parameters_that_change_no_score() -> None:
    """LightGBM's ``predict`` takes any parameter."""
    others = {"verbosity": -1, "device_type": "cpu", "deterministic": True, "seed": 7, "random_state": None}
    others |= {"pred_early_stop": False, "pred_early_stop_freq": 10, "pred_early_stop_margin": 1.5}
    for check in (True, False):
        np.testing.assert_array_equal(MODEL.predict(X, predict_disable_shape_check=check, **others), MODEL.predict(X))
        with pytest.raises(InputError, match="features"):
            MODEL.predict(X[:, :-1], predict_disable_shape_check=check)
    with pytest.raises(TypeError, match="unexpected keyword argument 'num_leaves'"):
        MODEL.predict(X, num_leaves=31)


def test_keywords_that_no_library_has() -> None:
    for name, hint in (("n_thread", "$"), ("ntree_limit", "; it is called iteration_range=.* here")):
        with pytest.raises(TypeError, match=f"predict.. got an unexpected keyword argument '{name}'{hint}"):
            MODEL.predict(X, **{name: 1})


@pytest.mark.parametrize("name", ["num_threads", "nthread", "n_jobs", "thread_count"])
def test_threads_by_their_other_names(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = MODEL.predict(X)
    np.testing.assert_array_equal(MODEL.predict(X, **{name: 2}), expected)
    asked: list[Any] = []
    monkeypatch.setattr(Calls, "answer", lambda self, X, call, runs_on: asked.append(call.n_threads))
    for value in (2, -1, 0, np.int64(0), None):
        MODEL.predict(X, engine="walk", **{name: value})
    assert asked == [2, -1, None, None, None], "0 is as many as usual, as in these libraries"
    MODEL.predict(X, engine="walk", n_threads=3, **{name: None})
    assert asked.pop() == 3, "None is not given"
    with pytest.raises(TypeError, match=f"got n_threads and {name}, which mean the same"):
        MODEL.predict(X, n_threads=1, **{name: 1})
    with pytest.raises(TypeError, match="got num_thread and nthreads, which mean the same"):
        MODEL.predict(X, num_thread=1, nthreads=1)


def test_catboosts_names_of_iteration_range() -> None:
    both = {"ntree_start": 1, "ntree_end": 3}
    for given, meant in (({"ntree_end": 2}, (0, 2)), ({"ntree_start": 1}, (1, 0)), (both, (1, 3))):
        np.testing.assert_array_equal(MODEL.predict(X, **given), MODEL.predict(X, iteration_range=meant))
    with pytest.raises(TypeError, match="got iteration_range and ntree_end, which mean the same"):
        MODEL.predict(X, iteration_range=(0, 1), ntree_end=1)
    with pytest.raises(ValueError, match=r"iteration_range=\(0, 99\) is not within"):
        MODEL.predict(X, ntree_end=99)
    with pytest.raises(ValueError, match="ntree_end must be"):
        MODEL.predict(X, ntree_end=1.5)


def test_a_property_that_fails_says_why() -> None:
    class Own(Model):
        length = property(lambda self: self.forest.no_such_thing)

    with pytest.raises(AttributeError, match="no_such_thing"):
        Own(MODEL.forest).length  # noqa: B018


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("predict_proba", "gpuqs.sklearn.wrap makes an estimator that has it"),
        ("feature_importances_", "gpuqs only scores: ask the library that trained the model"),
        ("num_trees", "it is called n_trees here"),
        ("no_such_thing", "$"),
    ],
)
def test_what_models_have_not(name: str, hint: str) -> None:
    with pytest.raises(AttributeError, match=rf"'Model' object has no attribute '{name}'(; )?{hint}"):
        getattr(MODEL, name)
    assert not hasattr(MODEL, name)


def test_documents_are_encoded_once() -> None:
    encoded = MODEL.encode(X)
    for take in (MODEL.encode, wrap(MODEL, kind="regressor").predict):
        with pytest.raises(InputError, match=r"X is a gpuqs.EncodedDocuments, not documents; they are already encoded"):
            take(encoded)


def test_encoded_documents_take_them_too() -> None:
    coded = MODEL.encode(X)
    for asked in ({"raw_score": True, "num_iteration": 2}, {"pred_leaf": True}, {"iteration_range": (1, 3)}):
        np.testing.assert_array_equal(MODEL.predict(coded, **asked), MODEL.predict(X, **asked))


# -- iterations of a forest ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, list(range(13))),
        ({"n_outputs": 3}, [0, 3, 6, 9, 12]),
        ({"n_outputs": 3, "vector_leaves": True}, list(range(13))),
    ],
    ids=str,
)
def test_iterations_by_default(fields: dict[str, Any], expected: list[int]) -> None:
    assert make(**fields).iteration_starts.tolist() == expected


def test_trees_that_do_not_take_turns_are_one_iteration() -> None:
    class_by_class = np.arange(12, dtype=np.int32) // 4
    forest = replace(make(n_outputs=3), tree_output=class_by_class, iteration_starts=starts())
    assert forest.iteration_starts.tolist() == [0, 12]


def test_iterations_of_parts() -> None:
    for trees, expected in (
        (slice(0, 4), [0, 3, 4]),
        (slice(3, 12), [0, 1, 6, 9]),
        (slice(2, 5), [0, 1, 2, 3]),
        (slice(5, 5), [0]),
    ):
        assert FOREST.select(trees).iteration_starts.tolist() == expected


@pytest.mark.parametrize("bad", [(0, 3), (1, 12), (0, 5, 3, 12), (0, 13)])
def test_bad_iterations_are_refused(bad: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="iteration_starts must rise from 0 to 12"):
        make(iteration_starts=starts(*bad))


# -- warm_up -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_documents", [1, 10, 10_000])
def test_warm_up_leaves_nothing_to_prepare(n_documents: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, many = Model(FOREST), np.resize(X, (n_documents, X.shape[1]))
    expected = Model(FOREST).predict(many)
    assert model.warm_up(n_documents=n_documents) is model
    model.warm_up(n_documents, precision="fast", trees=slice(0, 4))
    monkeypatch.setattr(Programs, "_prepare", None)  # a call that has to prepare anything fails
    np.testing.assert_array_equal(model.predict(many), expected)
    assert model.predict(many, precision="fast", trees=slice(0, 4)).shape == (n_documents,)
    cold = Model(FOREST)
    with pytest.raises(TypeError):
        cold.predict(many), cold.predict(many)  # the first may do without


@pytest.mark.parametrize("precision", ["exact", "fast"])
@pytest.mark.parametrize(
    "words", [{}, {"num_iteration": 2}, {"start_iteration": 1}, {"iteration_range": (1, 2)}], ids=str
)
def test_warm_up_leaves_nothing_to_choose(words: Any, precision: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows = Model(FOREST), np.ascontiguousarray(X[:7])
    words = {"precision": precision, **words}
    expected = Model(FOREST).predict(rows, **words)
    model.warm_up(7, **words).warm_up(10**30, **words)
    monkeypatch.setattr(Chooser, "way", None)
    np.testing.assert_array_equal(model.predict(rows, **words), expected)
    with pytest.raises(TypeError):
        model.predict(rows[:6], **words)


@pytest.mark.parametrize("ask", [MODEL.warm_up, MODEL.explain, MODEL.engine_for], ids=["warm_up", "explain", "engine"])
@pytest.mark.parametrize("n", ["10", None, 1.5, np.ones(2, int)], ids=str)
def test_numbers_of_documents_are_whole(ask: Any, n: Any) -> None:
    with pytest.raises(ValueError, match="n_documents must be an integer, not"):
        ask(n)


def test_fewer_than_no_documents_are_refused() -> None:
    with pytest.raises(ValueError, match="n_documents must be at least 1, not 0"):
        MODEL.warm_up(0)
    for ask in (MODEL.explain, MODEL.engine_for):
        with pytest.raises(ValueError, match="n_documents must be at least 0, not -5"):
            ask(-5)


def test_trees_that_were_scored_before_are_checked_all_the_same() -> None:
    MODEL.predict(X, trees=slice(0, 3))
    with pytest.raises(ValueError, match="each end of trees"):
        MODEL.predict(X, trees=slice(0.0, 3.0))
    expected = MODEL.predict(X, trees=slice(0, 3))
    np.testing.assert_array_equal(MODEL.predict(X, trees=slice(np.int64(0), np.array(3))), expected)


@pytest.mark.parametrize("copy", [pickle.dumps, deepcopy], ids=["pickle", "deepcopy"])
def test_encoded_documents_are_not_copied(copy: Any) -> None:
    with pytest.raises(TypeError, match=r"encoded documents belong to one model in one process.*encode them again"):
        copy(MODEL.encode(X))
