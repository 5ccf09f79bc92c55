"""The papers' data sets in shape: made-up documents of 136, 700 and 220 features, or the real files.

Made-up documents are all derived from gpuqs's MSLR-like ones, including labels and queries. The other two shapes
transform mixes of those columns: Yahoo-like ones to ranks in [0, 1], many of them 0; Istella-like ones to counts and
weights with heavy tails.

Real files are LETOR text as distributed, found by name in a folder and its subfolders.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from gpuqs.demo.mslr import mslr_like
from gpuqs.errors import InputError
from gpuqs.forest import Forest
from gpuqs.readers import open_documents

#: Seed of the documents that the models were not trained on.
DOCUMENTS_SEED = 12
#: The first of the seeds used for training.
TRAINING_SEED = 1_000
#: Maximum number of documents read from a real file.
MAX_REAL = 200_000
#: First bytes of a real file that, with its size, identify it.
HEAD = 1 << 20


@dataclass(frozen=True)
class Shape:
    """A data set of the papers.

    Parameters
    ----------
    name : str
        As tables call it.
    n_features : int
    train, test : str
        Patterns of the real files' paths, below the folder that holds them.
    """

    name: str
    n_features: int
    train: str
    test: str


MSN = Shape("MSN", 136, "Fold1/train.txt", "Fold1/test.txt")
YAHOO = Shape("Yahoo", 700, "set1.train.txt", "set1.test.txt")
ISTELLA = Shape("Istella", 220, "*stella*/**/train.txt", "*stella*/**/test.txt")
SHAPES = {shape.name: shape for shape in (MSN, YAHOO, ISTELLA)}


def key(shape: Shape, data: Path | None = None) -> str:
    """A shape's name for file names; for real data it identifies the file, too."""
    if data is None:
        return shape.name.lower()
    return f"{shape.name.lower()}-real-{_digest(_found(shape, shape.train, data))}"


def check(shapes: Iterable[Shape], data: Path) -> None:
    """Raise `InputError` where a folder lacks a file that one of the shapes needs."""
    for shape in shapes:
        for pattern in (shape.train, shape.test):
            _found(shape, pattern, data)


def documents(shape: Shape, n: int, data: Path | None = None) -> np.ndarray:
    """Rows of a shape, float32 [n, n_features], none of which models are trained on.

    Parameters
    ----------
    shape : Shape
    n : int
        Number of rows; a real file with fewer is repeated.
    data : path, optional
        The folder of the real files.
    """
    if data is None:
        base, _, _ = mslr_like(n // 100 + 2, DOCUMENTS_SEED)
        return _bent(shape, base[:n], DOCUMENTS_SEED)
    X, _, _ = _real(shape, _found(shape, shape.test, data))
    return np.resize(X, (n, shape.n_features))


def training(
    shape: Shape, part: int, data: Path | None = None, n: int = 2_000
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """About n documents to train a part of a model, labels, and sizes of queries; each part gets other documents."""
    if data is None:
        seed = TRAINING_SEED + part
        base, y, qid = mslr_like(n // 110, seed)
        return _bent(shape, base, seed), y, np.unique(qid, return_counts=True)[1]
    X, y, sizes = _real(shape, _found(shape, shape.train, data))
    ends = np.cumsum(sizes)
    order = np.random.default_rng(TRAINING_SEED + part).permutation(len(sizes))
    chosen = np.sort(order[: np.searchsorted(np.cumsum(sizes[order]), n) + 1])
    rows = np.concatenate([np.arange(ends[q] - sizes[q], ends[q]) for q in chosen])
    return X[rows], y[rows], sizes[chosen]


def _bent(shape: Shape, base: np.ndarray, seed: int) -> np.ndarray:
    """The shape's columns for MSLR-like documents."""
    if shape.n_features == base.shape[1]:
        return np.ascontiguousarray(base)
    order, known_ranks = _known()
    ranks = _ranks(base, order)
    world, draw = np.random.RandomState(shape.n_features), np.random.RandomState(seed)
    out = np.empty((len(base), shape.n_features), np.float32)
    for f in range(shape.n_features):
        (a, b), weight = world.choice(base.shape[1], 2, replace=False), world.uniform(0.3, 1.0)
        zeros, tail = world.uniform(-0.3, 0.9), world.uniform(1.0, 9.0)  # a negative share means none
        noise = world.normal(size=len(order)), draw.normal(size=len(base))
        known_mix, mix = (
            weight * r[:, a] + (1 - weight) * r[:, b] + 0.1 * e
            for r, e in zip((known_ranks, ranks), noise, strict=True)
        )
        u = np.searchsorted(np.sort(known_mix), mix) / len(order)
        above = np.clip((u - max(zeros, 0.0)) / (1 - max(zeros, 0.0)), 0.0, 1.0)
        out[:, f] = np.round(above if shape is YAHOO else np.expm1(tail * above), 5)
    return out


@cache
def _known() -> tuple[np.ndarray, np.ndarray]:
    """Columns of known MSLR-like documents, sorted, and the documents' ranks."""
    known, _, _ = mslr_like(20, TRAINING_SEED - 2)
    order = np.sort(known, axis=0)
    return order, _ranks(known, order)


def _ranks(X: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Shares of known documents below each value, by column; the middle of the range if many are equal."""
    columns = list(zip(order.T, X.T, strict=True))
    below, not_above = (np.stack([np.searchsorted(o, x, side) for o, x in columns], 1) for side in ("left", "right"))
    return (below + not_above) / (2 * len(order))


def _found(shape: Shape, pattern: str, data: Path) -> Path:
    if not data.is_dir():
        raise InputError(f"{data}: no such folder; without one, documents are made up")
    paths = sorted(data.rglob(pattern))
    if not paths:
        raise InputError(f"{data}: no {pattern}, which {shape.name} needs; without a folder, documents are made up")
    return paths[0]


@cache
def _digest(path: Path) -> str:
    """Eight hash digits of a file's size and beginning, since it may be gigabytes long."""
    with path.open("rb") as file:
        return hashlib.sha256(b"%d " % path.stat().st_size + file.read(HEAD)).hexdigest()[:8]


@cache
def _real(shape: Shape, path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The first documents of a file, as whole queries: values, labels, and sizes of queries."""
    columns = Forest(
        n_features=shape.n_features,
        node_offsets=np.zeros(1, np.int64),
        leaf_offsets=np.zeros(1, np.int64),
        feature=np.zeros(0, np.int32),
        threshold=np.zeros(0),
        left=np.zeros(0, np.int32),
        right=np.zeros(0, np.int32),
        routing=np.zeros(0, np.uint8),
        leaf_value=np.zeros((0, 1)),
    )
    values, labels, queries = [], [], []
    for chunk in open_documents(path, columns, first_id=1):
        if chunk.labels is None or chunk.queries is None:
            raise InputError(f"{path}: no labels and queries; LETOR text as distributed has them")
        largest = np.finfo(np.float32).max  # Istella marks missing values with the largest float64
        values.append(np.clip(chunk.values, -largest, largest).astype(np.float32))
        labels.append(chunk.labels)
        queries.append(chunk.queries)
        if sum(map(len, labels)) >= MAX_REAL:
            break
    qid = np.concatenate(queries)
    starts = np.flatnonzero(np.r_[True, qid[1:] != qid[:-1]])
    stop = starts[-1] if len(starts) > 1 else len(qid)  # the last query may be incomplete
    return np.concatenate(values)[:stop], np.concatenate(labels)[:stop], np.diff(np.r_[starts[starts < stop], stop])
