"""CTRs of CatBoost's JSON: how each type uses the counts; damaged files and missing tables are refused."""

from __future__ import annotations

import copy
import json
from itertools import chain
from typing import Any

import numpy as np
import pytest
from edits import Edit, at

import gpuqs
from gpuqs.errors import ModelFormatError, UnsupportedModelError
from gpuqs.forest import Forest
from gpuqs.formats import catboost as reader
from gpuqs.formats import catboost_ctrs
from gpuqs.text_hashes import text_hashes

Document = dict[str, Any]
FACTOR = 0x4906BA494954CB65
RED, BLUE = (int(code) for code in text_hashes(["red", "blue"]))


def key(*parts: int) -> int:
    """The key made of a category's hash and the results of tests, in this order."""
    joined = 0
    for part in parts:
        joined = FACTOR * (joined + FACTOR * part) % (1 << 64)
    return joined


def signed(code: int) -> int:
    return code - (1 << 32) if code >> 31 else code


#: By type: the counts for red and for blue; and the CTRs of red, blue and green with prior 1 of 2, shift 0.5 and
#: scale 4.
COUNTS: dict[str, tuple[list[float], list[float], list[float]]] = {
    "Borders": ([1, 2, 3], [4, 0, 0], [4 * (6 / 8 + 0.5), 4 * (1 / 6 + 0.5), 4 * (1 / 2 + 0.5)]),
    "Buckets": ([1, 2, 3], [4, 0, 0], [4 * (2 / 8 + 0.5), 4 * (5 / 6 + 0.5), 4 * (1 / 2 + 0.5)]),
    "BinarizedTargetMeanValue": ([2.5, 5], [0, 3], [4 * (3.5 / 7 + 0.5), 4 * (1 / 5 + 0.5), 4 * (1 / 2 + 0.5)]),
    "FloatTargetMeanValue": ([-2.5, 5], [0, 3], [4 * (-1.5 / 7 + 0.5), 4 * (1 / 5 + 0.5), 4 * (1 / 2 + 0.5)]),
    "Counter": ([5], [2], [4 * (6 / 10 + 0.5), 4 * (3 / 10 + 0.5), 4 * (1 / 10 + 0.5)]),
    "FeatureFreq": ([5], [2], [4 * (6 / 10 + 0.5), 4 * (3 / 10 + 0.5), 4 * (1 / 10 + 0.5)]),
}


def model_of(kind: str = "Borders") -> Document:
    """A numeric and a categorical column; one CTR of the category, one of the category and "number > 0.5"."""
    red, blue, _ = COUNTS[kind]
    category = {"combination_element": "cat_feature_value", "cat_feature_index": 0}
    above = {"combination_element": "float_feature", "float_feature_index": 0, "border": 0.5}
    ctr = {"ctr_type": kind, "prior_numerator": 1, "prior_denomerator": 2, "shift": 0.5, "scale": 4}
    ctr |= {"target_border_idx": 0}
    of_labels = kind not in ("Counter", "FeatureFreq")
    trained = [{"ctr_type": kind, **({"target_binarization": {"border_count": 2}} if of_labels else {})}]
    hashes = (signed(RED) % (1 << 64), signed(BLUE) % (1 << 64))
    rows = [[str((1 << 64) - 1), *red], [str(key(hashes[0])), *red], [str(key(hashes[1])), *blue]]
    combined = [[str(key(hashes[0], 1)), *red], [str(key(hashes[0], 0)), *blue]]
    stride = 1 + len(red)
    return {
        "features_info": {
            "float_features": [
                {"feature_index": 0, "flat_feature_index": 0, "feature_id": "size", "borders": [0.5]}
                | {"has_nans": True, "nan_value_treatment": "AsTrue"}
            ],
            "categorical_features": [{"feature_index": 0, "flat_feature_index": 1, "feature_id": "colour"}],
            "ctrs": [
                {**ctr, "identifier": "of colour", "elements": [category], "borders": [2.75, 3.5]},
                {**ctr, "identifier": "of both", "elements": [category, above], "borders": [2.75]},
            ],
        },
        "ctr_data": {
            "of colour": {"hash_map": [*chain(*rows)], "hash_stride": stride, "counter_denominator": 8},
            "of both": {"hash_map": [*chain(*combined)], "hash_stride": stride, "counter_denominator": 8},
        },
        "model_info": {
            "params": {
                "loss_function": {"type": "RMSE"},
                "cat_feature_params": {"simple_ctrs": trained, "combinations_ctrs": trained},
            }
        },
        "oblivious_trees": [
            {"splits": [on_ctr(3.5, 2), on_ctr(2.75, 1)], "leaf_values": [1, 2, 3, 4]},
            {"splits": [on_ctr(2.75, 3)], "leaf_values": [10, 20]},
        ],
        "scale_and_bias": [1, [0]],
    }


def on_ctr(border: float, at: int) -> Document:
    return {"split_type": "OnlineCtr", "border": border, "ctr_target_border_idx": 0, "split_index": at}


def read(model: Any) -> Forest:
    return reader.read(json.dumps(model).encode(), "model")


@pytest.mark.parametrize("kind", COUNTS)
def test_what_each_type_makes_of_counts(kind: str) -> None:
    forest = read(model_of(kind))
    ctrs = forest.ctrs
    assert ctrs is not None and (forest.n_features, ctrs.n_given) == (4, 2)
    nan = np.nan
    given = np.array([[0.5, RED], [nan, RED], [0.6, BLUE], [0, BLUE], [1, 12345], [0, RED]], float)
    red, blue, other = (np.float32(value) for value in COUNTS[kind][2])
    expected = np.array(
        [[red, blue], [red, red], [blue, other], [blue, other], [other, other], [red, blue]], np.float32
    )
    np.testing.assert_allclose(ctrs.documents(given)[:, 2:], expected, rtol=1e-6)
    # As float32 numbers, each operation rounded.
    one, two, half, four = np.float32([1, 2, 0.5, 4])
    good, total = {"Borders": (5, 6), "Buckets": (1, 6), "Counter": (5, 8), "FeatureFreq": (5, 8)}.get(
        kind, tuple(COUNTS[kind][0])
    )
    exact = ((np.float32(good) + one) / (np.float32(total) + two) + half) * four
    assert ctrs.documents(given)[0, 2] == exact


def test_scores() -> None:
    model = gpuqs.from_model(json.dumps(model_of("Borders")).encode())
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"colour": ["red", "red", "blue", "green"], "size": [0.5, 0.7, 0.7, np.nan]})
    red, blue, other = COUNTS["Borders"][2]
    first = [1 + (ctr > 3.5) + 2 * (ctr > 2.75) for ctr in (red, red, blue, other)]
    second = [10 + 10 * (ctr > 2.75) for ctr in (blue, red, other, other)]
    np.testing.assert_array_equal(model.predict(frame), np.add(first, second))
    rows = frame[["size", "colour"]].astype(object).to_numpy()
    np.testing.assert_array_equal(model.predict(rows), np.add(first, second))


def test_one_hot_beside_ctrs() -> None:
    model = model_of()
    model["features_info"]["categorical_features"][0]["values"] = [signed(RED), signed(BLUE)]
    for tree in model["oblivious_trees"]:
        for split in tree["splits"]:
            split["split_index"] += 2
    on_blue = {"split_type": "OneHotFeature", "cat_feature_index": 0, "value": signed(BLUE), "split_index": 2}
    model["oblivious_trees"].append({"splits": [on_blue], "leaf_values": [100, 200]})
    forest = read(model)
    assert forest.ctrs is not None and forest.ctrs.codes == {1: (RED, BLUE)}
    rows = [[0.1, "red"], [0.1, "blue"], [0.1, "green"]]
    assert gpuqs.from_model(forest).predict(rows, "per_tree")[:, 2].tolist() == [100, 200, 100]


TABLE = ("ctr_data", "of colour")
CTR = ("features_info", "ctrs", 0)


BAD: dict[str, tuple[Edit, str]] = {
    "no tables": (lambda model: model.pop("ctr_data"), "field 'ctr_data': is missing"),
    "no such table": (at(*CTR, "identifier", value="other"), "field 'ctr_data': has no table of 'other'"),
    "ragged table": (at(*TABLE, "hash_map", value=["1", 2, 3]), "holds 3 numbers, which is not a multiple of 4"),
    "key is no number": (at(*TABLE, "hash_map", value=["x", 1, 2, 3]), "key that is not an unsigned"),
    "key is negative": (at(*TABLE, "hash_map", value=["-1", 1, 2, 3]), "key that is not an unsigned"),
    "key is too large": (at(*TABLE, "hash_map", value=[str(1 << 64), 1, 2, 3]), "key that is not an unsigned"),
    "count is a text": (at(*TABLE, "hash_map", value=["1", "x", 2, 3]), "field 'hash_map': is not an array of numbers"),
    "a key twice": (at(*TABLE, "hash_map", value=["1", 1, 2, 3] * 2), "ascending"),
    "stride": (at(*TABLE, "hash_stride", value=1), "field 'hash_stride'"),
    "table is a list": (at(*TABLE, value=[]), "has no table"),
    "class": (at(*CTR, "target_border_idx", value=2), "field 'target_border_idx': uses class 3, but there are 3"),
    "prior": (at(*CTR, "prior_numerator", value="1"), "field 'ctrs'"),
    "elements": (at(*CTR, "elements", value={}), "field 'elements': is not an array"),
    "element": (at(*CTR, "elements", 0, "cat_feature_index", value=5), "feature 5 is not in features_info"),
    "borders": (at(*CTR, "borders", value=[2.75]), "field 'split_index': names a different test"),
    "split": (at("oblivious_trees", 0, "splits", 0, "split_index", value=0), "field 'split_index'"),
    "split beyond": (at("oblivious_trees", 0, "splits", 0, "split_index", value=99), "field 'split_index'"),
    "border": (at("oblivious_trees", 0, "splits", 0, "border", value=9), "field 'split_index': names a different test"),
}


@pytest.mark.parametrize("name", BAD)
def test_damaged_models_are_refused(name: str) -> None:
    edit, message = BAD[name]
    model = model_of()
    edit(model)
    with pytest.raises(ModelFormatError, match=f"^model, .*{message}"):
        read(model)


@pytest.mark.parametrize("kind", ["Counter", "BinarizedTargetMeanValue"])
def test_tables_of_another_width_are_refused(kind: str) -> None:
    model = model_of(kind)
    model["ctr_data"]["of colour"] = model_of("Borders")["ctr_data"]["of colour"]
    with pytest.raises(ModelFormatError, match=f"the table of a {kind} has 3 numbers per key"):
        read(model)


UNSUPPORTED: dict[str, tuple[Edit, str]] = {
    "type": (at(*CTR, "ctr_type", value="New"), "statistics of categories of type 'New'"),
    "element": (at(*CTR, "elements", 0, "combination_element", value="new"), "statistics of categories by 'new'"),
    "targets": (at("model_info", "params", "loss_function", "type", value="MultiRMSE"), "several targets"),
    "unknown training": (lambda model: model["model_info"]["params"].pop("cat_feature_params"), "sum_models"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_is_not_evaluated_is_refused_by_name(name: str) -> None:
    edit, message = UNSUPPORTED[name]
    model = model_of()
    edit(model)
    with pytest.raises(UnsupportedModelError, match=f"^model.*{message}"):
        read(model)


@pytest.mark.parametrize("tables", [None, {}], ids=["JSON", "binary"])
def test_models_trained_without_final_ctrs_are_refused_by_name(tables: Document | None) -> None:
    """They are not damaged: CatBoost writes no tables if training was told not to compute them."""
    model = model_of()
    model["model_info"]["params"]["flat_params"] = {"final_ctr_computation_mode": "Skip"}
    assert read(model).ctrs is not None  # existing tables are used
    model["ctr_data"] = tables
    if tables is None:
        del model["ctr_data"]
    with pytest.raises(UnsupportedModelError, match=r"^model: the model lacks the statistics.*train it with 'Default'"):
        read(model)


@pytest.mark.parametrize("where", ["simple_ctrs", "combinations_ctrs", "per_feature_ctrs"])
def test_tables_that_may_be_lost_are_refused(where: str) -> None:
    """CatBoost's JSON names tables by type: of two that differ in borders between labels it keeps one."""
    model = model_of()
    options = model["model_info"]["params"]["cat_feature_params"]
    two = [*options["simple_ctrs"], {"ctr_type": "Borders", "target_binarization": {"border_count": 1}}]
    options[where] = {"0": two} if where == "per_feature_ctrs" else two
    with pytest.raises(UnsupportedModelError, match=r"several TargetBorderCount.*save_model\(.model.cbm.\)"):
        read(model)
    counters = copy.deepcopy(model)
    for ctr in counters["features_info"]["ctrs"]:
        ctr["ctr_type"] = "Counter"
    counters["ctr_data"] = model_of("Counter")["ctr_data"]
    assert read(counters).ctrs is not None  # counters do not depend on labels


def test_few_counts_make_no_end_of_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catboost_ctrs, "_FREE_VALUES", 0)
    model = model_of()
    one = model["features_info"]["ctrs"][0]
    model["features_info"]["ctrs"] += [{**one, "borders": []}] * 200
    with pytest.raises(ModelFormatError, match=r"'ctr_data': \d+ statistics of 9 counts|statistics of \d+ counts"):
        read(model)


def test_several_tables_of_what_ctrs_count_by() -> None:
    """A projection's CTRs of two types that saw different categories: each has a value for the other's keys."""
    model, counter = model_of(), model_of("Counter")
    other = {**counter["features_info"]["ctrs"][0], "identifier": "counter", "borders": []}
    model["features_info"]["ctrs"].append(other)
    table = counter["ctr_data"]["of colour"]
    model["ctr_data"]["counter"] = {**table, "hash_map": table["hash_map"][:4]}  # of red only
    model["model_info"]["params"]["cat_feature_params"]["simple_ctrs"] += [{"ctr_type": "Counter"}]
    ctrs = read(model).ctrs
    assert ctrs is not None and [p.values.shape for p in ctrs.projections] == [(3, 2), (3, 1)]
    given = np.array([[0.0, RED], [0.0, BLUE], [0.0, 5]])
    red, blue, none = COUNTS["Borders"][2]
    counted, _, uncounted = COUNTS["Counter"][2]
    np.testing.assert_allclose(ctrs.documents(given)[:, 2], [red, blue, none], rtol=1e-6)
    np.testing.assert_allclose(ctrs.documents(given)[:, 3], [counted, uncounted, uncounted], rtol=1e-6)
