"""NDCG@k, as LightGBM and the LETOR field define it.

    DCG@k  = sum over the k best-scored documents, i = 1, 2, ..., of (2^label - 1) / log2(i + 1)
    NDCG@k = DCG@k / (DCG@k of the best possible order), averaged over queries

Labels are integer relevance grades from 0 (irrelevant); ties in score keep the documents' order. A
query without relevant documents has no best order; as in LightGBM and XGBoost it counts as 1
(the LETOR and MSLR scripts count it as 0).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpuqs.errors import InputError

#: Highest relevance grade, as in LightGBM's default gains.
MAX_LABEL = 30
#: Most documents of one query; more cannot be a ranking, and would have to be held in memory.
MAX_QUERY = 1_000_000


def ndcg(
    labels: npt.ArrayLike, scores: npt.ArrayLike, queries: npt.ArrayLike, k: int = 10, empty: float = 1.0
) -> float:
    """Mean NDCG@k.

    Parameters
    ----------
    labels : array [D]
        Relevance grades, integers from 0 to 30.
    scores : array [D]
    queries : array [D]
        Query ids; documents of a query follow each other.
    k : int
    empty : float
        What a query without relevant documents counts as.

    Raises
    ------
    InputError
        Labels are not relevance grades, lengths differ, or a query's documents are not together.
    """
    mean = NdcgMean(k, empty)
    mean.add(np.asarray(labels), np.asarray(scores), np.asarray(queries))
    return mean.result()


class NdcgMean:
    """Mean NDCG@k over documents that arrive in chunks; holds one query's documents at a time.

    Parameters
    ----------
    k : int
    empty : float
        What a query without relevant documents counts as.

    Attributes
    ----------
    n_queries : int
        Queries so far, without the open one until `result`.
    n_empty : int
        How many of them have no relevant documents.
    """

    def __init__(self, k: int = 10, empty: float = 1.0) -> None:
        if k < 1:
            raise ValueError(f"k must be at least 1, not {k}")
        self.k = k
        self.empty = empty
        self.n_queries = 0
        self.n_empty = 0
        self._sum = 0.0
        self._seen: set[object] = set()
        self._open: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    def add(self, labels: np.ndarray, scores: np.ndarray, queries: np.ndarray) -> None:
        """Add documents; a query may continue in the next call.

        Raises
        ------
        InputError
            As for `ndcg`.
        """
        if not len(labels) == len(scores) == len(queries):
            raise InputError(f"{len(labels)} labels, {len(scores)} scores and {len(queries)} query ids")
        if len(labels) == 0:
            return
        good = (labels >= 0) & (labels <= MAX_LABEL) & (labels == np.floor(labels))
        if not good.all():
            bad = labels[np.flatnonzero(~good)[0]]
            raise InputError(f"label {bad} is not a relevance grade (an integer from 0 to {MAX_LABEL})")
        if self._open is not None:
            parts = zip(self._open, (labels, scores, queries), strict=True)
            labels, scores, queries = (np.concatenate(pair) for pair in parts)
        starts = np.flatnonzero(np.append(True, queries[1:] != queries[:-1]))
        last = starts[-1]
        self._count(labels[:last], scores[:last], queries[:last], starts[:-1])
        self._open = labels[last:], scores[last:], queries[last:]
        if len(labels) - last > MAX_QUERY:
            raise InputError(f"query {queries[last]} has more than {MAX_QUERY:,} documents")

    def result(self) -> float:
        """The mean over all queries so far; NaN where there are none."""
        if self._open is not None:
            self._count(*self._open, np.zeros(1, np.int64))
            self._open = None
        return self._sum / self.n_queries if self.n_queries else float("nan")

    def _count(self, labels: np.ndarray, scores: np.ndarray, queries: np.ndarray, starts: np.ndarray) -> None:
        if len(starts) == 0:
            return
        for query in queries[starts].tolist():
            if query in self._seen:
                raise InputError(f"query {query}: its documents are not together; sort the file by query id")
            self._seen.add(query)
        sizes = np.diff(np.append(starts, len(labels)))
        run = np.repeat(np.arange(len(starts)), sizes)
        rank = np.arange(len(labels)) - np.repeat(starts, sizes)
        gain = np.exp2(labels.astype(np.float64)) - 1.0
        discount = np.where(rank < self.k, 1.0 / np.log2(rank + 2.0), 0.0)
        by_score = np.lexsort((-scores, run))
        by_label = np.lexsort((-gain, run))
        dcg = np.bincount(run, gain[by_score] * discount)
        best = np.bincount(run, gain[by_label] * discount)
        relevant = best > 0
        self._sum += float((dcg[relevant] / best[relevant]).sum()) + self.empty * int((~relevant).sum())
        self.n_queries += len(starts)
        self.n_empty += int((~relevant).sum())
