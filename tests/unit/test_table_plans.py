"""Cached plans for tables give the same answers and errors as a forest that has not seen any table."""

from __future__ import annotations

import copy
import dataclasses
import enum
import gc
import os
import pickle
import threading
import warnings
import weakref
from collections.abc import Callable
from itertools import pairwise, permutations
from typing import Any

import numpy as np
import pytest
from forests import probing_documents, random_forest

from gpuqs import from_model
from gpuqs.arrays import as_documents
from gpuqs.errors import InputError
from gpuqs.forest import Forest
from gpuqs.kept import Kept
from gpuqs.model import Model
from gpuqs.schema import Schema

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
pl = pytest.importorskip("polars")

NAMES = ("a", "b", "c")
N = 7
LEVELS = ("x", "y", "z", "w")


def forest_of(**fields: Any) -> Forest:
    return random_forest(np.random.default_rng(0), n_trees=30, n_features=3, n_thresholds=200, **fields)


def forests() -> dict[str, Forest]:
    known = (None, None, LEVELS)
    return {
        "float64": forest_of(schema=Schema(NAMES)),
        "float32": forest_of(schema=Schema(NAMES), input_dtype="float32"),
        "no names": forest_of(),
        "placed": forest_of(schema=Schema(NAMES, known, library="LightGBM")),
        "in order": forest_of(schema=Schema(NAMES, in_order=(LEVELS,), library="LightGBM")),
        "XGBoost": forest_of(schema=Schema(NAMES, known, library="XGBoost"), input_dtype="float32"),
        "CatBoost": forest_of(schema=Schema(NAMES, known, library="CatBoost"), input_dtype="float32"),
        "scikit-learn": forest_of(schema=Schema(NAMES, library="scikit-learn"), input_dtype="float32"),
    }


def outcome(X: Any, forest: Forest, step: int = 4) -> tuple[Any, ...]:
    """The documents' type and bits, or the error."""
    try:
        documents = as_documents(X, forest)
        chunks = [documents.chunk(at, min(at + step, documents.n)) for at in range(0, documents.n, step)]
    except InputError as error:
        return type(error), str(error)
    rows = np.concatenate(chunks) if chunks else np.zeros(0)
    tested = forest.tested if documents.narrow else np.arange(forest.n_features)
    return rows.dtype, len(rows), tested.tobytes(), np.ascontiguousarray(rows).tobytes()


def fresh(forest: Forest) -> Forest:
    return dataclasses.replace(forest)


def as_ever(forest: Forest, *tables: Any) -> None:
    """One forest gives, for tables in alternation, the outcomes of fresh forests that see one table each."""
    expected = [outcome(X, fresh(forest)) for X in tables]
    for _ in range(2):
        for X, one in zip(tables, expected, strict=True):
            assert outcome(X, forest) == one


# -- tables that differ a little ----------------------------------------------------------------

RNG = np.random.default_rng(1)
WHOLE = RNG.integers(-(2**62), 2**62, N)
COLUMNS: dict[str, Callable[[], dict[str, Any]]] = {
    "doubles": lambda: {name: RNG.normal(size=N) for name in "abc"},
    "another order": lambda: {name: RNG.normal(size=N) for name in "cab"},
    "floats": lambda: {name: RNG.normal(size=N).astype("f4") for name in "abc"},
    "doubles and floats": lambda: {"a": RNG.normal(size=N), "b": np.ones(N, "f4"), "c": RNG.normal(size=N)},
    "floats and doubles": lambda: {"a": np.ones(N, "f4"), "b": RNG.normal(size=N), "c": RNG.normal(size=N)},
    "whole numbers": lambda: {"a": WHOLE, "b": WHOLE, "c": RNG.normal(size=N)},
    "unsigned": lambda: {"a": WHOLE.astype("u8"), "b": WHOLE.astype("u1"), "c": RNG.normal(size=N)},
    "truth": lambda: {"a": WHOLE > 0, "b": RNG.normal(size=N), "c": WHOLE % 3 == 0},
    "more columns": lambda: {"q": np.ones(N), "c": RNG.normal(size=N), "a": np.ones(N), "b": RNG.normal(size=N)},
    "a text besides": lambda: {"q": ["t"] * N, "a": RNG.normal(size=N), "b": np.ones(N), "c": RNG.normal(size=N)},
    "other names": lambda: {name: RNG.normal(size=N) for name in "abd"},
    "too few": lambda: {name: RNG.normal(size=N) for name in "ab"},
    "texts": lambda: {"a": RNG.normal(size=N), "b": RNG.normal(size=N), "c": [*LEVELS, "x", "y", "z"]},
    "times": lambda: {"a": RNG.normal(size=N), "b": RNG.normal(size=N), "c": np.arange(N).astype("M8[ms]")},
    "no rows": lambda: {name: np.zeros(0) for name in "abc"},
}
MADE = {name: make() for name, make in COLUMNS.items()}


def pandas_frames() -> list[Any]:
    numbers = [pd.DataFrame(columns) for columns in MADE.values()]
    doubles = pd.DataFrame(MADE["doubles"])
    with_levels = [
        doubles.assign(c=pd.Categorical.from_codes([0, 1, 2, 1, -1, 0, 2], levels, ordered=ordered))
        for levels in (["x", "y", "z"], ["z", "y", "x"], ["x", "y", "w"], ["new", "y", "x"], [1, 2, 3], [1.5, 2.0, 3.0])
        for ordered in (False, True)
    ]
    others = [
        doubles.astype(object),
        doubles.assign(c=pd.Series(["x", "y", "z", "x", None, "y", "w"], dtype=object)),
        doubles.assign(a=pd.array([1, None, 3, 4, 5, 6, 7], "Int64")),
        doubles.assign(a=pd.array([1, None, 3, 4, 5, 6, 7], "int64[pyarrow]")),
        doubles.assign(c=pd.array(["x", "y", None, "z", "w", "x", "x"], "string")),
        doubles.astype(pd.SparseDtype("float64", 0.0)),
        doubles.astype(pd.SparseDtype("float64", 1.0)),
        doubles.set_axis([0, 1, 2], axis=1),
        doubles.set_axis([0, 1, 3], axis=1),
        doubles.set_axis([False, True, 2], axis=1),
        doubles.set_axis([0.0, 1.0, 2.0], axis=1),
        doubles.set_axis(["a", "b", "b"], axis=1),
        doubles.set_axis(pd.MultiIndex.from_tuples([("a", "b"), ("b", "c"), ("c", "d")]), axis=1),
        doubles[::-1],
        doubles[1:4],
        pd.DataFrame(np.asfortranarray(doubles.to_numpy()), columns=[*"abc"]),
    ]
    return [*numbers, *with_levels, *others]


def arrow_tables() -> list[Any]:
    tables = [pa.table(columns) for columns in MADE.values()]
    plain = pa.table(MADE["doubles"])

    def with_c(column: Any) -> Any:
        return plain.set_column(2, "c", column)

    def dictionary(values: list[Any], ordered: bool = False, index: Any = None) -> Any:
        indices = pa.array([0, 1, 2, 1, None, 0, 2], index or pa.int8())
        return pa.DictionaryArray.from_arrays(indices, pa.array(values), ordered=ordered)

    nulls = [pa.array([None, 1.5, 2.5, None, 0.0, 1.0, 2.0], kind) for kind in (pa.float64(), pa.float32())]
    columns = [
        *nulls,
        pa.array([None, 2**53 + 1, 3, 4, 5, 6, 7], pa.int64()),
        pa.array([None, 2**64 - 1, 3, 4, 5, 6, 7], pa.uint64()),
        pa.array([1] * N, pa.int8()),
        pa.array([None, True, False, True, True, None, False]),
        pa.nulls(N),
        pa.array(np.arange(N).astype("f2")),
        pa.array([None, *range(N - 1)], pa.decimal128(9, 2)),
        pa.array(["x", "y", None, "w", "new", "x", "z"]),
        pa.array([[1.0]] * N),
        *(dictionary(levels) for levels in (["x", "y", "z"], ["z", "y", "x"], ["x", "y", "new"], [1, 2, 3])),
        dictionary(["x", "y", "z"], ordered=True),
        dictionary(["x", "y", "z"], index=pa.int32()),
        pa.chunked_array([nulls[0][:3], nulls[0][3:]]),
        pa.chunked_array([dictionary(["x", "y", "z"])[:3], dictionary(["z", "y", "x"])[3:]]),
    ]
    if hasattr(pa, "bool8"):  # an extension type, which pyarrow does not treat as numbers
        columns.append(pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1] * N, pa.int8())))
    tables += map(with_c, columns)
    tables += [with_c(nulls[0]).slice(1, 5), with_c(pa.array([None, True] * 6)[3:10])]
    tables += [plain.slice(2), plain.slice(0, 0)]
    tables += [plain.replace_schema_metadata({"a": "b"}), pa.concat_tables([plain, plain.slice(1, 3)])]
    field = plain.schema.field(2)
    tables.append(plain.cast(plain.schema.set(2, field.with_metadata({"PARQUET:field_id": "3"}))))
    return [*tables, *(table.to_batches()[0] for table in tables if len(table.to_batches()) == 1)]


def polars_frames() -> list[Any]:
    frames = [pl.DataFrame(columns) for columns in MADE.values()]
    plain = pl.DataFrame(MADE["doubles"])
    values = ["x", "y", None, "z", "w", "x", "x"]
    columns = [
        pl.Series([None, 1.5, 2.5, None, 0.0, 1.0, 2.0]),
        pl.Series([None, 1.5, 2.5, None, 0.0, 1.0, 2.0], dtype=pl.Float32),
        pl.Series([None, 2**53 + 1, 3, 4, 5, 6, 7]),
        pl.Series([None, True, False, True, True, None, False]),
        pl.Series([None] * N),
        pl.Series(values),
        pl.Series(values, dtype=pl.Categorical),
        pl.Series(values, dtype=pl.Enum([*"wxyz"])),
        pl.Series(values, dtype=pl.Enum([*"zyxw"])),
        pl.Series([[1.0]] * N),
        pl.Series([1] * N, dtype=pl.Int128),
    ]
    frames += [plain.with_columns(column.alias("c")) for column in columns]
    return [*frames, *(frame[2:6] for frame in frames), pl.concat([plain, plain], rechunk=False), plain.clear()]


TABLES = {"pandas": pandas_frames, "pyarrow": arrow_tables, "polars": polars_frames}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("library", TABLES)
@pytest.mark.parametrize("kind", forests())
def test_tables_by_turns(kind: str, library: str) -> None:
    forest, tables = forests()[kind], TABLES[library]()
    order = np.random.default_rng(2)
    expected = [outcome(X, fresh(forest)) for X in tables]
    assert len(set(expected)) > 6
    for at in range(len(tables)):  # for each table, call every other one between two of its calls
        for other in range(len(tables)):
            for one in (at, other):
                assert outcome(tables[one], forest) == expected[one], (at, other)
    for at in order.integers(0, len(tables), 300):
        assert outcome(tables[at], forest) == expected[at]


# -- what changes between two calls -------------------------------------------------------------


def test_the_same_names_in_another_order() -> None:
    forest = forests()["float64"]
    columns = MADE["doubles"]
    expected = np.column_stack([columns[name] for name in NAMES])
    for order in permutations(NAMES):
        turned = {name: columns[name] for name in order}
        for X in (pd.DataFrame(turned), pa.table(turned), pa.record_batch(turned), pl.DataFrame(turned)):
            np.testing.assert_array_equal(as_documents(X, forest).chunk(0, N), expected)


def test_frames_that_are_renamed_in_place() -> None:
    forest = forests()["float64"]
    frame = pd.DataFrame(MADE["doubles"])
    other = pl.DataFrame(MADE["doubles"])
    rows = frame.to_numpy()
    for labels in (["b", "a", "c"], ["c", "b", "a"], ["a", "b", "d"], ["a", "b", "c"]):
        frame.columns = other.columns = labels
        for X in (frame, other):
            if "d" in labels:
                with pytest.raises(InputError, match="X lacks 1 of the model's 3 features: 'c'"):
                    as_documents(X, forest)
            else:
                expected = rows[:, [labels.index(name) for name in NAMES]]
                np.testing.assert_array_equal(as_documents(X, forest).chunk(0, N), expected)
    frame = frame.set_axis(pd.Index([*"abc"], dtype=object), axis=1)
    as_documents(frame, forest)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer pandas deprecates it
        frame.rename(columns={"a": "b", "b": "a"}, inplace=True)
    np.testing.assert_array_equal(as_documents(frame, forest).chunk(0, N), rows[:, [1, 0, 2]])
    try:
        frame.columns.values[:] = [*"cba"]
    except ValueError:  # newer pandas forbids it
        return
    np.testing.assert_array_equal(as_documents(frame, forest).chunk(0, N), rows[:, [2, 1, 0]])


def test_labels_that_are_equal_and_other_texts() -> None:
    class Name(str, enum.Enum):
        A = "a"

    assert Name.A == "a" and str(Name.A) != "a"
    forest = forests()["float64"]
    frame = pd.DataFrame(MADE["doubles"])
    as_ever(forest, frame, frame.set_axis(pd.Index([Name.A, "b", "c"], dtype=object), axis=1))
    counted = forest_of(schema=Schema(("1", "0", "2")))
    labels: list[list[Any]] = [[0, 1, 2], [False, True, 2], [0.0, 1.0, 2.0], ["0", "1", "2"], ["1", "0", "2"]]
    frames = [frame.set_axis(pd.Index(each, dtype=object), axis=1) for each in labels]
    assert len({outcome(X, fresh(counted)) for X in frames}) > 2
    for one in frames:
        for other in frames:
            as_ever(fresh(counted), one, other)


def test_categories_in_another_order() -> None:
    """Unordered category types compare equal in any order, although their codes then stand for other categories."""
    frames = [
        pd.DataFrame({"a": 1.0, "b": 2.0, "c": pd.Categorical.from_codes([0, 1, 2], list(levels))})
        for levels in permutations("xyz")
    ]
    assert len({frame.dtypes["c"] for frame in frames}) == 1
    tables = [pa.Table.from_pandas(frame) for frame in frames]
    for kind in ("placed", "in order", "XGBoost", "CatBoost"):
        forest = forests()[kind]
        for X, levels in zip((*frames, *tables), 2 * [*permutations("xyz")], strict=True):
            codes = as_documents(X, forest).chunk(0, 3)[:, 2]
            assert codes.tolist() == [LEVELS.index(level) for level in levels]


def test_categories_that_change_between_calls() -> None:
    forest = forests()["placed"]
    frame = pd.DataFrame({"a": 1.0, "b": 2.0, "c": pd.Categorical.from_codes([0, 1, -1], ["x", "y"])})
    for levels in (["x", "y"], ["y", "x"], ["new", "z"], ["x", "y"], ["w", "x"]):
        frame["c"] = frame["c"].cat.rename_categories(levels)
        expected = [float(LEVELS.index(level)) if level in LEVELS else np.nan for level in levels]
        np.testing.assert_array_equal(as_documents(frame, forest).chunk(0, 3)[:, 2], [*expected, np.nan])
    refusing = forests()["XGBoost"]
    frame["c"] = frame["c"].cat.rename_categories(["x", "y"])
    as_documents(frame, refusing).chunk(0, 3)
    frame["c"] = frame["c"].cat.rename_categories(["x", "new"])
    with pytest.raises(InputError, match="'c' holds the category 'new', which the model has not seen"):
        as_documents(frame, refusing).chunk(0, 3)


def test_categories_that_take_the_place_of_others_in_memory() -> None:
    forest = forests()["placed"]
    orders = [*permutations("xyzw")] * 4
    for levels in orders:  # each frame is freed before the next is made
        frame = pd.DataFrame({"a": 1.0, "b": 2.0, "c": pd.Categorical.from_codes([0, 1, 2, 3], list(levels))})
        codes = as_documents(frame, forest).chunk(0, 4)[:, 2]
        assert codes.tolist() == [LEVELS.index(level) for level in levels]
        del frame


def test_frames_of_other_types_have_brackets_of_their_own() -> None:
    lightgbm = pytest.importorskip("lightgbm")

    class Strange(pd.DataFrame):
        def __getitem__(self, key: Any) -> Any:
            column = super().__getitem__(key)
            return column.astype(str) if isinstance(column, pd.Series) else column

    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(2, 300))
    frame = pd.DataFrame({"a": a, "c": pd.Categorical(rng.integers(0, 9, 300)), "b": b})
    params = {"verbosity": -1, "num_threads": 1, "min_data_per_group": 2, "cat_smooth": 1}
    booster = lightgbm.train(params, lightgbm.Dataset(frame, frame["c"].cat.codes + frame["a"]), 10)
    model = from_model(booster)
    for rows in (frame, Strange(frame), frame, Strange(frame)):
        np.testing.assert_array_equal(model.predict(rows), booster.predict(frame))


@pytest.mark.parametrize("names", [("a", "a", "b"), ("b", "a", "a")])
def test_models_whose_features_have_one_name_take_no_tables(names: tuple[str, ...]) -> None:
    model = Model(random_forest(np.random.default_rng(0), n_features=3, schema=Schema(names)))
    X = np.random.default_rng(1).normal(size=(9, 3))
    with pytest.raises(InputError, match="several features called 'a'"):
        model.predict(pd.DataFrame(X[:, :2], columns=["a", "b"]))
    with pytest.raises(InputError, match="several columns called 'a'"):
        model.predict(pd.DataFrame(X, columns=names))
    assert model.predict(X).shape == (9,)


def test_texts_and_categories_of_one_name() -> None:
    """NumPy's object dtype compares equal to any class."""
    forest = forests()["placed"]
    values = ["y", "x", None]
    texts = pd.DataFrame({"a": 1.0, "b": 2.0, "c": pd.Series(values, dtype=object)})
    for frame in (texts, texts.astype({"c": "category"}), texts, texts.astype({"c": "string"}), texts):
        np.testing.assert_array_equal(as_documents(frame, forest).chunk(0, 3)[:, 2], [1, 0, np.nan])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "kind",
    [*("float64", "float32", "bool_"), *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))],
)
def test_numbers_of_every_type_from_any_place(kind: str, dtype: str) -> None:
    """Rounded once, in chunks that begin anywhere, with no, some and all values null."""
    forest = forests()[dtype]
    rng = np.random.default_rng(3)
    values = np.frombuffer(rng.bytes(8 * 40), "u8").astype("i8").astype(kind if kind != "bool_" else "i8")
    if kind.endswith("64"):  # just above the midpoint of two float32; rounding to float64 first loses that
        values[::3] = np.dtype(kind).type(2**62 + 2**38 + 1)
    values = values % 2 == 0 if kind == "bool_" else values
    with np.errstate(over="ignore"):
        rows = values.astype(dtype)
    for nulls in (np.zeros(40, bool), rng.random(40) < 0.3, np.ones(40, bool)):
        expected = np.where(nulls, np.nan, rows)
        whole = pa.array(values, mask=nulls)
        for first in (0, 1, 7, 8, 13):
            for cuts in ([], [1], [9, 9, 16], [3, 20]):
                ends = [first, *(first + cut for cut in cuts), 40]
                column = pa.chunked_array([whole[a:b] for a, b in pairwise(ends)])
                table = pa.table({"a": column, "b": pa.chunked_array([whole[first:]]), "c": pa.nulls(40 - first, "f4")})
                frame = pl.from_arrow(table)
                for X, skipped in ((table, 0), (table.slice(2), 2), (frame, 0), (frame[3:], 3)):
                    documents, there = as_documents(X, forest), expected[first + skipped :]
                    assert documents.n == len(there)
                    for start, stop in ((0, documents.n), (1, 5), (documents.n - 1, documents.n), (2, 2)):
                        got = documents.chunk(start, stop)
                        for column_of in (0, 1):
                            np.testing.assert_array_equal(got[:, column_of], there[start:stop])
                        assert np.isnan(got[:, 2]).all()


def test_two_models_with_one_frame() -> None:
    one = forests()["float64"]
    others = [forest_of(schema=Schema(names)) for names in permutations(NAMES)]
    columns = MADE["doubles"]
    for X in (pd.DataFrame(columns), pa.table(columns), pl.DataFrame(columns)):
        for _ in range(2):
            for forest in (one, *others):
                expected = np.column_stack([columns[name] for name in forest.schema.names])
                np.testing.assert_array_equal(as_documents(X, forest).chunk(0, N), expected)
    told = dataclasses.replace(one, schema=Schema(("c", "b", "a")))
    np.testing.assert_array_equal(as_documents(X, told).chunk(0, N)[:, 0], columns["c"])


@pytest.mark.filterwarnings("ignore")
def test_threads_and_forks_by_turns() -> None:
    forest = forests()["placed"]
    tables = [*pandas_frames(), *arrow_tables(), *polars_frames()]
    expected = [outcome(X, fresh(forest)) for X in tables]
    wrong: list[int] = []

    def call(seed: int) -> None:
        for at in np.random.default_rng(seed).integers(0, len(tables), 300):
            if outcome(tables[at], forest) != expected[at]:
                wrong.append(at)

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    if hasattr(os, "fork"):
        child = os.fork()
        if child == 0:
            os._exit(any(outcome(X, forest) != one for X, one in zip(pandas_frames()[:3], expected, strict=False)))
        assert os.waitpid(child, 0)[1] == 0


# -- what is kept, and for how long -------------------------------------------------------------


def test_only_the_last_few_plans_are_kept() -> None:
    kept = Kept(3)
    for key in range(10):
        assert kept.find(key) is None
        kept.keep(key, -key)
        assert [kept.find(one) for one in range(key + 1)] == [None] * (key - 2) + [-one for one in range(key + 1)][-3:]
    forest = forest_of()
    for at in range(20):
        columns = {f"{name}{at}": MADE["doubles"][name] for name in NAMES}
        for X in (pd.DataFrame(columns), pa.table(columns)):
            as_documents(X, forest)
    assert len(forest.table_plans._pairs) == 4


def test_plans_are_used_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from gpuqs.arrays import arrow_tables, pandas_frames

    planned: list[str] = []
    for module in (arrow_tables, pandas_frames):
        plan = module._plan_of
        monkeypatch.setattr(module, "_plan_of", lambda *args, plan=plan, of=module: planned.append(of) or plan(*args))
    forest, columns = forests()["float64"], MADE["doubles"]
    for make, of in ((pd.DataFrame, pandas_frames), (pa.table, arrow_tables)):
        for _ in range(5):
            as_documents(make(columns), forest)
        assert planned == [of]
        planned.clear()
    as_documents(pl.DataFrame(columns), forest)
    as_documents(pa.record_batch(columns), forest)
    assert not planned


@pytest.mark.parametrize("kind", ["placed", "float64"])
def test_models_and_tables_are_freed_at_once(kind: str) -> None:
    model, frame = Model(forests()[kind]), pd.DataFrame(MADE["doubles"])
    if kind == "placed":
        frame = frame.assign(c=pd.Categorical.from_codes([0, 1, 2, 1, -1, 0, 2], [*"xyz"]))
    numbers = np.ones(N)
    tables = [frame, pa.Table.from_pandas(frame), pl.from_pandas(frame)]
    tables += [pa.table([numbers] * 3, names=NAMES)] if kind == "float64" else []
    for X in tables:
        model.predict(X)
    freed = [weakref.ref(one) for one in (model, model.forest, frame, numbers)]
    gc.disable()  # memory must be freed without it
    try:
        tables.clear()
        del frame, X, numbers
        assert [ref() for ref in freed[2:]] == [None, None]
        del model
        assert [ref() for ref in freed[:2]] == [None, None]
    finally:
        gc.enable()


def test_copies_begin_anew() -> None:
    forest = forests()["float64"]
    as_documents(pd.DataFrame(MADE["doubles"]), forest)
    as_documents(pa.table(MADE["doubles"]), forest)
    assert len(forest.table_plans._pairs) == 2
    for other in (pickle.loads(pickle.dumps(forest)), copy.deepcopy(forest), copy.copy(forest), fresh(forest)):
        assert "table_plans" not in vars(other)
        as_ever(other, pd.DataFrame(MADE["another order"]), pa.table(MADE["doubles"]))


# -- answers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("output", ["value", "raw", "leaf", "class"])
@pytest.mark.parametrize("n", [1, 2, 100, 300])
def test_few_rows_are_scored_as_many(n: int, output: Any) -> None:
    sp = pytest.importorskip("scipy.sparse")
    fields: dict[str, Any] = {"link": "softmax", "n_outputs": 3}
    forest = random_forest(np.random.default_rng(5), n_features=12, n_trees=8, max_leaves=4, **fields)
    forest = dataclasses.replace(forest, schema=Schema(tuple(f"x{at}" for at in range(12))))
    assert len(forest.tested) < 12
    model, names = Model(forest), forest.schema.names
    rows = probing_documents(np.random.default_rng(6), forest, n)
    rows[np.random.default_rng(7).random(rows.shape) < 0.5] = 0
    expected = model.predict(rows, output, n_threads=2)
    columns = dict(zip(names, rows.T.copy(), strict=True))
    tables = [pd.DataFrame(columns), pa.table(columns), pl.DataFrame(columns), rows.tolist()]
    tables += [pd.DataFrame(columns).astype(pd.SparseDtype("float64", 0.0))]
    tables += [kind(rows) for kind in (sp.csr_matrix, sp.csc_matrix, sp.coo_array)]
    for X in tables:
        for _ in range(2):
            got = model.predict(X, output)
            assert got.dtype == expected.dtype and got.shape == expected.shape
            np.testing.assert_array_equal(got, expected)


def test_a_plan_serves_few_rows_of_matrices_too() -> None:
    """A matrix is scored with the plan found by `tune`, whatever was scored before."""
    sp = pytest.importorskip("scipy.sparse")
    model = Model(random_forest(np.random.default_rng(5), n_features=12, n_trees=8, max_leaves=4))
    X = sp.random(40, 12, 0.5, "csr", random_state=0)
    expected = model.predict(X)
    assert model._plain is not None
    before = model._plain.narrow
    model.tune(X.toarray(), 0.0)
    np.testing.assert_array_equal(model.predict(X), expected)
    assert model._plain.narrow is not before


@pytest.mark.parametrize("kind", ["Float64", "Float32", "Int64", "double[pyarrow]", "mixed"])
@pytest.mark.parametrize("order", ["as trained", "reversed", "with others"])
def test_columns_that_no_tree_tests_stay_where_they_are(kind: str, order: str) -> None:
    """Each of pandas's own columns costs time."""
    names = [f"c{i}" for i in range(60)]
    few = random_forest(np.random.default_rng(3), n_trees=2, max_leaves=4, n_features=60)
    forest = dataclasses.replace(few, schema=Schema(names=tuple(names), library="LightGBM"))
    assert forest.n_features > 4 * len(forest.tested)
    values = np.random.default_rng(4).integers(-9, 9, (50, 60)).astype(float)
    frame = pd.DataFrame(values, columns=names)
    frame = frame.astype({"c3": "Float64"} if kind == "mixed" else kind)
    frame.iloc[3, :] = None if kind != "mixed" else np.nan
    if order == "reversed":
        frame = frame[names[::-1]]
    elif order == "with others":
        frame.insert(7, "other", "x")
    documents = as_documents(frame, forest)
    assert documents.narrow and documents.chunk(0, 50).shape == (50, len(forest.tested))
    plain = frame[names].astype(float)
    for start, stop in ((0, 50), (2, 5)):
        rows = Model(forest).predict(frame.iloc[start:stop], "leaf")
        np.testing.assert_array_equal(rows, Model(forest).predict(plain.iloc[start:stop].to_numpy(), "leaf"))
