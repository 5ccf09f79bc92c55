"""What must hold of any input: it is refused by name, or every engine scores it alike."""

from __future__ import annotations

import random
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from agreement import on_cpu

import gpuqs
from gpuqs.arrays import coded_rows
from gpuqs.errors import GpuqsError
from gpuqs.forest import CATEGORICAL, Forest
from gpuqs.readers import open_documents

#: Largest number of nodes for which a forest is scored, not only loaded: `reference` visits nodes one by one.
MAX_NODES = 5_000
#: Approximate limit of the number of values scored; a file may claim billions of columns.
MAX_VALUES = 1 << 20
#: Documents that are scored.
N_DOCUMENTS = 48

Answer = TypeVar("Answer")


class Finding(Exception):
    """An answer that is neither a sound model nor a clear refusal."""


def read_or_refused(path: Path, read: Callable[[], Answer], max_seconds: float) -> Answer | None:
    """The result of ``read`` for the file at ``path``; None if it is refused properly.

    Raises
    ------
    Finding
    """
    began = time.process_time()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            answer = read()
        except GpuqsError as error:
            if str(path) not in str(error):
                raise Finding(f"unnamed {type(error).__name__}") from error
            answer = None
    if time.process_time() - began > max_seconds:
        raise Finding("slow")
    if warned:
        raise Finding(f"warning {warned[0].category.__name__} {warned[0].filename}:{warned[0].lineno}")
    return answer


def check_model(path: Path, rng: random.Random, *, every_engine: bool, max_seconds: float = np.inf) -> bool:
    """Load a model and score it; False if it is refused properly.

    Parameters
    ----------
    every_engine : bool
        Whether to try every engine, not only "auto" and one other.
    max_seconds : float
        Time limit of the reader.

    Raises
    ------
    Finding
    """
    model = read_or_refused(path, lambda: explained(path), max_seconds)
    if model is None:
        return False
    if model.forest.n_nodes <= MAX_NODES and model.n_features <= MAX_VALUES:
        saved = path.with_suffix(".saved")
        model.save(saved)
        again = gpuqs.load(saved)
        saved.unlink()
        check_scores(model, again, rng, every_engine)
    return True


def explained(path: Path) -> gpuqs.Model:
    model = gpuqs.load(path)
    model.explain()
    return model


def check_scores(model: gpuqs.Model, again: gpuqs.Model, rng: random.Random, every_engine: bool) -> None:
    """Scores by several engines, from encoded documents, and by the model loaded ``again`` have the same bits."""
    rows = documents(model.forest, rng)
    X = coded_rows(rows)
    able = [name for name, reason in on_cpu(model).items() if reason is None and name != "reference"]
    engines = ["auto", *(able if every_engine else [rng.choice(able)])]
    outputs: list[Any] = ["leaf", "raw", "value", "per_tree"]
    with np.errstate(all="ignore"):  # sums beyond float64 are infinite here as in the libraries
        with suppress(ValueError):  # models that are not classifiers have no classes
            model.predict(coded_rows(rows[:1]), "class")
            outputs.append("class")
        for output in outputs:
            want = model.predict(X, output, engine="reference", n_threads=1)
            for engine in engines:
                check_same(want, model.predict(X, output, engine=engine, n_threads=1), f"{output} by {engine}")
            check_same(want, again.predict(X, output, n_threads=1), f"{output} after saving")
        if model.forest.has_linear_leaves:  # neither encoded nor rounded
            return
        if every_engine and "bitslice" in able:
            check_same(model.predict(X, "raw", engine="reference"), model.predict(model.encode(X), "raw"), "coded")
        want = model.predict(X, "raw", engine="reference", n_threads=1, precision="fast")
        for engine in engines:
            found = model.predict(X, "raw", engine=engine, n_threads=1, precision="fast")
            check_same(want, found, f"raw by {engine}, precision fast")


def check_same(want: np.ndarray, found: np.ndarray, what: str) -> None:
    if not same(want, found):
        raise Finding(f"scores differ: {what}")


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two answers have the same bits; all NaNs (infinity minus infinity) count as equal."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind != "f":
        return repr(a.tolist()) == repr(b.tolist())
    bits = f"u{a.itemsize}"
    return bool(((a.view(bits) == b.view(bits)) | ((a != a) & (b != b))).all())


def documents(forest: Forest, rng: random.Random) -> np.ndarray:
    """Rows on and next to the forest's thresholds, its categories' codes, and special values."""
    random_rows = np.random.default_rng(rng.randrange(1 << 32))
    if forest.ctrs is not None:
        return given_documents(forest, random_rows)
    n = max(1, min(N_DOCUMENTS, MAX_VALUES // max(forest.n_outputs, forest.n_features)))
    X = np.zeros((n, forest.n_features))
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-35, -1e-36, -0.5, 31.0, 32.0, 1e10, -1.0, 2.5]
    for column in np.unique(forest.feature):
        nodes = np.flatnonzero(forest.feature == column)
        values: list[Sequence[float] | np.ndarray] = [special, random_rows.normal(size=8) * 3]
        if (forest.routing[nodes] & CATEGORICAL).any():
            values.append(random_rows.integers(0, 48, 8))
        else:
            threshold = forest.threshold[nodes]
            with np.errstate(over="ignore"):
                values += [threshold, np.nextafter(threshold, np.inf), np.nextafter(threshold, -np.inf)]
        X[:, column] = random_rows.choice(np.concatenate(values), n)
    with np.errstate(over="ignore"):
        return X.astype(rng.choice([np.float32, np.float64]))


def given_documents(forest: Forest, rng: np.random.Generator) -> np.ndarray:
    """Input rows for a forest with CTRs: numbers on borders, hashes seen in training, and others."""
    ctrs = forest.ctrs
    assert ctrs is not None
    X = rng.normal(size=(N_DOCUMENTS, ctrs.n_given))
    inverse = pow(0x4906BA494954CB65, -2, 1 << 64)  # inverse of the factor that multiplies a single category's hash
    hashes: dict[int, list[int]] = {column: list(codes) for column, codes in ctrs.codes.items()}
    borders: dict[int, list[float]] = {}
    for projection in ctrs.projections:
        alone = len(projection.columns) == 1
        for column in projection.categories:
            met = [int(key) * inverse % (1 << 32) for key in projection.keys[:20].tolist()] if alone else [3]
            hashes.setdefault(column, []).extend(met)
        for column, border, _ in projection.above:
            borders.setdefault(column, []).append(border)
    for column, values in borders.items():
        X[:, column] = rng.choice([*values, np.nan, np.inf, 0.0, *np.nextafter(values, np.inf).tolist()], N_DOCUMENTS)
    for column, values in hashes.items():
        X[:, column] = rng.choice([*values, 0.0, 7.0, 2.0**32 - 1, -1.0, 2.0**32, np.nan], N_DOCUMENTS)
    return X


#: The model for which documents are read.
_TWELVE = Forest(
    n_features=12,
    node_offsets=np.array([0, 1]),
    leaf_offsets=np.array([0, 2]),
    feature=np.zeros(1, np.int32),
    threshold=np.zeros(1),
    left=np.full(1, -1, np.int32),
    right=np.full(1, -2, np.int32),
    routing=np.zeros(1, np.uint8),
    leaf_value=np.zeros((2, 1)),
)


def check_documents(path: Path, *, max_seconds: float = np.inf) -> bool:
    """Read documents; False if they are refused properly.

    Raises
    ------
    Finding
    """
    values = read_or_refused(path, lambda: read_all(path), max_seconds)
    if values is None:
        return False
    if not same(values, expected(path.read_bytes())):
        raise Finding("values differ from those of a plain parser")
    return True


def read_all(path: Path) -> np.ndarray:
    chunks = [chunk.values for chunk in open_documents(path, _TWELVE, format="svmlight", n_threads=1)]
    return np.concatenate([np.zeros((0, _TWELVE.n_features)), *chunks])


def expected(data: bytes) -> np.ndarray:
    """The same values parsed by Python's own float and LightGBM's words for missing values."""
    rows = []
    for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        words = line.partition(b"#")[0].split()
        if words:
            row = np.zeros(_TWELVE.n_features)
            for word in words:
                key, colon, value = word.partition(b":")
                if colon and key != b"qid":
                    row[int(key)] = np.nan if value.lower() in (b"na", b"null") else float(value)
            rows.append(row)
    return np.array(rows).reshape(-1, _TWELVE.n_features)
