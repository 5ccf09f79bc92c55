"""Inputs that once broke a reader: each is refused by name, or scores alike on two engines."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gpuqs
from gpuqs.errors import GpuqsError

CORPUS = sorted((Path(__file__).parents[1] / "data" / "fuzz").iterdir())


def documents(model: gpuqs.Model) -> np.ndarray:
    """Rows on the model's thresholds and beside them, category codes and special values."""
    rng = np.random.default_rng(3)
    threshold = model.forest.threshold
    with np.errstate(over="ignore"):
        beside = [np.nextafter(threshold, np.inf), np.nextafter(threshold, -np.inf)]
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, -0.5, -1.0, 1e10]
    return rng.choice(np.concatenate([threshold, *beside, special, np.arange(40.0)]), (100, model.n_features))


def test_there_is_a_corpus():
    assert CORPUS


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_refused_by_name_or_scored_alike(path):
    try:
        model = gpuqs.load(path)
    except GpuqsError as error:
        assert str(path) in str(error)
        return
    X = documents(model)
    for output in ("leaf", "raw", "value"):
        with np.errstate(all="ignore"):  # the sums of hostile leaves may be infinite
            expected = model.predict(X, output, engine="reference")
            found = model.predict(X, output)
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        numbers = ~np.isnan(expected)
        np.testing.assert_array_equal(np.isnan(found), ~numbers)
        assert found[numbers].tobytes() == expected[numbers].tobytes()
