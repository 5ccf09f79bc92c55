"""Conformance certificates: a model scored by gpuqs and by the library that it came from, compared bit by bit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from typing import Any, Final

import numpy as np

from gpuqs.arrays import Documents, as_documents, coded_rows, columns_of
from gpuqs.arrays.pandas_frames import labels_of
from gpuqs.arrays.sparse import all_columns, checked_matrix
from gpuqs.cpu_fallback import in_default_float_mode
from gpuqs.forest import Forest
from gpuqs.verify.check import Certificate, Check, Tally
from gpuqs.verify.disagreement import Disagreement, Step
from gpuqs.verify.frames import category_lists, made_frame
from gpuqs.verify.rows import RowMaker
from gpuqs.verify.sources import Source, open_source

__all__ = [
    "Certificate",
    "Check",
    "Disagreement",
    "RowMaker",
    "Source",
    "Step",
    "Tally",
    "compare_made_rows",
    "default_rows",
    "open_source",
    "pandas_for",
    "verify",
]

#: Rows x trees that source libraries score within seconds.
_WORK: Final = 10_000_000
#: Rows x features that take seconds, too, to be made.
_VALUES: Final = 50_000_000
#: Rows of ``X`` that are compared at a time.
_ROWS_AT_ONCE: Final = 1024
#: What made rows are called, as arrays and as frames.
MADE: Final = "made rows"
FRAMES: Final = "made rows as frames"


def default_rows(forest: Forest) -> int:
    """How many rows are made by default: as many as take seconds."""
    by_trees = np.clip(_WORK // max(1, forest.n_trees), 500, 20_000)
    return int(min(by_trees, max(100, _VALUES // max(1, forest.n_features))))


@in_default_float_mode
def verify(
    model: str | os.PathLike[str] | bytes,
    X: Any = None,
    *,
    rows: int | None = None,
    engines: Sequence[str] = ("auto",),
    seed: int = 0,
    n_threads: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Certificate:
    """Compare gpuqs with the library that a model came from, in exit leaves and raw scores.

    Values are compared, too, where gpuqs promises the library's bits.
    Where the model holds its categories, the rows are also compared as pandas frames, so that each side codes the
    categories itself. Models with CTRs are compared only on ``X``, which is a pandas frame or an integer array.

    Parameters
    ----------
    model : path or bytes
        A file that LightGBM, XGBoost or CatBoost wrote, or its content.
    X : array-like [D, n_features], optional
        Rows to compare in addition to the made ones, as for `gpuqs.Model.predict`. The source library gets sparse
        matrices as they are.
    rows : int, optional
        How many rows to make; by default as many as take some seconds.
    engines : sequence of str
        Names of engines, "all", or "auto": those that are chosen for one row and for many.
    seed : int
        Seed of the made rows.
    n_threads : int
        Threads that both sides score with.
    progress : callable, optional
        Called with the number of made rows compared so far, and the number of all.

    Returns
    -------
    Certificate
        Its ``ok`` says whether everything agrees.

    Raises
    ------
    InputError
        The source library is not installed, there is no such engine, or ``X`` does not fit the model.
    ModelFormatError, UnsupportedModelError
        As for `open_source`.
    """
    check = Check(open_source(model, n_threads), engines)
    compare_made_rows(check, rows, seed, n_threads, progress)
    if X is not None:
        for part in _parts(X, check.model.forest):
            if not isinstance(part, Documents) or check.model.forest.ctrs is None:
                check.add(part, "rows of X", n_threads)
        if hasattr(X, "iloc") and category_lists(check.model.forest):
            given = check.model.forest.given
            take = columns_of(*labels_of(X, given), given)
            check.add_frame(X if take is None else X.iloc[:, take], "rows of X as a frame", n_threads)
    return check.certificate


def _parts(X: Any, forest: Forest) -> Iterator[Any]:
    """The rows of ``X``, some at a time: sparse matrices and integers as given, others as gpuqs reads them."""
    X = checked_matrix(X) if hasattr(X, "tocsr") else np.asarray(X) if isinstance(X, (list, tuple)) else X
    documents = as_documents(X, forest)
    as_given = hasattr(X, "tocsr") or (isinstance(X, np.ndarray) and X.dtype.kind in "iub" and X.dtype.isnative)
    for start in range(0, documents.n, _ROWS_AT_ONCE):
        stop = min(start + _ROWS_AT_ONCE, documents.n)
        yield X[start:stop] if as_given else coded_rows(all_columns(documents, forest, start, stop))


def compare_made_rows(
    check: Check,
    rows: int | None,
    seed: int,
    n_threads: int,
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Add made rows to a check; parameters as for `verify`."""
    if check.model.forest.ctrs is not None:
        check.certificate.notes.append(
            "no rows are made for models with statistics of categories (CTRs), whose files hold no categories; pass "
            "documents to compare"
        )
        return
    total = default_rows(check.model.forest) if rows is None else rows
    maker = RowMaker(check.model.forest, infinite=check.source.takes_infinite, seed=seed)
    done = 0
    pandas = pandas_for(check)
    rng = np.random.default_rng(seed)
    for n, dtype in maker.batches(total):
        X = maker.make(n, dtype)
        check.add(coded_rows(X), MADE, n_threads)
        if pandas is not None:
            finite = X[~np.isinf(X).any(axis=1)]
            frame = made_frame(finite, check.model.forest, rng, pandas, check.source.untested_categories())
            check.add_frame(frame, FRAMES, n_threads)
        done += n
        if progress is not None:
            progress(done, total)


def pandas_for(check: Check) -> Any:
    """The package pandas, if the model has categories to compare as frames; else None, with a note if it is missing."""
    if not category_lists(check.model.forest):
        return None
    try:
        return import_module("pandas")
    except ModuleNotFoundError:
        note = "pandas is not installed, so the coding of frames' categories is not compared (pip install pandas)"
        check.certificate.notes += [note] * (note not in check.certificate.notes)
        return None
