"""Features that old releases of other libraries lack: a fallback, or one error that names the required release."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forests import probing_documents, random_forest

import gpuqs
from gpuqs.arrays import arrow_tables, sparse
from gpuqs.errors import InputError, UnsupportedModelError
from gpuqs.readers import open_documents
from gpuqs.schema import Schema

NAMES = ("age", "price", "clicks")
FOREST = random_forest(np.random.default_rng(0), n_trees=30, n_features=3, n_thresholds=200, schema=Schema(NAMES))
MODEL = gpuqs.Model(FOREST)
ROWS = probing_documents(np.random.default_rng(1), FOREST, 40)
EXPECTED = MODEL.predict(ROWS, "raw", engine="reference")
SHUFFLED = {name: ROWS[:, NAMES.index(name)] for name in ("clicks", "age", "price")}


class Frame:
    """A table that only converts to an array, without column names."""

    def __init__(self, columns: dict[str, np.ndarray]) -> None:
        self._columns = columns

    @property
    def columns(self) -> list[str]:
        return list(self._columns)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.stack(list(self._columns.values()), axis=1)


class OldPolars(Frame):
    """A frame of polars before 1.3."""

    def to_arrow(self) -> Any:
        return import_module("pyarrow").table(self._columns)


class OldBatch:
    """A batch of records of pyarrow before 13."""

    def __init__(self, batch: Any) -> None:
        self.schema, self.columns, self.num_columns, self.slice = batch.schema, batch.columns, len(batch.columns), None

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.stack([np.asarray(column) for column in self.columns])


def test_frames_of_polars_before_1_3_go_by_name() -> None:
    pytest.importorskip("pyarrow")
    np.testing.assert_array_equal(MODEL.predict(OldPolars(SHUFFLED), "raw"), EXPECTED)
    with pytest.raises(InputError, match="price"):
        MODEL.predict(OldPolars({"clicks": ROWS[:, 0], "age": ROWS[:, 1], "cost": ROWS[:, 2]}))


def test_batches_of_pyarrow_before_13_go_by_name() -> None:
    pyarrow = pytest.importorskip("pyarrow")
    batch = pyarrow.RecordBatch.from_arrays([pyarrow.array(x) for x in SHUFFLED.values()], names=list(SHUFFLED))
    for given in (OldBatch(batch), OldBatch(batch.slice(0, 3))):  # a transposed 3 x 3 batch looks the same
        np.testing.assert_array_equal(MODEL.predict(given, "raw"), EXPECTED[: len(given.columns[0])])


def test_tables_that_nobody_knows_are_refused() -> None:
    with pytest.raises(InputError, match=r"X is a Frame, a table of a kind that gpuqs does not read; pass it as"):
        MODEL.predict(Frame(SHUFFLED))


def test_arrays_that_say_something_of_columns_are_arrays() -> None:
    class Array(np.ndarray):
        columns = NAMES

    class Method:
        def columns(self) -> tuple[str, ...]:
            return NAMES

        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
            return ROWS

    class Failing(Method):
        @property
        def columns(self) -> tuple[str, ...]:  # type: ignore[override]
            raise RuntimeError("not now")

    for given in (ROWS.view(Array), Method(), Failing()):
        np.testing.assert_array_equal(MODEL.predict(given, "raw"), EXPECTED)


def test_arrays_that_export_a_line_for_each_value_are_arrays() -> None:
    class Labelled:
        """Like xarray's: its Arrow table has a column for each dimension, and one for the values."""

        dims = ("row", "feature")

        def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
            return ROWS

        def __arrow_c_stream__(self, schema: Any = None) -> Any:
            raise AssertionError("exported")

    np.testing.assert_array_equal(MODEL.predict(Labelled(), "raw"), EXPECTED)


def test_lists_of_masked_arrays_are_refused() -> None:
    with pytest.raises(InputError, match="X is a list of masked arrays"):
        MODEL.predict([np.ma.array([1.0, 2.0, 3.0], mask=[False, True, False])])


def test_texts_of_polars_are_read_by_pyarrow_before_16(monkeypatch: pytest.MonkeyPatch) -> None:
    polars = pytest.importorskip("polars")
    pytest.importorskip("pyarrow")
    schema = Schema(NAMES, (None, None, ("a", "b")))
    options: dict[str, Any] = {"n_trees": 5, "n_features": 3, "categorical": 0.3, "schema": schema}
    model, other = (gpuqs.Model(random_forest(np.random.default_rng(2), **options)) for _ in range(2))
    frame = polars.DataFrame({"age": [0.5, 1.0], "price": [0.1, 2.0], "clicks": ["b", "a"]})
    expected = model.predict(frame, "raw")
    monkeypatch.setattr(arrow_tables, "_knows_views", lambda pyarrow: False)
    np.testing.assert_array_equal(other.predict(frame, "raw"), expected)


def test_types_of_pyarrow_before_26_without_pandas() -> None:
    """pyarrow would have to import pandas to convert a type to NumPy's."""
    pyarrow = pytest.importorskip("pyarrow")
    names = ("bool_", "float16", "float32", "float64", *(f"{u}int{n}" for u in ("", "u") for n in (8, 16, 32, 64)))
    for of_arrow in (getattr(pyarrow, name)() for name in names):

        class Old:
            __str__ = of_arrow.__str__

            def to_pandas_dtype(self) -> type:
                raise ModuleNotFoundError("No module named 'pandas'")

        assert arrow_tables._numpy_type(Old()) == np.dtype(of_arrow.to_pandas_dtype())
    for other in (pyarrow.decimal128(5), pyarrow.null(), pyarrow.dictionary(pyarrow.int8(), pyarrow.string())):
        assert arrow_tables._numpy_type(other) == np.float64


def test_coo_matrices_of_scipy_before_1_13() -> None:
    scipy = pytest.importorskip("scipy.sparse")
    matrix = scipy.coo_matrix(np.nan_to_num(ROWS))

    class Old:
        format, shape, data, row, col = "coo", matrix.shape, matrix.data, matrix.row, matrix.col
        tocsr = staticmethod(matrix.tocsr)

    assert (sparse._compressed(Old()) != matrix).nnz == 0
    Old.col = np.full_like(matrix.col, 3)
    with pytest.raises(InputError, match="coordinates lie outside its shape"):
        sparse._compressed(Old())


def test_lists_whose_rows_differ_in_length(monkeypatch: pytest.MonkeyPatch) -> None:
    ragged = [[1.0, 2.0, 3.0], [1.0, 2.0]]
    refused = "X, a list, cannot be read as an array of numbers: rows 0 and 1 differ in length: 3 and 2"
    with pytest.raises(InputError, match=refused):
        MODEL.predict(ragged)
    of_objects = np.empty(2, object)  # as NumPy before 1.24 has it
    of_objects[:] = ragged
    monkeypatch.setattr(np, "asarray", lambda X, dtype=None: of_objects)
    with pytest.raises(InputError, match=refused):
        MODEL.predict(ragged)


class Refusing:
    """Has no length and cannot be converted to an array."""

    ndim = 2

    def __len__(self) -> int:
        raise TypeError("no length")

    def __array__(self, *args: object, **options: object) -> np.ndarray:
        raise ValueError("no array")


def test_rows_that_tell_no_length_are_refused() -> None:
    scipy = pytest.importorskip("scipy.sparse")
    for rows in ([Refusing()], [[1.0, 2.0, 3.0], Refusing()], [scipy.csr_matrix((1, 3))]):
        with pytest.raises(InputError):
            MODEL.predict(rows)


def test_files_need_a_pyarrow_that_reads_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    path = tmp_path / "rows.csv"
    path.write_text("age,price,clicks\n1,2,3\n")
    monkeypatch.setattr(pyarrow, "__version__", "10.0.1")
    with pytest.raises(InputError, match=r"need pyarrow 14 or later, not 10\.0\.1"):
        open_documents(path, FOREST)


@pytest.mark.parametrize("kind", ["Booster", "XGBRegressor"])
def test_live_models_of_xgboost_before_1_6(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    xgboost = pytest.importorskip("xgboost")
    matrix, target = np.random.default_rng(3).normal(size=(40, 3)), np.arange(40)
    if kind == "Booster":
        model = xgboost.train({}, xgboost.DMatrix(matrix, target), 2)
    else:
        model = xgboost.XGBRegressor(n_estimators=2).fit(matrix, target)
    monkeypatch.setattr(sys.modules["xgboost"].Booster, "save_raw", lambda self: b"")
    with pytest.raises(UnsupportedModelError, match=rf"xgboost\.{kind}: XGBoost before 1\.6 cannot return the JSON"):
        gpuqs.from_model(model)


def test_live_models_of_lightgbm_before_2_2(monkeypatch: pytest.MonkeyPatch) -> None:
    lightgbm = pytest.importorskip("lightgbm")
    booster = lightgbm.train({"verbose": -1}, lightgbm.Dataset(np.zeros((40, 3)), np.arange(40)), 2)
    monkeypatch.delattr(lightgbm.Booster, "model_to_string")
    with pytest.raises(UnsupportedModelError, match=r"LightGBM before 2\.2 cannot return the text of a live model"):
        gpuqs.from_model(booster)


def test_categories_of_scikit_learn_before_1_4() -> None:
    ensemble = pytest.importorskip("sklearn.ensemble")
    matrix, target = np.random.default_rng(3).integers(0, 4, (60, 3)), np.arange(60)
    model = ensemble.HistGradientBoostingRegressor(categorical_features=[0], max_iter=2).fit(matrix, target)
    del model._preprocessor
    said = "categorical features are read only from scikit-learn 1.4 on"
    with pytest.raises(UnsupportedModelError, match=said):
        gpuqs.from_model(model)
    for page in ("docs/exactness.md", "docs/sklearn.md"):
        text = " ".join((Path(__file__).parents[2] / page).read_text(encoding="utf-8").split())
        assert re.search(r"`HistGradientBoosting\*` with categorical features [a-z ]*from scikit-learn 1\.4 on", text)
