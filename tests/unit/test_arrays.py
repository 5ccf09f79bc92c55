"""Documents of every kind: what is read, how it is cast, and what is refused."""

from __future__ import annotations

import datetime
import tracemalloc
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction
from itertools import chain, combinations
from typing import Any

import numpy as np
import pytest
from agreement import on_cpu
from forests import probing_documents, random_forest

from gpuqs.arrays import as_documents
from gpuqs.cpu_fallback import lists
from gpuqs.cpu_fallback.ctrs import text_hashes
from gpuqs.errors import InputError
from gpuqs.forest import Forest
from gpuqs.model import Model
from gpuqs.schema import RULES, Schema

NAMES = ("age", "price paid", "clicks")


def forest_of(**fields: object) -> Forest:
    return random_forest(np.random.default_rng(0), n_trees=30, n_features=3, n_thresholds=200, **fields)


FOREST = forest_of()
NAMED = forest_of(schema=Schema(NAMES))
UNDERSCORED = forest_of(schema=Schema(("age", "price_paid", "clicks"), library="LightGBM"))
MODEL, NAMED_MODEL = Model(FOREST), Model(NAMED)
ROWS = probing_documents(np.random.default_rng(1), FOREST, 150)
EXPECTED = MODEL.predict(ROWS, "raw", engine="reference")


def read(X: Any, forest: Forest = FOREST, step: int = 64) -> np.ndarray:
    """All documents, concatenated from chunks."""
    documents = as_documents(X, forest)
    chunks = [documents.chunk(at, min(at + step, documents.n)) for at in range(0, documents.n, step)]
    for chunk in chunks:
        assert chunk.dtype in (np.float32, np.float64) and chunk.flags.aligned
    return np.concatenate(chunks) if chunks else np.zeros((0, forest.n_features))


# -- arrays -----------------------------------------------------------------------------------


def unaligned(X: np.ndarray) -> np.ndarray:
    buffer = np.zeros(X.nbytes + 1, np.uint8)
    view = buffer[1:].view(X.dtype).reshape(X.shape)
    view[:] = X
    assert not view.flags.aligned
    return view


def read_only(X: np.ndarray) -> np.ndarray:
    X = X.copy()
    X.flags.writeable = False
    return X


VIEWS = {
    "C order": np.ascontiguousarray,
    "F order": np.asfortranarray,
    "every second row": lambda X: np.repeat(X, 2, axis=0)[::2],
    "every second column": lambda X: np.repeat(X, 2, axis=1)[:, ::2],
    "rows backwards": lambda X: X[::-1].copy()[::-1],
    "columns backwards": lambda X: X[:, ::-1].copy()[:, ::-1],
    "both backwards, F order": lambda X: np.asfortranarray(X[::-1, ::-1])[::-1, ::-1],
    "inside a larger array": lambda X: np.pad(X, ((3, 2), (1, 4)))[3:-2, 1:-4],
    "transposed": lambda X: X.T.copy().T,
    "unaligned": unaligned,
    "read-only": read_only,
    "big-endian": lambda X: X.astype(X.dtype.newbyteorder(">")),
    "matrix": lambda X: X.view(np.matrix),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("view", VIEWS)
def test_arrays_of_any_layout(isa: str, view: str, dtype: type) -> None:
    with np.errstate(over="ignore"):
        plain = ROWS.astype(dtype)
    X = VIEWS[view](plain)
    expected = MODEL.predict(plain, "leaf", engine="reference")
    for engine, reason in on_cpu(MODEL).items():
        if reason is None:
            np.testing.assert_array_equal(MODEL.predict(X, "leaf", engine=engine), expected, err_msg=engine)


def test_one_row_for_all() -> None:
    X = np.broadcast_to(ROWS[7], (70, 3))
    assert X.strides[0] == 0
    np.testing.assert_array_equal(MODEL.predict(X, "raw"), np.repeat(EXPECTED[7], 70))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_arrays_are_not_copied(dtype: type) -> None:
    for X in (ROWS.astype(np.float64), np.asfortranarray(ROWS), ROWS[::-2], np.zeros((9, 3), np.float32)):
        documents = as_documents(X, FOREST)
        assert np.shares_memory(documents.chunk(0, len(X)), X)


INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.bool_]


@pytest.mark.parametrize("integer_dtype", ["float32", "float64"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_are_cast_as_the_source_library_casts_them(dtype: type, integer_dtype: str) -> None:
    forest = forest_of(integer_dtype=integer_dtype)
    X = np.random.default_rng(0).integers(-(2**62), 2**62, (40, 3)).astype(dtype)
    got = read(X, forest)
    assert got.dtype == np.dtype(integer_dtype)
    np.testing.assert_array_equal(got, X.astype(integer_dtype))
    model = Model(forest)
    expected = model.predict(X.astype(integer_dtype), "raw", engine="reference")
    np.testing.assert_array_equal(model.predict(X, "raw"), expected)


@pytest.mark.parametrize("dtype", [np.int64, np.float16, np.bool_])
@pytest.mark.parametrize("order", "CF")
def test_of_wide_arrays_tested_columns_are_cast(dtype: type, order: str) -> None:
    tested = FOREST.tested
    wide = replace(FOREST, n_features=40, feature=FOREST.feature * 13)
    X = np.random.default_rng(0).integers(-3, 4, (200, 40)).astype(dtype, order)
    documents = as_documents(X, wide)
    assert documents.narrow and documents.chunk(0, 7).shape == (7, len(tested))
    for output in ("leaf", "raw", "per_tree"):
        expected = MODEL.predict(X[:, tested * 13].astype(np.float64), output, engine="reference")
        for stop in (1, 65, 200):
            np.testing.assert_array_equal(Model(wide).predict(X[:stop], output), expected[:stop])
    np.testing.assert_array_equal(
        Model(wide).predict(X, "leaf", trees=slice(3, 9)), MODEL.predict(X[:, tested * 13], "leaf")[:, 3:9]
    )
    assert not as_documents(X[:, :3], FOREST).narrow


def test_half_floats_are_read_exactly_and_long_doubles_as_integers() -> None:
    halves = np.array([[1.5, -0.0, 65504.0], [np.nan, np.inf, 6e-8]], np.float16)
    assert read(halves).dtype == np.float32
    np.testing.assert_array_equal(read(halves), halves.astype(np.float32))
    assert read(np.ones((2, 3), np.longdouble), forest_of(integer_dtype="float32")).dtype == np.float32


def test_lists() -> None:
    np.testing.assert_array_equal(MODEL.predict(ROWS.tolist(), "raw"), EXPECTED)
    np.testing.assert_array_equal(MODEL.predict(tuple(map(tuple, ROWS.tolist())), "raw"), EXPECTED)
    np.testing.assert_array_equal(MODEL.predict(list(ROWS), "raw"), EXPECTED)
    assert read([[1, 2, 3]], forest_of(integer_dtype="float32")).dtype == np.float32


@pytest.mark.parametrize("single", [False, True])
def test_lists_are_read_as_numpy_reads_them(single: bool) -> None:
    rng = np.random.default_rng(3)
    kinds = {
        "floats": [0.1, -0.0, np.inf, -np.inf, np.nan, 5e-324, 1e-42, 1e300, np.float64(3.0000001)],
        "whole": [0, -1, 16_777_217, 2**53, -(2**53), 9_007_199_254_740_991],
        "truths": [True, False],
        "missing": [None],
    }
    for n_kinds in range(1, 5):
        for several in combinations(kinds.values(), n_kinds):
            pool = np.array([*chain(*several)], object)
            rows = rng.choice(pool, (50, 7)).tolist()
            array = np.asarray(rows)
            with np.errstate(over="ignore"):
                wanted = array if array.dtype == np.float64 else array.astype(np.float32 if single else np.float64)
            for X in (rows, tuple(map(tuple, rows)), [tuple(row) for row in rows]):
                got = lists.rows_of(X, 7, single)
                assert got.dtype == wanted.dtype and got.flags.carray
                assert got.tobytes() == np.where(np.isnan(wanted), np.full_like(wanted, np.nan), wanted).tobytes()


class Real(float):
    pass


@pytest.mark.parametrize(
    "X",
    [
        *([], [[]], [[1.0]], [1.0, 2.0], [[1.0, 2.0], [1.0]], [[1.0, 2.0], 3.0], [[1.0, 2.0], [1.0, 2.0, 3.0]]),
        *([[1.0, 2**53 + 1]], [[1.0, -(2**200)]], [[1.0, "2"]], [[1.0, 2j]], [[1.0, Decimal(2)]], [[1.0, [2.0]]]),
        *([[1.0, np.float32(2)]], [[1.0, np.int64(2)]], [[1.0, np.True_]], [[1.0, Real(2)]]),
        *([np.ones(2)], [{1.0, 2.0}]),
    ],
)
def test_other_lists_are_numpys(X: list[Any]) -> None:
    assert lists.rows_of(X, 2, False) is lists.rows_of(X, 2, True) is None


TEXTS = ["", "a", "Düsseldorf", "x" * 100, "7", "\U0001f600"]
IS_CATEGORY = np.array([0, 1, 0, 1, 0], np.uint8)


@pytest.mark.parametrize("single", [False, True])
def test_lists_of_numbers_and_categories(single: bool) -> None:
    rng = np.random.default_rng(3)
    numbers = [0.1, np.inf, np.nan, 5e-324, 1e-42, 1e300, np.float64(3.0000001), 16_777_217, -(2**53), True, None]
    categories = [*TEXTS, 0, 7, -12, 2**63 - 1, -(2**63), 2**63, -(10**30)]
    rows = [
        [rng.choice(np.array(categories if of else numbers, object)) for of in IS_CATEGORY] for _ in range(300)
    ]
    want = np.empty((300, 5))
    with np.errstate(over="ignore"):
        for at, of in enumerate(IS_CATEGORY):
            column = [row[at] for row in rows]
            want[:, at] = (
                text_hashes([str(value) for value in column])
                if of
                else np.array(column, object).astype(np.float32 if single else np.float64)
            )
    for X in (rows, tuple(map(tuple, rows)), [tuple(row) for row in rows], rows[:1]):
        got = lists.rows_of_values(X, IS_CATEGORY, single)
        assert got.dtype == np.float64 and got.flags.f_contiguous
        np.testing.assert_array_equal(got, want[: len(X)])


GOOD = [1.0, "a", 2.0, "b", 3.0]


@pytest.mark.parametrize(
    "X",
    [
        *([], [[]], [[1.0]], GOOD, [GOOD, GOOD[:4]], [GOOD, 3.0], [np.ones(5)]),
        *([[1.0, other, *GOOD[2:]]] for other in (1.0, None, True, np.int64(1), np.str_("a"), b"a")),
        *([[1.0, other, *GOOD[2:]]] for other in ("\ud800", 10**5000)),
        *([[other, *GOOD[1:]]] for other in ("2", 2**53 + 1, np.float32(2), Decimal(2), [2.0])),
    ],
)
def test_lists_with_other_categories_are_read_elsewhere(X: Any) -> None:
    assert lists.rows_of_values(X, IS_CATEGORY, False) is None


def test_what_offers_an_array() -> None:
    class Offers:
        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
            return ROWS

    np.testing.assert_array_equal(MODEL.predict(Offers(), "raw"), EXPECTED)


class SparseLike:
    """Has all attributes of a SciPy matrix that gpuqs checks."""

    shape = (2, 3)

    def tocsr(self) -> SparseLike:
        return self


@pytest.mark.parametrize("integer_dtype", ["float32", "float64"])
def test_objects_are_numbers_or_missing(integer_dtype: str) -> None:
    """Like integers, they are cast once to the type that the library scores; None becomes NaN."""
    forest = forest_of(integer_dtype=integer_dtype)
    odd = [[None, np.float32(1.5), True], [Decimal("0.1"), Fraction(1, 3), 10**40], [2**70, np.int8(3), None]]
    rows = [*ROWS.tolist(), *odd]
    with np.errstate(over="ignore"):
        want = np.array([[np.nan if v is None else float(v) for v in row] for row in rows]).astype(integer_dtype)
    for X in (rows, tuple(map(tuple, rows)), np.array(rows, object), np.array(rows, object, order="F")):
        got = read(X, forest)
        assert got.dtype == integer_dtype
        np.testing.assert_array_equal(got, want)
    assert read(np.zeros((0, 3), object), forest).shape == (0, 3)


def test_a_list_of_one_features_values_is_told_how_to_become_documents() -> None:
    forest = random_forest(np.random.default_rng(0), n_features=1)
    with pytest.raises(InputError, match=r"pass X.reshape\(-1, 1\) to score its values"):
        read(np.zeros(3), forest)


@pytest.mark.parametrize(
    ("X", "problem"),
    [
        (np.zeros((4, 2)), "X has 2 features; the model was trained on 3"),
        (np.zeros((4, 4), np.float32), "X has 4 features"),
        (np.zeros((0, 4)), "X has 4 features"),
        (np.zeros((3, 0)), "X has 0 features"),
        ([[]], "X has 0 features"),
        ([], r"not 1-dimensional; pass X of shape \(0, 3\) to score no documents"),
        (np.zeros(3), r"not 1-dimensional; pass X.reshape\(1, -1\) to score one document"),
        ([1.0, 2.0, 3.0], r"not 1-dimensional; pass \[X\] to score one document"),
        (np.zeros((2, 3, 1)), r"must be 2-dimensional \[documents, 3\], not 3-dimensional"),
        (1.0, "not 0-dimensional"),
        (None, "X is None, not documents"),
        ("1,2,3", "X is a str, not documents; read the file first"),
        ({"a": [1]}, r"X is a dict, not documents; pass pandas.DataFrame\(\[X\]\) for one document"),
        ([[1, None, "2"]], "X holds a str in document 0, feature number 2: '2'; documents hold numbers, and None"),
        ([[1, 2, 10**400]], "X holds a number in document 0, feature number 2 that fits no float"),
        (np.array([[1, 2, np.timedelta64(1, "s")]], object), "X holds a timedelta64 in document 0, feature number 2"),
        ([[1, 2, Decimal("sNaN")]], "X holds a number in document 0, feature number 2 that fits no float"),
        (np.array([[1, 2, datetime.date(2020, 1, 1)]], object), "X holds a date"),
        (np.zeros((2, 3), complex), "dtype complex128"),
        ([["1", "2", "3"]], "dtype <U1"),
        (np.zeros((2, 3), "S4"), r"dtype \|S4"),
        (np.zeros((2, 3), "M8[s]"), "dtype datetime64"),
        (np.zeros((2, 3), "m8[s]"), "dtype timedelta64"),
        (np.zeros((2, 3), "V8"), r"dtype \|V8"),
        (np.zeros(2, [("a", "f8"), ("b", "f8"), ("c", "f8")]), "structured array; pass pandas"),
        ([[1, 2, 3], [1, 2]], "cannot be read as an array of numbers"),
        ([[1, 2, 3], None], r"item 1 is one value \(NoneType\), item 0 a row"),
        ([2.0, [1, 2, 3]], r"item 0 is one value \(float\), item 1 a row"),
        (SparseLike(), r"not a matrix of scipy.sparse; pass scipy.sparse.csr_matrix\(X\)"),
        (np.ma.masked_array(np.zeros((2, 3)), mask=True), r"masked array; pass X.filled"),
    ],
)
@pytest.mark.parametrize("output", ["raw", "leaf"])
def test_what_is_refused(X: Any, problem: str, output: str) -> None:
    with pytest.raises(InputError, match=problem):
        MODEL.predict(X, output)


@pytest.mark.parametrize("X", [np.zeros((0, 3)), np.zeros((0, 3), np.float32), np.zeros((0, 3), int)])
def test_no_documents_no_answers(X: np.ndarray) -> None:
    several = Model(forest_of(n_outputs=2))
    assert MODEL.predict(X).shape == MODEL.predict(X, "raw").shape == (0,)
    assert MODEL.predict(X, "leaf").shape == (0, 30)
    assert several.predict(X).shape == (0, 2)
    for engine, reason in on_cpu(MODEL).items():
        if reason is None:
            assert MODEL.predict(X, engine=engine).shape == (0,)


# -- frames and tables ------------------------------------------------------------------------


@pytest.fixture
def pd() -> Any:
    return pytest.importorskip("pandas")


@pytest.fixture
def pa() -> Any:
    return pytest.importorskip("pyarrow")


ORDERS = {
    "as trained": ("age", "price paid", "clicks"),
    "reordered": ("clicks", "age", "price paid"),
    "more columns": ("label", "clicks", "qid", "price paid", "age"),
}


def named_columns(order: tuple[str, ...]) -> dict[str, np.ndarray]:
    columns = dict(zip(NAMES, ROWS.T, strict=True))
    return {name: columns.get(name, np.full(len(ROWS), 77.0)) for name in order}


@pytest.mark.parametrize("order", ORDERS)
def test_frames_and_tables_go_by_name(pd: Any, pa: Any, order: str) -> None:
    columns = named_columns(ORDERS[order])
    frame = pd.DataFrame(columns)
    np.testing.assert_array_equal(NAMED_MODEL.predict(frame, "raw"), EXPECTED)
    np.testing.assert_array_equal(NAMED_MODEL.predict(frame[::-1], "raw"), EXPECTED[::-1])
    for table in (pa.table(columns), pa.record_batch(columns)):
        np.testing.assert_array_equal(NAMED_MODEL.predict(table, "raw"), EXPECTED)
        np.testing.assert_array_equal(NAMED_MODEL.predict(table.slice(5, 20), "raw"), EXPECTED[5:25])
        assert NAMED_MODEL.predict(table.slice(0, 0), "raw").shape == (0,)
    assert NAMED_MODEL.predict(frame[:0], "raw").shape == (0,)


def test_tables_of_several_chunks(pa: Any) -> None:
    columns = named_columns(NAMES)
    pieces = [pa.table({k: v[at : at + 7] for k, v in columns.items()}) for at in range(0, len(ROWS), 7)]
    table = pa.concat_tables(pieces)
    assert table.column(0).num_chunks == len(pieces)
    np.testing.assert_array_equal(NAMED_MODEL.predict(table, "raw"), EXPECTED)
    np.testing.assert_array_equal(read(table, NAMED, step=10), ROWS)


def test_blanks_that_lightgbm_stores_as_underscores(pd: Any) -> None:
    model = Model(UNDERSCORED)
    frame = pd.DataFrame(named_columns(ORDERS["reordered"]))
    np.testing.assert_array_equal(model.predict(frame, "raw"), EXPECTED)


def test_missing_columns_are_named(pd: Any, pa: Any) -> None:
    columns = named_columns(("age", "clicks", "label"))
    for X in (pd.DataFrame(columns), pa.table(columns)):
        with pytest.raises(InputError, match="X lacks 1 of the model's 3 features: 'price paid'"):
            NAMED_MODEL.predict(X)


@pytest.mark.parametrize("names", [(), ("Column_0", "Column_1", "Column_2")])
def test_models_without_real_names_go_by_position(pd: Any, names: tuple[str, ...]) -> None:
    model = Model(forest_of(schema=Schema(tuple(names), library="LightGBM")))
    frame = pd.DataFrame(named_columns(NAMES))
    np.testing.assert_array_equal(model.predict(frame, "raw"), EXPECTED)
    with pytest.raises(InputError, match="X has 2 columns; the model was trained on 3 features"):
        model.predict(frame.iloc[:, :2])


@pytest.mark.parametrize("library", RULES)
@pytest.mark.parametrize("names", ["Column_2 Column_1 Column_0", "Column_1 Column_2 Column_3", "f0 f1 f2"])
def test_names_that_a_user_gave_are_real_however_they_look(pd: Any, library: str, names: str) -> None:
    given = names.split()
    model = Model(forest_of(schema=Schema(tuple(given), library=library)))
    frame = pd.DataFrame(dict(zip(given, ROWS.T, strict=True)))
    np.testing.assert_array_equal(model.predict(frame.iloc[:, ::-1], "raw"), EXPECTED)
    for lacks in (frame.rename(columns={given[1]: "age"}), frame.set_axis(["a", "b", "c"], axis=1)):
        with pytest.raises(InputError, match=f"X lacks .* of the model's 3 features: .*'{given[1]}'"):
            model.predict(lacks)


def test_some_names_of_those_that_lightgbm_makes_up_are_not_taken_by_position(pd: Any) -> None:
    model = Model(forest_of(schema=Schema(("Column_0", "Column_1", "Column_2"), library="LightGBM")))
    frame = pd.DataFrame(ROWS[:, ::-1], columns=["Column_2", "age", "Column_0"])
    with pytest.raises(InputError, match="X lacks 1 of the model's 3 features: 'Column_1'"):
        model.predict(frame)


def test_a_column_and_another_that_lightgbm_calls_alike_are_refused(pd: Any) -> None:
    frame = pd.DataFrame(named_columns(("age", "price paid", "clicks"))).assign(price_paid=0.0)
    with pytest.raises(
        InputError, match=r"several columns called 'price_paid' \(LightGBM replaces blanks by underscores\)"
    ):
        Model(UNDERSCORED).predict(frame)
    of_xgboost = Model(replace(UNDERSCORED, schema=replace(UNDERSCORED.schema, library="XGBoost")))
    taken = ROWS.copy()
    taken[:, 1] = 0
    np.testing.assert_array_equal(of_xgboost.predict(frame, "raw"), of_xgboost.predict(taken, "raw"))
    with pytest.raises(InputError, match="X lacks 1 of the model's 3 features: 'price_paid'"):
        of_xgboost.predict(frame.drop(columns="price_paid"))


def test_frames_without_names_go_by_position(pd: Any) -> None:
    np.testing.assert_array_equal(NAMED_MODEL.predict(pd.DataFrame(ROWS), "raw"), EXPECTED)
    np.testing.assert_array_equal(NAMED_MODEL.predict(ROWS, "raw"), EXPECTED)


def test_frames_of_mixed_and_nullable_types(pd: Any) -> None:
    frame = pd.DataFrame(
        {
            "age": pd.array([1, None, 3], "Int64"),
            "price paid": pd.array([1.5, 2.5, None], "Float64"),
            "clicks": pd.array([True, None, False], "boolean"),
        }
    )
    plain = np.array([[1, 1.5, 1], [np.nan, 2.5, np.nan], [3, np.nan, 0]])
    np.testing.assert_array_equal(read(frame, NAMED, step=2), plain)
    mixed = pd.DataFrame({"age": np.array([1, 2], np.int8), "price paid": [0.1, 0.2], "clicks": [True, False]})
    np.testing.assert_array_equal(read(mixed, NAMED), [[1, 0.1, 1], [2, 0.2, 0]])
    small = pd.DataFrame({"age": np.float32([1]), "price paid": np.float32([0.1]), "clicks": np.float32([2])})
    assert read(small, NAMED).dtype == np.float32


def test_frames_of_arrow_columns(pd: Any, pa: Any) -> None:
    frame = pd.DataFrame(
        {
            "age": pd.array([1, None], "int64[pyarrow]"),
            "price paid": pd.array([None, 1.5], "double[pyarrow]"),
            "clicks": pd.array([1.25, 2.5], "float[pyarrow]"),
        }
    )
    np.testing.assert_array_equal(read(frame, NAMED), [[1, np.nan, 1.25], [np.nan, 1.5, 2.5]])


@pytest.mark.parametrize("kind", ["category", "text", "time", "complex", "object"])
def test_frame_columns_that_hold_no_numbers_are_named(pd: Any, kind: str) -> None:
    column = {
        "category": pd.Categorical(["x", "y"]),
        "text": ["1", "2"],
        "time": pd.to_datetime(["2020", "2021"]),
        "complex": [1j, 2j],
        "object": pd.Series(["x", 1], dtype=object),
    }[kind]
    frame = pd.DataFrame({"age": [1.0, 2.0], "price paid": [1.0, 2.0], "clicks": column})
    with pytest.raises(InputError, match="column 'clicks' has dtype"):
        NAMED_MODEL.predict(frame)


def test_table_columns_of_every_kind_of_number(pa: Any) -> None:
    table = pa.table(
        {
            "age": pa.array([1, None, 3], pa.int16()),
            "price paid": pa.array([True, False, None]),
            "clicks": pa.array([None, 1.5, 2.5], pa.float32()),
        }
    )
    expected = [[1, 1, np.nan], [np.nan, 0, 1.5], [3, np.nan, 2.5]]
    np.testing.assert_array_equal(read(table, NAMED), expected)
    halves = pa.array(np.array([1.5, 2.5], np.float16))
    others = pa.table({"age": halves, "price paid": pa.nulls(2), "clicks": pa.array([2**63, 1], pa.uint64())})
    np.testing.assert_array_equal(read(others, NAMED), [[1.5, np.nan, 2.0**63], [2.5, np.nan, 1]])


@pytest.mark.parametrize("kind", ["text", "numbers as text", "time", "date", "dictionary", "list"])
def test_table_columns_that_hold_no_numbers_are_named(pa: Any, kind: str) -> None:
    column = {
        "text": pa.array(["x", "y"]),
        "numbers as text": pa.array(["1", "2"]),
        "time": pa.array([datetime.datetime(2020, 1, 1)] * 2),
        "date": pa.array([datetime.date(2020, 1, 1)] * 2),
        "dictionary": pa.array(["x", "y"]).dictionary_encode(),
        "list": pa.array([[1.0], [2.0]]),
    }[kind]
    table = pa.table({"age": [1.0, 2.0], "price paid": [1.0, 2.0], "clicks": column})
    with pytest.raises(InputError, match=r"column 'clicks' has type .*, not a number"):
        NAMED_MODEL.predict(table)
    with pytest.raises(InputError, match="column 'clicks' has type"):
        NAMED_MODEL.predict(table.slice(0, 0))


# -- memory -----------------------------------------------------------------------------------


def memory_of(model: Model, X: Any) -> int:
    """Peak memory that NumPy holds while X is scored, beyond what it held before."""
    model.predict(X[:2] if not hasattr(X, "slice") else X.slice(0, 2))
    out = np.empty(X.shape[0])
    tracemalloc.start()
    try:
        model.predict(X, out=out, engine="rankwalk")
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def wide() -> tuple[Model, np.ndarray]:
    """A model and documents of 60 MB as float64; one chunk holds 16 MiB."""
    forest = random_forest(np.random.default_rng(0), n_trees=2, max_leaves=3, n_features=250)
    return Model(forest), np.zeros((30_000, 250))


@pytest.mark.parametrize("kind", ["float64", "float32", "F order", "strided"])
def test_floats_are_scored_where_they_are(wide: tuple[Model, np.ndarray], kind: str) -> None:
    model, X = wide
    X = {
        "float64": lambda: X,
        "float32": lambda: X.astype(np.float32),
        "F order": lambda: np.asfortranarray(X),
        "strided": lambda: X[::-2],
    }[kind]()
    assert memory_of(model, X) < 1 << 20


@pytest.mark.parametrize("kind", ["int32", "float16", "unaligned", "frame", "table"])
def test_what_must_be_converted_is_converted_chunk_by_chunk(wide: tuple[Model, np.ndarray], kind: str) -> None:
    model, X = wide
    if kind == "frame":
        X = pytest.importorskip("pandas").DataFrame(X)
    elif kind == "table":
        X = pytest.importorskip("pyarrow").table({f"c{i}": X[:, i] for i in range(X.shape[1])})
    else:
        X = unaligned(X) if kind == "unaligned" else X.astype(kind)
    assert memory_of(model, X) < 3 * (16 << 20), "a chunk, and what its conversion needs for a moment"
