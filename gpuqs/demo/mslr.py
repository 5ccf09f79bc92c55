"""Made-up learning-to-rank documents that look like MSLR-WEB's: same features, same labels.

Every document has a few hidden qualities, partly shared with its query. Each feature mixes them
and bends the mix into its kind: zero-inflated counts, heavy tails, ratios, small integers. Labels
come from the same qualities, through products that no single feature shows, and noise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

#: Proportions of the labels 0 to 4, as in MSLR-WEB30K.
LABEL_SHARES = (0.52, 0.32, 0.13, 0.02, 0.01)
#: Text streams of a page: body, anchor, title, url, whole document.
STREAMS = ("body", "anchor", "title", "url", "whole")

_N_QUALITIES = 12
#: Seed of the world that all sets share: what features mean does not depend on a set's seed.
_WORLD = 20130603
#: Share of documents for which a stream is empty, so that all its features are zero.
_STREAM_EMPTY = (0.02, 0.72, 0.03, 0.0, 0.0)

#: Bends a standard normal column; ``terms`` is the number of query terms of each document.
_Bend = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class _Kind:
    """One kind of feature; MSLR has it once per stream, or only once."""

    name: str
    bend: _Bend
    streams: tuple[str, ...] = STREAMS
    of_query: bool = False


def _share(s: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-1.5 * s))


_KINDS = (
    _Kind("covered query terms", lambda s, terms: np.floor(_share(s + 0.5) * (terms + 0.999))),
    _Kind("covered query term ratio", lambda s, terms: np.floor(_share(s + 0.5) * (terms + 0.999)) / terms),
    _Kind("stream length", lambda s, terms: np.floor(np.exp(3.0 + 1.4 * s))),
    _Kind("inverse document frequency", lambda s, terms: terms * np.exp(1.5 + 0.4 * s), of_query=True),
    _Kind("sum of term frequency", lambda s, terms: np.floor(np.exp(0.8 + 1.6 * s))),
    _Kind("min of term frequency", lambda s, terms: np.floor(np.exp(1.1 * s - 0.9))),
    _Kind("max of term frequency", lambda s, terms: np.floor(np.exp(0.6 + 1.4 * s))),
    _Kind("mean of term frequency", lambda s, terms: np.floor(np.exp(0.6 + 1.4 * s) * terms) / terms),
    _Kind("variance of term frequency", lambda s, terms: np.where(s > -0.3, np.exp(2.2 * s), 0.0)),
    _Kind("normalised sum of term frequency", lambda s, terms: np.clip(0.05 + 0.05 * s, 0.0, 1.0)),
    _Kind("normalised min of term frequency", lambda s, terms: np.clip(0.03 * s - 0.01, 0.0, 1.0)),
    _Kind("normalised max of term frequency", lambda s, terms: np.clip(0.04 + 0.04 * s, 0.0, 1.0)),
    _Kind("normalised mean of term frequency", lambda s, terms: np.clip(0.03 + 0.03 * s, 0.0, 1.0)),
    _Kind("normalised variance", lambda s, terms: np.exp(1.5 * s - 7.0)),
    _Kind("sum of tf*idf", lambda s, terms: np.where(s > -1.2, np.exp(2.5 + 1.5 * s), 0.0)),
    _Kind("min of tf*idf", lambda s, terms: np.where(s > 0.1, np.exp(1.2 + 1.2 * s), 0.0)),
    _Kind("max of tf*idf", lambda s, terms: np.where(s > -1.2, np.exp(2.1 + 1.4 * s), 0.0)),
    _Kind("mean of tf*idf", lambda s, terms: np.where(s > -1.2, np.exp(2.0 + 1.4 * s) / terms, 0.0)),
    _Kind("variance of tf*idf", lambda s, terms: np.where(s > -0.3, np.exp(3.0 + 2.4 * s), 0.0)),
    _Kind("boolean model", lambda s, terms: (s > 0.4).astype(np.float64)),
    _Kind("vector space model", lambda s, terms: np.clip(0.5 + 0.35 * s, 0.0, 1.0)),
    _Kind("BM25", lambda s, terms: np.maximum(0.0, 4.0 * terms * (1.0 + s))),
    _Kind("language model, absolute discount", lambda s, terms: -terms * np.exp(1.3 - 0.35 * s)),
    _Kind("language model, Dirichlet", lambda s, terms: -terms * np.exp(1.4 - 0.3 * s)),
    _Kind("language model, Jelinek-Mercer", lambda s, terms: -terms * np.exp(1.2 - 0.4 * s)),
    _Kind("slashes in url", lambda s, terms: 1.0 + np.floor(np.exp(0.4 + 0.5 * s)), ("",)),
    _Kind("length of url", lambda s, terms: np.floor(np.exp(3.8 + 0.4 * s)), ("",)),
    _Kind("inlinks", lambda s, terms: np.floor(np.exp(3.0 * s - 1.0)), ("",)),
    _Kind("outlinks", lambda s, terms: np.floor(np.exp(1.2 + 1.3 * s)), ("",)),
    _Kind("page rank", lambda s, terms: np.floor(np.clip(32768.0 + 12000.0 * s, 0.0, 65535.0)), ("",)),
    _Kind("site rank", lambda s, terms: np.floor(np.clip(20000.0 * np.exp(0.9 * s), 0.0, 65535.0)), ("",)),
    _Kind("quality score", lambda s, terms: np.floor(255.0 * _share(-2.0 * s - 2.0)), ("",)),
    _Kind("quality score 2", lambda s, terms: np.floor(255.0 * _share(2.0 * s)), ("",)),
    _Kind("query-url clicks", lambda s, terms: np.floor(np.exp(2.6 * s - 3.2)), ("",)),
    _Kind("url clicks", lambda s, terms: np.floor(np.exp(3.2 * s - 2.0)), ("",)),
    _Kind("url dwell time", lambda s, terms: np.where(s > 0.6, np.exp(2.0 + 1.5 * s), 0.0), ("",)),
)


def mslr_feature_names() -> tuple[str, ...]:
    """What the 136 features stand for, such as "BM25, title"."""
    return tuple(f"{kind.name}, {s}" if s else kind.name for kind in _KINDS for s in kind.streams)


def mslr_like(
    n_queries: int = 60, seed: int = 0
) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Make a learning-to-rank set like MSLR-WEB30K.

    About 120 documents a query (5 to 600), labels 0 to 4 in the proportions `LABEL_SHARES`. The same
    arguments give the same set; sets of different seeds are draws from the same world, so that a
    model trained on one ranks another.

    Parameters
    ----------
    n_queries : int
    seed : int

    Returns
    -------
    X : float32 [D, 136]
    y : int64 [D]
        Relevance grades.
    qid : int64 [D]
        Query ids, ascending from 1.
    """
    if n_queries < 1:
        raise ValueError(f"n_queries must be at least 1, not {n_queries}")
    # RandomState's streams never change between NumPy versions: the bundled model depends on the world's.
    world = np.random.RandomState(_WORLD)
    draw = np.random.RandomState(seed)
    sizes = np.clip(np.exp(draw.normal(4.63, 0.56, n_queries)), 5, 600).astype(np.int64)
    of = np.repeat(np.arange(n_queries), sizes)
    n = len(of)
    query_quality = draw.normal(size=(n_queries, _N_QUALITIES))
    quality = 0.5 * query_quality[of] + np.sqrt(0.75) * draw.normal(size=(n, _N_QUALITIES))
    terms = draw.randint(1, 7, n_queries).astype(np.float64)[of]

    columns = []
    gates = dict(zip(STREAMS, _stream_gates(world, draw, quality), strict=True))
    for kind in _KINDS:
        shared = world.normal(size=_N_QUALITIES)
        for stream in kind.streams:
            mix = _unit(
                0.8 * shared + world.normal(size=_N_QUALITIES) * (world.uniform(size=_N_QUALITIES) < 0.4)
            )
            noise = draw.normal(size=n_queries if kind.of_query else n)
            if kind.of_query:
                s = (0.9 * _mixed(query_quality, mix) + np.sqrt(0.19) * noise)[of]
            else:
                s = 0.85 * _mixed(quality, mix) + np.sqrt(1.0 - 0.85**2) * noise
            column = kind.bend(s, terms)
            if stream and not kind.of_query:
                column = np.where(gates[stream], column, 0.0)
            columns.append(column)
    X = np.ascontiguousarray(np.round(np.stack(columns, axis=1), 6), dtype=np.float32)
    return X, _labels(world, draw, quality, query_quality[of], terms), of + 1


def _unit(mix: np.ndarray) -> np.ndarray:
    unit: np.ndarray = mix / np.sqrt((mix * mix).sum())
    return unit


def _mixed(quality: np.ndarray, mix: np.ndarray) -> np.ndarray:
    """``quality @ mix`` in one fixed order of additions, whatever BLAS is installed."""
    total = np.zeros(len(quality))
    for at, weight in enumerate(mix):
        total += quality[:, at] * weight
    return total


def _stream_gates(
    world: np.random.RandomState, draw: np.random.RandomState, quality: np.ndarray
) -> list[npt.NDArray[np.bool_]]:
    """For each stream, which documents have it; popular pages have anchor texts more often."""
    gates = []
    for share in _STREAM_EMPTY:
        mix = _unit(world.normal(size=_N_QUALITIES))
        s = 0.5 * _mixed(quality, mix) + np.sqrt(0.75) * draw.normal(size=len(quality))
        gates.append(s >= np.quantile(s, share) if share else np.ones(len(s), bool))
    return gates


def _labels(
    world: np.random.RandomState,
    draw: np.random.RandomState,
    quality: np.ndarray,
    query_quality: np.ndarray,
    terms: np.ndarray,
) -> npt.NDArray[np.int64]:
    mixes = [_unit(world.normal(size=_N_QUALITIES)) for _ in range(6)]
    a, b, c, d, e = (_mixed(quality, mix) for mix in mixes[:5])
    relevance = (
        0.9 * a + 0.6 * np.tanh(2.0 * b * c) + 0.5 * np.maximum(d, 0.0) * (terms > 2) - 0.4 * np.abs(e)
    )
    relevance += 0.35 * _mixed(query_quality, mixes[5]) + 0.75 * draw.normal(size=len(quality))
    order = np.argsort(relevance, kind="stable")
    labels = np.empty(len(order), np.int64)
    bounds = np.rint(np.cumsum(LABEL_SHARES)[:-1] * len(order)).astype(np.int64)
    labels[order] = np.searchsorted(bounds, np.arange(len(order)), side="right")
    return labels
