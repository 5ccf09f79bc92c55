"""pandas frames as documents: columns by name, categories coded as in training."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from gpuqs.arrays.arrow_tables import arrow_codes, kind_of_arrow
from gpuqs.arrays.coding import Coder, CodeTable, Column, Kind, coders_of, distinct_objects, plain
from gpuqs.arrays.columns import columns_of
from gpuqs.arrays.dense import Documents, number_dtype, numbers_of_objects, table_dtype, tests_few
from gpuqs.arrays.sparse import all_sparse, from_sparse_frame, plain_dtype
from gpuqs.errors import InputError
from gpuqs.forest import Forest

#: NumPy's kind of a type -> the kind of its values; columns of objects are treated as strings.
_KINDS = {"i": Kind.WHOLE, "u": Kind.WHOLE, "f": Kind.FRACTION, "b": Kind.TRUTH, "O": Kind.TEXT, "U": Kind.TEXT}


#: Upper limit of values that are taken out of a frame all at once, as objects: up to here pandas takes longer column by
#: column (24 columns of numbers and 6 of strings: 230 instead of 440 microseconds for a call of 10 rows, 400 instead
#: of 510 for 160).
_FEW = 4096
_FLOATS = (np.dtype(np.float32), np.dtype(np.float64))


class _Levels:
    """The codes of a column's categories; those of the last index of categories are kept.

    A pandas index is not changed in place, and while this one is kept, no other has its identity.
    """

    def __init__(self, coder: Coder) -> None:
        self._coder = coder
        self._last: tuple[Any, CodeTable] | None = None

    def table(self, categories: Any) -> CodeTable:
        last = self._last
        if last is None or last[0] is not categories:
            last = self._last = categories, self._coder.table(plain(categories))
        return last[1]


class _Plan(NamedTuple):
    """What follows from a frame's labels and types: where the features are, and how they become documents.

    Parameters
    ----------
    take : list of int or None
        Positions of the features among the frame's columns; None if the columns are the features, in order.
    turned : bool
        The columns are the features, in another order.
    sparse : bool
        All features are Sparse columns of numbers, and the model has no categories.
    narrow : bool
        Only tested features are taken out, because each column costs time.
    coders : dict of int to (Coder, _Levels)
        By feature, for those that are coded.
    objects : list of int
        Features whose columns hold Python's numbers, as objects.
    numbers : list of int
        The other features.
    of_floats : bool
        Numbers are float32 or float64, and coded columns hold objects or can become objects: a small frame without
        other columns may be taken out at once, as objects, without changing its numbers.
    first, dtype : numpy.dtype
        The type to which numbers are rounded first, and that of documents.
    labels : list
        The columns' labels, if they are distinct: pandas finds a column faster by label than by position. Else empty.
    """

    take: list[int] | None
    turned: bool
    sparse: bool
    narrow: bool
    coders: dict[int, tuple[Coder, _Levels]]
    objects: list[int]
    numbers: list[int]
    of_floats: bool
    first: np.dtype
    dtype: np.dtype
    labels: list[Any]

    def documents(self, X: Any, forest: Forest) -> Documents:
        n, take, first, dtype = len(X), self.take, self.first, self.dtype
        if not self.coders and not self.objects:
            if self.turned and not self.sparse and not self.narrow:  # faster than reordering the frame's columns
                return Documents(n, lambda start, stop: _numbers(X, start, stop, first, dtype)[:, take])
            if self.narrow:
                take = forest.tested.tolist() if take is None else [take[feature] for feature in forest.tested]
            frame = X if take is None else X.take(take, axis=1)
            if self.sparse:
                return from_sparse_frame(frame, forest)
            return Documents(n, lambda start, stop: _numbers(frame, start, stop, first, dtype), self.narrow)
        places = list(range(X.shape[1])) if take is None else take
        if self.of_floats and n * len(places) <= _FEW and len(places) == X.shape[1]:
            return self._at_once(X, places, forest)
        coded = {feature: _codes(self._column(X, places[feature]), *coder) for feature, coder in self.coders.items()}
        for feature in self.objects:
            coded[feature] = _of_objects(self._column(X, places[feature]).to_numpy(), feature, forest, first)
        numbers = X.take([places[feature] for feature in self.numbers], axis=1)

        def chunk(start: int, stop: int) -> np.ndarray:
            out = np.empty((stop - start, len(places)), dtype, order="F")  # as frames keep their columns
            out[:, self.numbers] = _numbers(numbers, start, stop, first, dtype)
            for feature, codes in coded.items():
                out[:, feature] = codes(start, stop)
            return out

        return Documents(n, chunk)

    def _at_once(self, X: Any, places: list[int], forest: Forest) -> Documents:
        values, rows = X.to_numpy(object), np.empty((len(X), len(places)), self.dtype)
        with np.errstate(over="ignore"):
            rows[:, self.numbers] = values[:, [places[feature] for feature in self.numbers]].astype(self.first)
        for feature in self.objects:
            rows[:, feature] = _of_objects(values[:, places[feature]], feature, forest, self.first)(0, len(X))
        for feature, (coder, _) in self.coders.items():
            place = places[feature]
            rows[:, feature] = _codes_of_objects(coder, values[:, place], partial(self._column, X, place))
        return Documents(len(X), lambda start, stop: rows[start:stop])

    def _column(self, X: Any, place: int) -> Any:
        return X[self.labels[place]] if self.labels and is_pandas(X) else X.iloc[:, place]


def is_frame(X: Any) -> bool:
    """Whether `from_frame` reads it."""
    kind = type(X)  # asked first, as pandas makes ``dtypes`` again at each access
    return all(hasattr(kind, name) or hasattr(X, name) for name in ("iloc", "columns", "dtypes"))


def is_pandas(X: Any) -> bool:
    """Whether the type is pandas's own: subclasses of other libraries may give brackets another meaning."""
    return type(X).__module__.partition(".")[0] == "pandas"


def from_frame(X: Any, forest: Forest) -> Documents:
    """A pandas frame as documents, its categories coded as in training.

    Parameters
    ----------
    X : pandas.DataFrame
        Columns are found by name, as `gpuqs.arrays.columns.columns_of` says. The plans for a few sets of columns are
        kept with the forest.
    forest : Forest

    Raises
    ------
    InputError
        A column is missing, holds no numbers and cannot be coded, or has categories that are not the model's.
    """
    key = _key_of(X)
    plan: _Plan | None = None if key is None else forest.table_plans.find(key)
    if plan is None:
        labels = key[0] if key is not None and len(set(key[0])) == len(key[0]) else []
        plan = _plan_of(X, labels, forest)
        if key is not None:
            forest.table_plans.keep(key, plan)
    return plan.documents(X, forest)


def _key_of(X: Any) -> tuple[list[Any], list[Any]] | None:
    """A key, equal for frames whose columns have the same labels and types in the same order; None if equal labels may
    be different strings, as 1 and True."""
    labels, dtypes = X.columns, X.dtypes
    if not (hasattr(labels, "tolist") and hasattr(dtypes, "tolist")):  # looks like pandas, but is not
        return None
    labels, dtypes = labels.tolist(), dtypes.tolist()
    types = set(map(type, labels))
    if types != {str} and types != {int}:
        return None
    if not all(issubclass(kind, np.dtype) for kind in set(map(type, dtypes))):
        # Codes of two equal category types may mean different categories, so plans do not depend on them.
        dtypes = [Kind.CATEGORY if _is_category(dtype) else dtype for dtype in dtypes]
    return labels, dtypes


def _plan_of(X: Any, labels: list[Any], forest: Forest) -> _Plan:
    take = columns_of(*labels_of(X, forest), forest)
    frame = X if take is None else X.iloc[:, take]
    types = list(frame.dtypes)
    sparse = not forest.schema.has_categories and all_sparse(types)
    told = {dtype: (str(dtype), _kind_of(dtype)) for dtype in set(types)}
    columns = [Column(str(name), "dtype", *told[dtype]) for name, dtype in zip(frame.columns, types, strict=True)]
    objects = [at for at, dtype in enumerate(types) if dtype == np.dtype(object) and _are_numbers(frame, at, forest)]
    for at in objects:
        columns[at] = columns[at]._replace(kind=Kind.FRACTION)
    coders = [None] * len(columns) if sparse else coders_of(columns, forest)
    numbers = [feature for feature, coder in enumerate(coders) if coder is None and feature not in objects]
    kinds = [types[feature] for feature in numbers]
    simple = all(isinstance(kind, np.dtype) for kind in kinds)
    dtypes = [plain_dtype(getattr(dtype, "numpy_dtype", dtype)) for dtype in kinds]
    dtypes = [dtype if dtype.kind in "fiub" else np.dtype(np.float64) for dtype in dtypes]  # Arrow's decimals
    dtype = table_dtype([*dtypes, np.dtype(np.float64)] if objects else dtypes, forest)
    first = number_dtype(dtype, forest)
    if forest.schema.rules.common_type and simple:
        with_objects = [*dtypes, np.dtype(np.float64)] if objects else dtypes  # these are Python's numbers
        common = np.result_type(*with_objects) if with_objects else dtype
        first = common if common.kind == "f" else dtype
    coded = {feature: (coder, _Levels(coder)) for feature, coder in enumerate(coders) if coder is not None}
    turned = take is not None and sorted(take) == [*range(X.shape[1])]
    of_objects = not any(_is_category(types[f]) or hasattr(types[f], "pyarrow_dtype") for f in coded)
    of_floats = of_objects and all(kind in _FLOATS for kind in kinds)
    narrow = not coded and not simple and not sparse and tests_few(forest)
    return _Plan(take, turned, sparse, narrow, coded, objects, numbers, of_floats, first, dtype, labels)


def _are_numbers(frame: Any, feature: int, forest: Forest) -> bool:
    """Whether a column of objects is one of numbers: the model has no categories for it, and it does not begin with a
    string."""
    schema = forest.schema
    if schema.in_order or feature in schema.lost:  # it may be one of categories
        return False
    if schema.categories and schema.categories[feature] is not None:
        return False
    there = frame.iloc[:, feature].dropna()
    return not (len(there) and isinstance(there.iloc[0], str))


def _numbers(frame: Any, start: int, stop: int, first: np.dtype, dtype: np.dtype) -> np.ndarray:
    """Rows of a frame of numbers, rounded to ``first``, then to ``dtype``."""
    part = frame if start == 0 and stop == len(frame) else frame.iloc[start:stop]
    with np.errstate(over="ignore"):
        rows: np.ndarray = part.to_numpy(dtype=first, na_value=np.nan).astype(dtype, copy=False)
    return rows if rows.flags.aligned else rows.copy()


def _of_objects(column: np.ndarray, feature: int, forest: Forest, dtype: np.dtype) -> Callable[[int, int], np.ndarray]:
    """A function that gives rows [start, stop) of a column whose numbers are objects."""
    return lambda start, stop: numbers_of_objects(column[start:stop, None], forest, dtype, start, [feature])[:, 0]


def labels_of(X: Any, forest: Forest) -> tuple[list[str], bool]:
    """Names of a frame's columns, and whether they are real ones: 0, 1, ... are pandas's own."""
    labels = list(X.columns)
    names = [str(label) for label in labels]
    if getattr(X.columns, "nlevels", 1) > 1 and not set(forest.schema.names) <= set(names):
        names = [" ".join(map(str, label)) for label in labels]  # as XGBoost calls them
    counted = all(isinstance(label, (int, np.integer)) for label in labels) and labels == [*range(len(labels))]
    return names, not counted


def _is_category(dtype: Any) -> bool:
    return not isinstance(dtype, np.dtype) and hasattr(dtype, "categories") and hasattr(dtype, "ordered")


def _kind_of(dtype: Any) -> Kind:
    if hasattr(dtype, "pyarrow_dtype"):
        return kind_of_arrow(dtype.pyarrow_dtype)
    if _is_category(dtype):
        return Kind.CATEGORY
    if hasattr(dtype, "storage"):  # pandas's string type
        return Kind.TEXT
    number = plain_dtype(getattr(dtype, "numpy_dtype", dtype))
    return _KINDS.get(number.kind, Kind.OTHER) if isinstance(number, np.dtype) else Kind.OTHER


def _codes(column: Any, coder: Coder, levels: _Levels) -> Callable[[int, int], np.ndarray]:
    """A function that gives rows [start, stop) of a column as category codes."""
    of_texts = coder.by_hash and getattr(column.dtype, "storage", None) == "pyarrow"
    if of_texts or hasattr(column.dtype, "pyarrow_dtype"):
        array = column.array.__arrow_array__()
        return lambda start, stop: arrow_codes(array.slice(start, stop - start), coder)
    if _is_category(column.dtype):
        return lambda start, stop: levels.table(column.array.categories).at(column.array.codes[start:stop])
    if coder.by_hash and column.dtype == object:
        objects = column.to_numpy()
        return lambda start, stop: _codes_of_objects(coder, objects[start:stop], lambda: column.iloc[start:stop])
    if coder.by_hash and isinstance(column.dtype, np.dtype) and column.dtype.kind in "iub":
        numbers = column.to_numpy()
        return lambda start, stop: coder.codes_of_integers(numbers[start:stop])

    def codes(start: int, stop: int) -> np.ndarray:
        part = column.iloc[start:stop]
        try:
            places, found = part.factorize()
        except TypeError as error:
            raise _no_category(coder, error) from None
        values = plain(found)
        if column.dtype == object and not all(isinstance(value, str) for value in values):
            return _codes_of_objects(coder, part.to_numpy(), lambda: part)  # pandas does not distinguish 1 and True
        return coder.codes(values, places)

    return codes


def _codes_of_objects(coder: Coder, values: np.ndarray, column: Callable[[], Any]) -> np.ndarray:
    """A column's objects as category codes; equal values such as 1 and 1.0 are distinguished by their types."""
    if (codes := coder.codes_of_objects(values)) is not None:
        return codes
    there = ~column().isna().to_numpy()
    places = np.full(len(values), -1)
    try:
        found, places[there] = distinct_objects(values[there])
    except TypeError as error:
        raise _no_category(coder, error) from None
    return coder.codes(found, places)


def _no_category(coder: Coder, error: TypeError) -> InputError:
    return InputError(f"column {coder.column.name!r} holds a value that cannot be a category: {error}")
