"""Documents and the answer that share memory are refused: documents would change while they are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from forests import probing_documents, random_forest

from gpuqs import chunks
from gpuqs.arrays import as_documents
from gpuqs.errors import InputError
from gpuqs.model import Model
from gpuqs.schema import Schema

MODEL = Model(random_forest(np.random.default_rng(0), n_trees=20, n_thresholds=100))


def test_out_that_shares_memory_with_documents() -> None:
    n = MODEL.n_features
    buffer = np.zeros((300, n))
    with pytest.raises(InputError, match="shares memory"):
        MODEL.predict(buffer, "raw", out=buffer.reshape(-1)[:300])
    with pytest.raises(InputError, match="shares memory"):
        MODEL.predict(buffer[:200], "raw", out=buffer.reshape(-1)[150:350])
    columns = np.zeros((n + 1, 200)).T  # a column next to the documents does not overlap them
    beside = columns[:, n]
    assert MODEL.predict(columns[:, :n], "raw", out=beside) is beside


def test_out_that_shares_memory_with_documents_of_which_some_are_near_zero() -> None:
    """Linear leaves read those as zeros, in copies of chunks that hold any."""
    model = Model(random_forest(np.random.default_rng(0), n_trees=20, linear=0.5))
    X = np.random.default_rng(1).normal(size=(5000, model.n_features))
    X[::100, 3] = 1e-40
    before = X.copy()
    with pytest.raises(InputError, match="shares memory"):
        model.predict(X, "raw", out=X.reshape(-1)[-5000:])
    np.testing.assert_array_equal(X, before)
    assert as_documents(X, model.forest).copied  # hence in chunks of few bytes


def overlapping() -> dict[str, Callable[[np.ndarray], Any]]:
    """Inputs whose documents lie in the memory of a float64 array [D, 8], by the name of the reader."""

    class Array:
        def __init__(self, array: np.ndarray) -> None:
            self.array = array

        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return self.array

    class Interface(Array):
        __array__ = None  # type: ignore[assignment]

        @property
        def __array_interface__(self) -> dict[str, Any]:
            return self.array.__array_interface__

    class DLPack:
        def __init__(self, array: np.ndarray) -> None:
            self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__

    def frame(array: np.ndarray, *others: int) -> Any:
        pandas = pytest.importorskip("pandas")
        columns = {str(at): array[:, at] for at in range(array.shape[1])}
        return pandas.DataFrame(columns | {str(at): columns[str(at)].view(np.int64) for at in others}, copy=False)

    def masked(array: np.ndarray) -> Any:
        pandas = pytest.importorskip("pandas")
        columns = [pandas.arrays.FloatingArray(column, np.zeros(len(column), bool)) for column in array.T]
        return pandas.DataFrame(dict(enumerate(columns)), copy=False)

    def table(array: np.ndarray) -> Any:
        arrow = pytest.importorskip("pyarrow")
        return arrow.table({str(at): column for at, column in enumerate(array.T)})

    def sparse(array: np.ndarray, kind: str) -> Any:
        scipy = pytest.importorskip("scipy.sparse")
        n, width = array.shape
        parts = (n, width) if kind == "csr" else (width, n)
        indices = np.tile(np.arange(parts[1]), parts[0])
        bounds = np.arange(parts[0] + 1) * parts[1]
        make = scipy.csr_matrix if kind == "csr" else scipy.csc_matrix
        return make((array.ravel(order="A"), indices, bounds), shape=array.shape, copy=False)

    return {
        "memoryview": memoryview,
        "memoryview of integers": lambda array: memoryview(array.view(np.int64)),
        "__array__": Array,
        "__array_interface__": Interface,
        "DLPack": DLPack,
        "subclass of ndarray": lambda array: array.view(np.recarray),
        "frame of one block": lambda array: pytest.importorskip("pandas").DataFrame(array, copy=False),
        "frame of columns": frame,
        "frame of two types": lambda array: frame(array, 0, 7),
        "frame with masks": masked,
        "Arrow table": table,
        "pandas of Arrow": lambda array: table(array).to_pandas(types_mapper=pytest.importorskip("pandas").ArrowDtype),
        "polars": lambda array: pytest.importorskip("polars").from_arrow(table(array)),
        "CSR": lambda array: sparse(array, "csr"),
        "CSC": lambda array: sparse(array, "csc"),
    }


#: Inputs whose columns are contiguous.
BY_COLUMN = (
    *("frame of columns", "frame of two types", "frame with masks"),
    *("Arrow table", "pandas of Arrow", "polars", "CSC"),
)


@pytest.mark.parametrize("n_chunks", ["one chunk", "many chunks"])
@pytest.mark.parametrize("holder", overlapping())
def test_out_that_shares_memory_with_what_holds_documents(
    holder: str, n_chunks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if n_chunks == "many chunks":
        monkeypatch.setattr(chunks, "CHUNK_BYTES", 1)
        monkeypatch.setattr(chunks, "CHUNK_WORK", 1)
    rng, n = np.random.default_rng(2), 3000
    order = "F" if holder in BY_COLUMN else "C"
    memory = probing_documents(rng, MODEL.forest, n).astype(np.float64)
    memory = np.array(np.nan_to_num(memory), order=order)
    buffer = memory.copy(order="K")
    held = overlapping()[holder](buffer)
    expected = MODEL.predict(held, "raw")
    out = buffer.reshape(-1, order="A")[-n:]
    try:
        MODEL.predict(held, "raw", out=out)
    except InputError as error:
        assert "out shares memory with X" in str(error)
        np.testing.assert_array_equal(buffer, memory)  # nothing was written
    else:
        assert n_chunks == "one chunk"
        np.testing.assert_array_equal(out, expected)


def test_out_that_is_a_column_beside_the_features(monkeypatch: pytest.MonkeyPatch) -> None:
    pandas = pytest.importorskip("pandas")
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 1)
    model = Model(random_forest(np.random.default_rng(0), n_trees=20, schema=Schema(tuple("abcdefgh"))))
    columns = {name: np.random.default_rng(at).normal(size=300) for at, name in enumerate("abcdefghi")}
    out, expected = columns["i"], model.predict(np.stack([columns[name] for name in "abcdefgh"], axis=1))
    model.predict(pandas.DataFrame(columns, copy=False), out=out)
    np.testing.assert_array_equal(out, expected)


def test_a_margin_in_the_memory_of_out() -> None:
    """The margin is copied before anything is written."""
    X, memory = np.random.default_rng(1).normal(size=(3000, 8)), np.random.default_rng(2).normal(size=3001)
    expected = MODEL.predict(X, "raw", base_margin=memory[1:].copy())
    np.testing.assert_array_equal(MODEL.predict(X, "raw", base_margin=memory[1:], out=memory[:-1]), expected)
