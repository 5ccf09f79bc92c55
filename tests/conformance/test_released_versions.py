"""Models written by released versions of LightGBM and XGBoost, compared with the results of those versions.

`tests/data/make_models.py` makes the files and describes their content.
"""

from __future__ import annotations

import json
import lzma
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpuqs
from gpuqs.engines import ENGINES
from gpuqs.forest import CATEGORICAL, ZERO_MISSING
from gpuqs.model import Model

FOLDER = Path(__file__).parents[1] / "data"
FILES = sorted(str(path.relative_to(FOLDER)) for path in FOLDER.glob("*/*.json.xz"))
ENGINE_NAMES = ["auto", *(name for name, engine in ENGINES.items() if engine.device == "cpu")]


@cache
def kept(file: str) -> dict[str, Any]:
    return json.loads(lzma.decompress((FOLDER / file).read_bytes()))


CASES = [(file, name) for file in FILES for name in kept(file)["cases"]]


def array(kept: dict[str, Any]) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(kept["hex"]), kept["dtype"]).reshape(kept["shape"])


@cache
def loaded(file: str, name: str) -> Model:
    return gpuqs.from_model(kept(file)["cases"][name]["model"].encode())


def check(model: Model, file: str, name: str, dtype: str, engine: str) -> None:
    answers = kept(file)["cases"][name]["answers"][dtype]
    with np.errstate(over="ignore"):
        X = array(kept(file)["rows"]).astype(dtype)
    np.testing.assert_array_equal(model.predict(X, "leaf", engine=engine), array(answers["leaves"]))
    raw, got = array(answers["raw"]), model.predict(X, "raw", engine=engine)
    assert got.dtype == raw.dtype and got.shape == raw.shape
    if adds_base_score_last(file, name):
        # Since 1.3 (dart: 1.4) XGBoost starts sums with the base score, as we do; here only that order differs.
        per_tree, forest = model.predict(X, "per_tree", engine=engine), model.forest
        sums = np.zeros((len(X), forest.n_outputs), np.float32)
        for tree in range(forest.n_trees):
            sums[:, forest.tree_output[tree]] += per_tree[:, tree]
        bound = 2 * (forest.n_trees + 1) * 2.0**-24 * (np.abs(per_tree).sum(axis=1) + np.abs(forest.base_score).max())
        assert (np.abs(got.reshape(sums.shape) - raw.reshape(sums.shape)) <= bound[:, None]).all()
        got = (sums + forest.base_score.astype(np.float32)).reshape(raw.shape)
    if model.forest.link == "expectiles":  # base scores come from exponentials of another machine's C library
        np.testing.assert_allclose(got, raw, rtol=1e-5, atol=1e-6)
    else:
        np.testing.assert_array_equal(got.view(np.uint8), raw.view(np.uint8))
    if "values" in answers:
        values, got = array(answers["values"]), model.predict(X, engine=engine)
        assert got.dtype == values.dtype and got.shape == values.shape
        if model.forest.link in ("identity", "ascending"):
            np.testing.assert_array_equal(got.view(np.uint8), values.view(np.uint8))
        else:  # same reason
            np.testing.assert_allclose(got, values, rtol=1e-5, atol=1e-6)


def adds_base_score_last(file: str, name: str) -> bool:
    return file.startswith("xgboost") and version_of(file) < ((1, 4) if name == "dart" else (1, 3))


def version_of(file: str) -> tuple[int, ...]:
    return tuple(int(part) for part in kept(file)["version"].split(".")[:2])


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize(("file", "name"), CASES)
def test_the_scores_of_that_version(file: str, name: str, dtype: str) -> None:
    model = loaded(file, name)
    for engine in ENGINE_NAMES:
        if model.engines().get(engine) is None:
            check(model, file, name, dtype, engine)


@pytest.mark.parametrize(("file", "name"), [(file, name) for file, name in CASES if "ubj" in kept(file)["cases"][name]])
def test_ubjson(file: str, name: str) -> None:
    model = gpuqs.from_model(bytes.fromhex(kept(file)["cases"][name]["ubj"]))
    check(model, file, name, "float64", "auto")


@pytest.mark.parametrize("library", ["lightgbm", "xgboost"])
def test_what_the_files_cover(library: str) -> None:
    files = [file for file in FILES if file.startswith(library)]
    assert len(files) >= 3
    for file in files:
        forests = {name: loaded(file, name).forest for name in kept(file)["cases"]}
        rows = array(kept(file)["rows"])
        shown = {
            "missing": np.isnan(rows).any(axis=0).all(),
            "categories": any((f.routing & CATEGORICAL).any() for f in forests.values()),
            "zero as missing": any((f.routing & ZERO_MISSING).any() for f in forests.values()),
            "several outputs": any(f.n_outputs > 1 for f in forests.values()),
            "weights": any((f.tree_weight != 1).any() for f in forests.values()),
            "on a threshold": all(_is_tested_on_thresholds(f, file) for n, f in forests.items() if n != "one leaf"),
        }
        # LightGBM writes DART's weights into the leaf values.
        not_there = {"weights" if library == "lightgbm" else "zero as missing"}
        if library == "xgboost" and version_of(file) < (1, 6):
            not_there.add("categories")
        assert {what for what, there in shown.items() if not there} == not_there, file


def _is_tested_on_thresholds(forest: Any, file: str) -> bool:
    rows = array(kept(file)["rows"])
    dtype = np.dtype(forest.input_dtype)
    with np.errstate(over="ignore"):
        return all(
            (rows[:, feature].astype(dtype) == threshold).any()
            for feature, threshold, routing in zip(forest.feature, forest.threshold, forest.routing, strict=True)
            if not routing & CATEGORICAL
        )
