from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import ndcg_score

from gpuqs.errors import InputError
from gpuqs.ranking import NdcgMean, ndcg


def test_by_hand() -> None:
    # By descending score: labels 0, 2, 1; the ideal order is 2, 1, 0.
    got = 0.0 + 3 / np.log2(3) + 1 / 2
    best = 3.0 + 1 / np.log2(3)
    assert ndcg([2, 0, 1], [0.5, 0.9, 0.1], [7, 7, 7]) == pytest.approx(got / best, rel=1e-15)
    assert ndcg([2, 0, 1], [0.5, 0.9, 0.1], [7, 7, 7], k=1) == 0.0


def test_mean_over_queries() -> None:
    labels, scores, queries = [1, 0, 0, 1], [2.0, 1.0, 2.0, 1.0], [1, 1, 2, 2]
    assert ndcg(labels, scores, queries) == pytest.approx((1 + 1 / np.log2(3)) / 2, rel=1e-15)


def test_ties_keep_the_documents_order() -> None:
    assert ndcg([1, 0], [5.0, 5.0], [0, 0]) == 1.0
    assert ndcg([0, 1], [5.0, 5.0], [0, 0]) == pytest.approx(1 / np.log2(3), rel=1e-15)


def test_queries_without_relevant_documents() -> None:
    labels, scores, queries = [0, 0, 0, 1], [1.0, 2.0, 2.0, 1.0], ["a", "a", "b", "b"]
    b = 1 / np.log2(3)
    assert ndcg(labels, scores, queries) == pytest.approx((1 + b) / 2)
    assert ndcg(labels, scores, queries, empty=0.0) == pytest.approx(b / 2)
    mean = NdcgMean()
    mean.add(np.array(labels), np.array(scores), np.array(queries))
    mean.result()
    assert (mean.n_queries, mean.n_empty) == (2, 1)


def test_no_documents() -> None:
    assert np.isnan(ndcg([], [], []))


@given(st.integers(0, 2**32 - 1))
def test_as_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    labels, scores = rng.integers(0, 5, 30), rng.permutation(30)
    labels[0] = 1
    expected = ndcg_score([2.0**labels - 1], [scores], k=10)
    assert ndcg(labels, scores, np.zeros(30)) == pytest.approx(expected, rel=1e-12)


@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_chunks_change_nothing(seed: int, size: int) -> None:
    rng = np.random.default_rng(seed)
    queries = np.sort(rng.integers(0, 12, 100))
    labels, scores = rng.integers(0, 3, 100), rng.normal(size=100).round(1)
    mean = NdcgMean(5)
    for start in range(0, 100, size):
        part = slice(start, start + size)
        mean.add(labels[part], scores[part], queries[part])
    assert mean.result() == pytest.approx(ndcg(labels, scores, queries, 5), rel=1e-12)
    assert mean.n_queries == len(np.unique(queries))


def test_as_lightgbm() -> None:
    import lightgbm

    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(600, 5)), rng.integers(0, 4, 600)
    sizes = rng.multinomial(600, np.full(25, 1 / 25))
    y[: sizes[0]] = 0  # a query without relevant documents
    data = lightgbm.Dataset(X, y, group=sizes)
    results: dict[str, dict[str, list[float]]] = {}
    booster = lightgbm.train(
        {"objective": "lambdarank", "metric": "ndcg", "eval_at": [3, 10], "verbosity": -1, "num_leaves": 4},
        data,
        4,
        valid_sets=[data],
        callbacks=[lightgbm.record_evaluation(results)],
    )
    queries = np.repeat(np.arange(25), sizes)
    for k in (3, 10):
        own = results["training"][f"ndcg@{k}"][-1]
        assert ndcg(y, booster.predict(X), queries, k) == pytest.approx(own, rel=1e-12)


@pytest.mark.parametrize(
    ("labels", "queries", "message"),
    [
        ([0.5, 1], [1, 1], r"label 0\.5 is not a relevance grade"),
        ([-1, 1], [1, 1], "label -1 is not a relevance grade"),
        ([31, 1], [1, 1], "label 31 is not a relevance grade"),
        ([np.nan, 1], [1, 1], "label nan is not a relevance grade"),
        ([1, 1, 1], [1, 2, 1], "query 1: its documents are not together"),
        ([1], [1, 1], "1 labels, 2 scores"),
    ],
)
def test_bad_input(labels: list[float], queries: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ndcg(labels, np.zeros(len(queries)), queries)


def test_a_query_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuqs.ranking.MAX_QUERY", 100)
    mean = NdcgMean()
    mean.add(np.zeros(100), np.zeros(100), np.zeros(100))
    with pytest.raises(InputError, match="has more than 100 documents"):
        mean.add(np.zeros(1), np.zeros(1), np.zeros(1))


def test_k_must_be_positive() -> None:
    with pytest.raises(ValueError, match="k must be at least 1"):
        ndcg([1], [1.0], [1], k=0)
