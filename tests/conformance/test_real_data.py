"""LightGBM's own learning-to-rank example: a LambdaMART model, and the scores of its test file."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agreement import ON_CPU_ANY_SHAPE

import gpuqs

lgb = pytest.importorskip("lightgbm")


@dataclass(frozen=True)
class Example:
    booster: Any
    model_file: Path
    test_file: Path
    X: np.ndarray
    scores: np.ndarray


@pytest.fixture(scope="module")
def example(lambdarank_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Example:
    datasets = pytest.importorskip("sklearn.datasets")
    train, test = lambdarank_data / "rank.train", lambdarank_data / "rank.test"
    params = {"objective": "lambdarank", "num_leaves": 31, "verbose": -1, "num_threads": 1}
    booster = lgb.train(params, lgb.Dataset(train), 60)  # queries are in rank.train.query
    model_file = tmp_path_factory.mktemp("lambdarank") / "model.txt"
    booster.save_model(model_file)
    X, _ = datasets.load_svmlight_file(str(test), n_features=booster.num_feature(), zero_based=True)
    X = X.toarray()
    scores = booster.predict(X)
    np.testing.assert_array_equal(booster.predict(test), scores)
    assert len(np.unique(scores)) > 100
    return Example(booster, model_file, test, X, scores)


@pytest.mark.parametrize("engine", ON_CPU_ANY_SHAPE)
def test_scores_are_lightgbms_bit_for_bit(isa: str, engine: str, example: Example) -> None:
    model = gpuqs.load(example.model_file)
    got = model.predict(example.X, engine=engine)
    np.testing.assert_array_equal(got.view(np.int64), example.scores.view(np.int64))
    leaves = example.booster.predict(example.X, pred_leaf=True)
    np.testing.assert_array_equal(model.predict(example.X, "leaf", engine=engine), leaves)


def test_float32_documents_too(isa: str, example: Example) -> None:
    X = example.X.astype(np.float32)
    scores = example.booster.predict(X)
    np.testing.assert_array_equal(gpuqs.load(example.model_file).predict(X).view(np.int64), scores.view(np.int64))


@pytest.mark.parametrize("engine", ["auto", *ON_CPU_ANY_SHAPE])
def test_from_file_to_file_through_the_command_line(example: Example, tmp_path: Path, engine: str) -> None:
    testing = pytest.importorskip("click.testing")
    from gpuqs.cli.commands import cli

    out = tmp_path / "scores.npy"
    arguments = ["score", str(example.model_file), str(example.test_file), "-o", str(out), "--engine", engine]
    result = testing.CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0, result.output
    np.testing.assert_array_equal(np.load(out).view(np.int64), example.scores.view(np.int64))
