"""The schema: how tables are coded, how columns are identified, and what is refused."""

from __future__ import annotations

import dataclasses
from array import array
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forests import random_forest

import gpuqs
from gpuqs.arrays import as_documents
from gpuqs.cli.info import describe
from gpuqs.cpu_fallback.ctrs import text_hashes
from gpuqs.errors import InputError
from gpuqs.forest import Forest
from gpuqs.model import Model
from gpuqs.readers import open_documents
from gpuqs.schema import Schema
from gpuqs.text_hashes import name_of_hash

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
pl = pytest.importorskip("polars")

LISTS = (("x", "y", "z"), (10, 20, 30))
NAMES = ("t", "w", "v")


def forest_of(**fields: Any) -> Forest:
    return random_forest(np.random.default_rng(0), n_trees=9, n_features=3, **fields)


def read(X: Any, schema: Schema, **fields: Any) -> np.ndarray:
    forest = forest_of(schema=schema, categorical=float(bool(schema.in_order)), **fields)
    if schema.in_order:  # the trees test only the first column, by category sets
        forest = dataclasses.replace(forest, feature=np.zeros_like(forest.feature))
    documents = as_documents(X, forest)
    return np.concatenate([documents.chunk(0, 2), documents.chunk(2, documents.n)])


IN_ORDER = Schema(NAMES, in_order=LISTS, library="LightGBM")
PLACED = Schema(NAMES, (*LISTS, None), library="LightGBM")
CODES = [[2, 1, 0.5], [0, np.nan, 1.5], [np.nan, 0, 2.5], [np.nan, 2, np.nan]]
FRAME = pd.DataFrame(
    {
        "t": pd.Categorical(["z", "x", "new", None], categories=["new", "z", "x"], ordered=True),
        "w": pd.Categorical([20.0, 99.0, 10.0, 30.0]),
        "v": [0.5, 1.5, 2.5, np.nan],
    }
)
TABLE = pa.Table.from_pandas(FRAME)


def dictionary(values: list[Any], indices: list[Any], index: Any) -> Any:
    return pa.DictionaryArray.from_arrays(pa.array(indices, index), pa.array(values))


@pytest.mark.parametrize("schema", [IN_ORDER, PLACED], ids=["in order", "placed"])
def test_every_table_is_coded_alike(schema: Schema) -> None:
    tables = {
        "frame": FRAME,
        "shuffled": FRAME[["v", "w", "t"]],
        "texts": FRAME.astype({"t": object}),
        "Arrow's texts": FRAME.astype({"t": "string[pyarrow]"}),
        "table": TABLE,
        "views": TABLE.set_column(0, "t", TABLE["t"].cast("string").cast("string_view")),
        "polars": pl.from_pandas(FRAME.astype({"w": float})).with_columns(pl.col("w").cast(pl.Int64)),
    }
    for index in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.int64()):
        column = dictionary(["new", None, "x", "z"], [3, 2, 0, None], index)
        tables[f"dictionary of {index}"] = TABLE.set_column(0, "t", column)
        column = dictionary(["x", "z", None], [1, 0, 2, 2], index)
        tables[f"null in a dictionary of {index}"] = TABLE.set_column(0, "t", column)
    tables["chunks"] = pa.concat_tables([TABLE.slice(0, 1), TABLE.slice(1, 2), TABLE.slice(3)])
    arrow = pd.arrays.ArrowExtensionArray(pa.chunked_array([dictionary(["x", "z"], [1, 0, None, None], pa.int8())]))
    tables["pandas over a dictionary"] = FRAME.assign(t=arrow)
    for name, table in tables.items():
        if name == "polars" and schema is IN_ORDER:
            with pytest.raises(InputError, match=r"2 category columns .* and X has 1: 't'; make the same columns"):
                read(table, schema)
            continue
        np.testing.assert_array_equal(read(table, schema), CODES, err_msg=name)


def test_enums_and_categoricals_of_polars() -> None:
    texts = pl.Series("t", ["z", "x", "new", None])
    for kind in (pl.Categorical, pl.Enum(["new", "z", "x"]), pl.String):
        frame = pl.DataFrame({"v": [0.5, 1.5, 2.5, None], "t": texts.cast(kind), "w": [20, 99, 10, 30]})
        np.testing.assert_array_equal(read(frame, PLACED), CODES)


def test_other_numbers_of_category_columns_are_refused() -> None:
    text = FRAME.astype({"t": str}).assign(w=1)
    for X, found in ((FRAME.assign(w=1), "1: 't'"), (FRAME.assign(v="a"), "3: 't', 'w', 'v'"), (text, "1: 't'")):
        with pytest.raises(InputError, match=found):
            read(X, IN_ORDER)
    with pytest.raises(InputError, match=r"'t' has dtype category, not a number; .*the feature's name in the model"):
        read(FRAME, Schema(NAMES, library="LightGBM"))


def test_truth_values_are_no_numbers_to_pandas_but_equal_lists_are_the_same() -> None:
    schema = Schema(NAMES, in_order=((False, True),), library="LightGBM")
    frame = pd.DataFrame({"t": [1.0] * 4, "w": pd.Categorical([0, 1, 1, 0]), "v": 0.0})
    np.testing.assert_array_equal(read(frame, schema)[:, 1], [0, 1, 1, 0])
    np.testing.assert_array_equal(read(frame.assign(w=pd.Categorical([0, 1, 2, 0])), schema)[:, 1], [np.nan] * 4)


def test_xgboost_and_catboost_refuse_what_their_libraries_do() -> None:
    xgboost = dataclasses.replace(PLACED, library="XGBoost")
    with pytest.raises(InputError, match="column 't' holds the category 'new', which the model has not seen"):
        read(FRAME.assign(w=FRAME["t"].cat.rename_categories([10, 20, 30])), xgboost)
    of_bytes = pd.Categorical([b"x", b"y", b"x", b"y"])
    with pytest.raises(InputError, match="category b'x', a bytes, which XGBoost saves only as pieces of a string"):
        read(FRAME.assign(t=of_bytes, w=FRAME["t"].cat.rename_categories([10, 20, 30])), xgboost)
    with pytest.raises(InputError, match="column 'w' holds numbers, which XGBoost does not accept as categories"):
        read(FRAME.assign(t=FRAME["t"].cat.remove_categories(["new"]), w=10), xgboost)
    catboost = Schema(NAMES, (("x", "z"), ("10", 10, "1", 1), None), library="CatBoost")
    with pytest.raises(InputError, match="column 't' has missing categories, which CatBoost refuses"):
        read(FRAME.assign(w=10), catboost)
    sound = FRAME.assign(t=["z", "x", "new", "x"])
    for w in ([10, 1, 2, 1], ["10", "1", "01", 1], ["10", True, "True", 1]):
        codes = [0, 2, np.nan, 2]
        np.testing.assert_array_equal(read(sound.assign(w=w), catboost)[:, 1], codes)
    with pytest.raises(InputError, match="column 'w' holds fractions, which CatBoost does not accept as"):
        read(sound.assign(w=10.0), catboost)
    with pytest.raises(InputError, match=r"column 'w' holds the category 10.0; CatBoost's categories are strings"):
        read(sound.assign(w=pd.Categorical([10.0] * 4)), catboost)


def test_scikit_learn_reads_the_numbers_of_category_columns() -> None:
    schema = Schema(NAMES, library="scikit-learn")
    frame = FRAME.assign(t=1)
    np.testing.assert_array_equal(read(frame, schema)[:, 1], [20, 99, 10, 30])
    with pytest.raises(InputError, match="column 't' has dtype category, not a number"):
        read(FRAME, schema)


# -- telling the places -------------------------------------------------------------------


@pytest.mark.parametrize("told", [["t", "w"], ["w", "t"], (0, 1), {"w": [10, 20, 30], "t": np.array(["x", "y", "z"])}])
def test_places_are_told_and_kept(told: Any, tmp_path: Path) -> None:
    forest = forest_of(schema=IN_ORDER)
    forest = dataclasses.replace(forest, feature=np.full_like(forest.feature, 2))  # column 2 has arbitrary thresholds
    model = gpuqs.from_model(forest, categories=told)
    placed = dataclasses.replace(PLACED, stated=(0, 1))
    assert model.forest.schema == placed
    model.save(tmp_path / "model")
    assert gpuqs.load(tmp_path / "model").forest.schema == placed
    assert gpuqs.load(tmp_path / "model", categories={"v": [1.5]}).forest.schema.categories == (*LISTS, (1.5,))


@pytest.mark.parametrize(
    ("schema", "told", "problem"),
    [
        (IN_ORDER, "t", "categories is a str"),
        (IN_ORDER, 5, "categories is a int"),
        (IN_ORDER, ["t"], "names 1 columns, but the model keeps categories of 2"),
        (IN_ORDER, ["t", "t"], "names a column twice"),
        (IN_ORDER, ["t", "nobody"], "'nobody', not one of the model's 3 features, called 't', 'w', 'v'"),
        (IN_ORDER, [0, 3], "3, not one"),
        (IN_ORDER, {"t": LISTS[1], "w": LISTS[0]}, "but the model keeps"),
        (Schema(NAMES), ["t"], r"keeps no categories of 't'; pass \{column: "),
        (PLACED, ["t", "v"], r"keeps no categories of 'v'; pass \{column: "),
        (Schema(), {"t": ["x"]}, "numbered 0 to 2"),
        (Schema(NAMES), {"t": "xyz"}, "the categories of 't' are a str"),
        (Schema(NAMES), {"t": [None]}, "hold None"),
        (Schema(NAMES), {"t": [1, 1.0]}, "hold a value twice"),
    ],
)
def test_what_may_not_be_told(schema: Schema, told: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        gpuqs.from_model(forest_of(schema=schema), categories=told)


def test_numbers_of_columns_that_are_named_are_categories_by_value(tmp_path: Path) -> None:
    schema = dataclasses.replace(PLACED, library="XGBoost")
    model = gpuqs.from_model(forest_of(schema=schema), categories=["w"])
    assert model.forest.schema == dataclasses.replace(schema, stated=(1,))
    frame = FRAME.assign(t=FRAME["t"].cat.remove_categories(["new"]), w=[30, 10, 20, 10])
    chunk = as_documents(frame, model.forest).chunk(0, 4)
    np.testing.assert_array_equal(chunk[:, 1], [2, 0, 1, 0])
    with pytest.raises(InputError, match=r"'w' holds numbers, which XGBoost does not accept as.*categories=\[column\]"):
        read(frame, schema)
    frame.to_csv(tmp_path / "rows.csv", index=False)  # read back, all its numbers are floats
    with pytest.raises(InputError, match="column 'w' holds numbers, which XGBoost does not accept as"):
        list(open_documents(tmp_path / "rows.csv", forest_of(schema=schema)))
    (rows,) = open_documents(tmp_path / "rows.csv", model.forest)
    np.testing.assert_array_equal(rows.values[:, 1], [2, 0, 1, 0])


def test_columns_that_cannot_be_read_are_named() -> None:
    wide = pl.DataFrame({"t": ["x"], "w": pl.Series([1], dtype=pl.Int128), "v": [0.5]})
    with pytest.raises(InputError, match=r"column 'w' has type Int128, which Arrow does not have; cast it"):
        read(wide, PLACED)
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([4], pa.int32()), pa.array(["x"]))
    for schema in (IN_ORDER, PLACED):
        with pytest.raises(InputError, match=r"column 't' has type run_end_encoded<.*, not a number; convert it"):
            read(TABLE.set_column(0, "t", runs), schema)
    nothing = TABLE.set_column(0, "t", pa.nulls(4))
    with pytest.raises(InputError, match=r"X has 1: 'w' \(column 't' has type null, so that it holds no categories\)"):
        read(nothing, IN_ORDER)
    with pytest.raises(InputError, match=r"column 't' holds nothing \(type null\), but the model's categories"):
        read(nothing, PLACED)


@pytest.mark.parametrize("n", [3, 8000])
@pytest.mark.parametrize("known", [(("x", "y"), None, None), ()], ids=["categories", "numbers"])
@pytest.mark.parametrize("library", ["scikit-learn", "LightGBM", "XGBoost", "CatBoost"])
def test_columns_of_objects_that_are_numbers(library: str, n: int, known: tuple) -> None:
    """As in `pandas.DataFrame([record])` and a row of `iloc`; few rows are read in one pass."""
    schema = Schema(NAMES, known, library=library)
    w, v = np.resize(np.array([None, 2**60 + 1, True, 0.1, np.nan, pd.NA], object), n), np.arange(n) / 2
    t = pd.Categorical(np.resize(["y", "x"], n)) if known else v
    frame = pd.DataFrame({"v": v, "w": w, "t": t})
    rows = read(frame, schema)
    as_float = frame.assign(w=[np.nan if pd.isna(value) else float(value) for value in w])
    np.testing.assert_array_equal(rows, read(as_float, schema))
    np.testing.assert_array_equal(rows[:, [0, 2]], np.stack([np.resize([1, 0], n) if known else v, v], axis=1))
    frame.loc[n - 1, "w"] = "1.5"
    with pytest.raises(InputError, match=rf"X holds a str in document {n - 1:,}, feature 'w': '1\.5'; documents hold"):
        read(frame, schema)


def test_categories_of_what_catboost_compares_as_numbers_are_refused() -> None:
    """CatBoost would compare the codes of categories, or their hashes, with borders."""
    for known, its in (((("x", "y"), None, None), "'t'"), ((), "none")):
        for named in ({"w": [3, 1]}, ["w"]):
            with pytest.raises(InputError, match=f"names 'w', a numeric column .* its category columns are {its}"):
                Schema(NAMES, known, library="CatBoost").placed(named, 3)


def test_categories_that_a_catboost_model_tells_are_not_told_otherwise() -> None:
    """The model has hashes in an unknown order; a list in another order would change scores."""
    hashed = tuple(map(name_of_hash, text_hashes(["red", "big", "7"]).tolist()))
    for known in (hashed, ("red", "big", "7")):
        schema = Schema(NAMES, (known, None, None), library="CatBoost")
        for same in (["t"], {"t": list(known)}):
            assert schema.placed(same, 3).categories == schema.categories
        for other in (["big", "red", "7"], ["red"], [0, 1, 2], []):
            with pytest.raises(InputError, match=r"CatBoost's models hold their own categories; leave it out"):
                schema.placed({"t": other}, 3)


@pytest.mark.parametrize("values", [[True, 1, 2], [1, True, 2], [1.0, 1, True]], ids=str)
def test_few_rows_of_objects_are_coded_as_many_are(values: list[Any]) -> None:
    """Few rows are read in one pass; pandas itself treats 1 and True as the same value."""
    schema = Schema(NAMES, (("x", "y"), (0, 1, 2), None), library="LightGBM")
    few = pd.DataFrame({"t": ["x", "y", "x"], "w": np.array(values, object), "v": [0.5, 1.5, 2.5]})
    many = pd.concat([few] * 2000, ignore_index=True)
    forest = forest_of(schema=schema)
    rows = [as_documents(X, forest).chunk(0, len(X)) for X in (few, many)]
    np.testing.assert_array_equal(rows[1], np.tile(rows[0], (2000, 1)))


def test_schemas_that_contradict_themselves() -> None:
    for fields in ({"library": "astrology"}, {"categories": (("x",),), "in_order": (("x",),)}, {"absent": 1.0}):
        with pytest.raises(ValueError, match="Schema"):
            Schema(**fields)


def test_info_prints_the_schema() -> None:
    lines = dict(describe(forest_of(schema=IN_ORDER)))
    assert lines["category columns"] == "2 of the training frame, in its order: (3: 'x', 'y', 'z'); (3: 10, 20, 30)"
    assert (lines["unseen categories"], lines["absent entries"]) == ("missing", "0")
    schema = Schema(NAMES, (*LISTS, None), np.nan, library="XGBoost")
    lines = dict(describe(forest_of(schema=schema)))
    assert lines["category columns"] == "'t' (3: 'x', 'y', 'z'); 'w' (3: 10, 20, 30)"
    assert (lines["unseen categories"], lines["absent entries"]) == ("refused", "missing")
    made_up = Schema(("Column_0", "Column_1", "Column_2"), library="LightGBM")
    assert dict(describe(forest_of(schema=made_up)))["feature names"] == "Column_0, Column_1, Column_2 (made up)"
    assert dict(describe(forest_of(schema=Schema(("f0", "f1", "f2")))))["feature names"] == "f0, f1, f2"


# -- names, numbers, and what is no table -------------------------------------------------


def test_a_permutation_of_made_up_names_goes_by_name() -> None:
    schema = Schema(tuple(f"Column_{i}" for i in range(3)), library="LightGBM")
    frame = pd.DataFrame({schema.names[i]: [float(i)] * 3 for i in (2, 0, 1)})
    for X in (frame, pa.Table.from_pandas(frame), pl.from_pandas(frame)):
        np.testing.assert_array_equal(read(X, schema), [[0, 1, 2]] * 3)
    frame.columns = ["b", "c", "a"]
    np.testing.assert_array_equal(read(frame, schema), [[2, 0, 1]] * 3)


@pytest.mark.parametrize(
    "labels",
    [[7, 0, 1], [("a", 1), ("b", 2), ("c", 3)], ["t", "w", 1], [0.5, 1.5, 2.5]],
    ids=["ints", "levels", "mixed", "floats"],
)
def test_labels_that_are_no_texts_are_names_all_the_same(labels: list[Any]) -> None:
    rows = np.arange(6.0).reshape(2, 3)
    columns = pd.MultiIndex.from_tuples(labels) if isinstance(labels[0], tuple) else labels
    X = pd.DataFrame(rows, columns=columns)
    texts = [" ".join(map(str, label)) if isinstance(label, tuple) else str(label) for label in labels]
    for names in (NAMES, ("0", "1", "2")):
        with pytest.raises(InputError, match=r"X lacks \d of the model's 3 features"):
            read(X, Schema(names))
    for names in (texts, [str(label) for label in labels]):
        np.testing.assert_array_equal(read(X.iloc[:, ::-1], Schema(tuple(names))), rows)
    np.testing.assert_array_equal(read(X, Schema(("Column_0", "Column_1", "Column_2"), library="LightGBM")), rows)
    np.testing.assert_array_equal(read(pd.DataFrame(rows), Schema(NAMES)), rows)
    turned = pd.DataFrame(rows, columns=[2, 0, 1])
    np.testing.assert_array_equal(read(turned, Schema(("0", "1", "2"))), rows[:, [1, 2, 0]])


def test_columns_that_are_there_twice() -> None:
    frame = pd.concat([FRAME, FRAME[["v"]]], axis=1)
    with pytest.raises(InputError, match="X has several columns called 'v'; drop or rename all but one"):
        read(frame, IN_ORDER)
    others = pd.DataFrame(np.ones((3, 5)), columns=["t", "q", "w", "q", "v"])
    np.testing.assert_array_equal(read(others, Schema(NAMES)), np.ones((3, 3)))


def test_whole_numbers_are_rounded_once() -> None:
    """Directly to float32, as XGBoost does: via float64 this integer rounds differently."""
    big = 2**61 + 2**37 + 1
    assert np.float32(np.int64(big)) != np.float32(np.float64(big))
    columns = {"t": [big, big], "w": [0.5, 0.5], "v": [big + 1, 2**63 - 1]}
    frame = pd.DataFrame(columns)
    nulls = {"t": [big, None], "w": [0.5, None], "v": [None, 2**63 - 1]}
    tables = [frame, frame.astype({"t": "uint64"}), frame.astype({"t": "Int64", "v": "UInt64"}), pa.table(columns)]
    tables += [pl.DataFrame(columns), pa.table(nulls), pl.DataFrame(nulls), frame.astype({"t": "int64[pyarrow]"})]
    for X in tables:
        got = read(X, Schema(NAMES), input_dtype="float32")
        assert got.dtype == np.float32
        assert got[0, 0] == np.float32(np.int64(big)), type(X)
    got = read(pa.table(nulls), Schema(NAMES), input_dtype="float32")
    np.testing.assert_array_equal(np.isnan(got), [[False, False, True], [True, True, False]])


def test_scikit_learn_rounds_frames_of_several_types_twice() -> None:
    """It first converts the frame to one array, and then this array to float32."""
    big = 2**61 + 2**37 + 1
    mixed = pd.DataFrame({"t": [big], "w": [0.5], "v": [1]})
    schema = Schema(NAMES, library="scikit-learn")
    forest = forest_of(schema=schema, input_dtype="float32")
    assert as_documents(mixed, forest).chunk(0, 1)[0, 0] == np.float32(float(big))
    assert as_documents(mixed.astype("int64"), forest).chunk(0, 1)[0, 0] == np.float32(np.int64(big))


def test_frames_over_memory_that_is_not_aligned() -> None:
    view = np.zeros(8 * 12 + 1, np.uint8)[1:].view(np.float64).reshape(4, 3)
    view[:] = np.arange(12).reshape(4, 3)
    frame = pd.DataFrame(view, columns=NAMES, copy=False)
    forest = forest_of(schema=Schema(NAMES))
    assert as_documents(frame, forest).chunk(0, 4).flags.aligned
    np.testing.assert_array_equal(Model(forest).predict(frame), Model(forest).predict(np.array(view)))


class OnlyDlpack:
    """An array on the CPU that supports only DLPack."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


class WithGradient(OnlyDlpack):
    """Like a PyTorch tensor that requires a gradient."""

    requires_grad = True

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")

    __array__ = __dlpack__

    def detach(self) -> OnlyDlpack:
        return OnlyDlpack(self.array)


@pytest.mark.parametrize("kind", [OnlyDlpack, WithGradient])
def test_arrays_of_other_libraries_on_the_cpu(kind: type) -> None:
    X = np.random.default_rng(0).normal(size=(5, 3))
    model = Model(forest_of())
    np.testing.assert_array_equal(model.predict(kind(X)), model.predict(X))


def strangers() -> dict[str, tuple[Any, str]]:
    """Objects that are not tables of documents, with the error message."""
    X = np.zeros((4, 3))
    frame = pd.DataFrame(X)
    return {
        "None": (None, "X is None, not documents"),
        "path": (Path("x.csv"), "not documents; read the file first"),
        "str": ("x.csv", "X is a str, not documents; read the file first"),
        "dict": ({"a": [1]}, r"X is a dict, not documents; pass pandas.DataFrame\(\[X\]\) for one document"),
        "generator": ((row for row in X), r"X is a generator, not documents; pass list\(X\)"),
        "set": ({1.0}, "X is a set, not documents"),
        "Series": (frame[0], r"X is a pandas.Series, not documents; pass a frame of one row"),
        "polars.Series": (pl.Series([1.0]), r"X is a polars.Series, not documents; pass X.to_frame\(\)"),
        "LazyFrame": (pl.DataFrame(X).lazy(), r"X is a polars.LazyFrame, not documents; pass X.collect\(\)"),
    }


@pytest.mark.parametrize("name", strangers())
def test_what_is_no_table(name: str) -> None:
    X, problem = strangers()[name]
    with pytest.raises(InputError, match=problem):
        Model(forest_of()).predict(X)


@pytest.mark.parametrize(
    ("package", "kind"),
    [("xgboost", "DMatrix"), ("xgboost", "QuantileDMatrix"), ("lightgbm", "Dataset"), ("catboost", "Pool")],
)
def test_what_other_libraries_train_on(package: str, kind: str) -> None:
    X = getattr(pytest.importorskip(package), kind)(np.zeros((4, 3)))
    problem = f"X is a {package}.{kind}, not documents; pass the frame or array that it was made from"
    with pytest.raises(InputError, match=problem):
        Model(forest_of()).predict(X)


def test_features_data_of_catboost() -> None:
    X = pytest.importorskip("catboost").FeaturesData(num_feature_data=np.zeros((4, 3), np.float32))
    with pytest.raises(InputError, match=r"X is a catboost.FeaturesData, not documents; pass a frame or an array"):
        Model(forest_of()).predict(X)


def test_a_class_of_a_script_is_named_as_it_is() -> None:
    rows = type("Rows", (set,), {"__module__": "__main__"})()
    with pytest.raises(InputError, match=r"X is a __main__\.Rows, not documents"):
        Model(random_forest(np.random.default_rng(0))).predict(rows)


@pytest.mark.parametrize("module", ["dask.array.core", "dask.dataframe.core", "dask_expr._collection"])
def test_what_is_not_computed_yet(module: str) -> None:
    attributes = {"__module__": module, "iloc": None, "columns": NAMES}
    with pytest.raises(InputError, match=r"X is a dask.*\.DataFrame, not documents; pass X.compute\(\)"):
        Model(forest_of()).predict(type("DataFrame", (), attributes)())


@pytest.mark.parametrize(
    ("X", "mend"),
    [
        (pd.DataFrame, "the class DataFrame itself; pass an instance"),
        (TABLE.to_reader(), r"pass X\.read_all\(\)"),
        ([{"t": 1.0}], r"a list of dicts; pass pandas\.DataFrame"),
        (array("d", [1.0]), "pass a list of documents"),
        (range(3), "pass a list of documents"),
        (pd.Index([1, 2, 3]), r"X\.to_frame\(\)"),
        (pa.array([1.0]), r"pass pyarrow\.table"),
        (pa.chunked_array([[1.0]]), r"pass pyarrow\.table"),
        (np.zeros(2, [("t", float)]), r"structured array; pass pandas\.DataFrame"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_has_no_rows_of_numbers(X: Any, mend: str) -> None:
    with pytest.raises(InputError, match=mend) as caught:
        as_documents(X, forest_of())
    assert "reshape" not in str(caught.value)


def test_large_whole_numbers_are_compared_with_floats_as_float64() -> None:
    known = (2**53 + 1, 7)
    frame = FRAME.assign(w=[float(2**53), 7.0, 8.0, np.nan])
    schema = dataclasses.replace(PLACED, categories=(LISTS[0], known, None))
    np.testing.assert_array_equal(read(frame, schema)[:, 1], [0, 1, np.nan, np.nan])
    with pytest.raises(InputError, match="column 'w' holds floats, too imprecise to tell the model's categories"):
        read(frame, dataclasses.replace(schema, categories=(LISTS[0], (2**53, 2**53 + 1), None)))
    whole = frame.assign(w=[2**53 + 1, 7, 2**53, 1])
    np.testing.assert_array_equal(read(whole, schema)[:, 1], [0, 1, np.nan, np.nan])
