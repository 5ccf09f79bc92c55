"""Schema: what the columns of a document are, as the training library saw them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from gpuqs.errors import InputError, ModelFormatError
from gpuqs.forks import lazy
from gpuqs.text_hashes import are_hashes

#: LightGBM's made-up names of features without names begin so, followed by the feature's number.
_MADE_UP: Final = "Column_"

#: The message about a column of `Schema.lost`.
LOST: Final = (
    "whose categories hold non-ASCII strings: XGBoost before 3.4 truncates those of pandas frames, compares the "
    "truncated ones, and does not record what kind of frame they came from; pass an array of codes, or train with "
    "categories in ASCII"
)

#: Types of categories that models keep.
_VALUES: Final = (str, int, float)


@dataclass(frozen=True)
class Rules:
    """How a training library reads the columns of tables.

    Parameters
    ----------
    unseen_refused : bool
        A category that training has not seen is an error; else it is missing.
    missing_refused : bool
        A missing category is an error.
    numbers_refused : bool
        Numbers in a column of categories are an error; else they are categories by value.
    as_texts : bool
        Categories are compared as strings (7 and True are "7" and "1"), and fractions are refused.
    values_in_arrays : bool
        Integers in arrays are categories by value, as in tables, and floating-point arrays are refused; else arrays
        hold codes.
    levels_are_numbers : bool
        A category column for which the model has no categories stands for the numbers that it holds;
        else it is an error.
    common_type : bool
        Numbers of several types are converted to a common type before they become float32.
    """

    unseen_refused: bool = False
    missing_refused: bool = False
    numbers_refused: bool = False
    as_texts: bool = False
    values_in_arrays: bool = False
    levels_are_numbers: bool = False
    common_type: bool = False


#: Each library's rules; "" is for formats without tables.
RULES: Final = {
    "": Rules(),
    "LightGBM": Rules(),
    "XGBoost": Rules(unseen_refused=True, numbers_refused=True),
    "CatBoost": Rules(missing_refused=True, as_texts=True, values_in_arrays=True),
    "scikit-learn": Rules(levels_are_numbers=True, common_type=True),
}


@dataclass(frozen=True)
class Schema:
    """The columns of a document: how frames, tables, sparse matrices and files are converted to numbers.

    Parameters
    ----------
    names : tuple of str
        Empty, or one name per feature.
    categories : tuple of (tuple or None)
        Empty, or per feature None (numbers) or its categories' values (str, int, float, bool) in code order, by
        which string and category columns are coded. Arrays hold codes, except with `Rules.values_in_arrays`.
    absent : float
        What an entry that a sparse row leaves out means to the source library: 0.0, or NaN (missing).
    in_order : tuple of tuple
        Categories of columns whose positions the model file does not give (LightGBM): those of the training
        frame's category columns, in that frame's order. Not together with ``categories``.
    library : str
        The library by whose rules tables are coded: a key of `RULES`.
    stated : tuple of int
        Features whose categories the caller stated: numbers stand for them by value, whatever the library's rules.
    lost : tuple of int
        Categorical features whose categories the model file does not hold intact: strings cannot be coded.
    objects_as_float64 : bool
        Numbers in object arrays become float64; else `Forest.integer_dtype`, like those in lists.
    hashed : bool
        Documents' categories become hashes of their strings, whatever codes the model has for them (`gpuqs.ctrs`).
    missing : float, optional
        The number, rounded to float32, that means a missing value besides NaN: ``XGBModel(missing=...)``.
    """

    names: tuple[str, ...] = ()
    categories: tuple[tuple[Any, ...] | None, ...] = ()
    absent: float = 0.0
    in_order: tuple[tuple[Any, ...], ...] = ()
    library: str = ""
    stated: tuple[int, ...] = ()
    lost: tuple[int, ...] = ()
    objects_as_float64: bool = False
    hashed: bool = False
    missing: float | None = None

    def __post_init__(self) -> None:
        if not (self.absent == 0 or math.isnan(self.absent)):
            raise ValueError(f"Schema.absent is {self.absent!r}, not 0.0 or NaN")
        if self.library not in RULES:
            raise ValueError(f"Schema.library is {self.library!r}, not one of {', '.join(map(repr, RULES))}")
        if self.in_order and any(known is not None for known in self.categories):
            raise ValueError("Schema.in_order and Schema.categories are both given")

    @property
    def rules(self) -> Rules:
        return RULES[self.library]

    @property
    def arrays_hold_values(self) -> bool:
        """Whether arrays hold categories by value, not by code."""
        return self.rules.values_in_arrays and self.has_categories

    @property
    def arrays_as_they_are(self) -> bool:
        """Whether arrays are read as they are: they hold codes, and only NaN is missing."""
        return not self.arrays_hold_values and self.missing is None

    @property
    def has_categories(self) -> bool:
        """Whether some column holds categories."""
        return bool(self.in_order) or any(known is not None for known in self.categories)

    @property
    def has_names(self) -> bool:
        """Whether there are names that LightGBM did not make up."""
        return any(self.library != "LightGBM" or name != f"{_MADE_UP}{at}" for at, name in enumerate(self.names))

    def stored(self, column: str) -> str:
        """What the source library calls a column of this name: LightGBM stores blanks as underscores."""
        return column.replace(" ", "_") if self.library == "LightGBM" else column

    def name_of(self, feature: int) -> str:
        """The name of a feature in messages."""
        return repr(self.names[feature]) if self.names else f"number {feature}"

    def __repr__(self) -> str:
        names = ", ".join(self.names[:3]) + (f", ... ({len(self.names):,} columns)" if len(self.names) > 3 else "")
        coded = len(self.in_order) or sum(known is not None for known in self.categories)
        absent = "missing" if math.isnan(self.absent) else "0"
        return f"<gpuqs.Schema: {names or 'no names'}; {coded:,} with categories; absent is {absent}>"

    @lazy
    def has_hashes(self) -> bool:
        """Whether categories are named after their hashes, because their strings are not known."""
        return any(are_hashes(categories) for categories in self.categories if categories)

    def check(self, n_features: int) -> None:
        """Refuse a schema for another number of columns.

        Raises
        ------
        ModelFormatError
        """
        for field in ("names", "categories"):
            values = getattr(self, field)
            if values and len(values) != n_features:
                name = "feature_names" if field == "names" else field
                what = "feature names" if field == "names" else "columns' categories"
                raise ModelFormatError(f"{len(values)} {what} for {n_features} features", field=name)
        for field in ("stated", "lost"):
            if not all(0 <= feature < n_features for feature in getattr(self, field)):
                problem = f"names a feature that is not one of the model's {n_features}"
                raise ModelFormatError(problem, field=f"categories_{field}")
        if len(self.in_order) > n_features:
            raise ModelFormatError(
                f"{len(self.in_order)} lists of categories for {n_features} features", field="categories"
            )

    def placed(
        self, categories: Mapping[str | int, Sequence[Any]] | Sequence[str | int], n_features: int
    ) -> Schema:
        """The schema with the positions of its category columns filled in.

        Parameters
        ----------
        categories : mapping or sequence
            Each category column, by name or number, with its categories in code order; or only the columns, if the
            model holds lists of categories, with or without their positions.
        n_features : int

        Raises
        ------
        InputError
            A column does not exist, the lists are not the model's, or categories are not valid.
        """
        if isinstance(categories, str) or not isinstance(categories, (Mapping, Sequence)):
            raise InputError(
                f"categories is a {type(categories).__name__}; pass {{column: its categories in code order}}, or "
                "the names of the category columns where the model keeps their categories"
            )
        columns = [self._feature(column, n_features) for column in categories]
        if len(set(columns)) < len(columns):
            raise InputError("categories names a column twice")
        columns.sort()
        numeric = [column for column in columns if self.rules.as_texts and self._kept(column) is None]
        if numeric:
            known = [self.name_of(at) for at, values in enumerate(self.categories) if values is not None]
            its = ", ".join(known[:5]) + (", ..." if len(known) > 5 else "")
            raise InputError(
                f"categories names {self.name_of(numeric[0])}, a numeric column of the {self.library} model; "
                f"its category columns are {its or 'none'}"
            )
        lost = [column for column in columns if column in self.lost]
        if lost:
            raise InputError(f"categories names {self.name_of(lost[0])}, {LOST}")
        if isinstance(categories, Mapping):
            given = {self._feature(column, n_features): _checked(v, column) for column, v in categories.items()}
            lists = tuple(given[column] for column in columns)
            if self.rules.as_texts and any(given[column] != self._kept(column) for column in columns):
                raise InputError(
                    f"categories gives {_shown(lists)}, but {self.library}'s models hold their own categories; "
                    "leave it out, or give only the columns' names"
                )
            if self.in_order and lists != self.in_order:
                raise InputError(
                    f"categories gives {_shown(lists)}, but the model keeps {_shown(self.in_order)} for its category "
                    "columns, in their order; pass only the names of these columns"
                )
        elif len(columns) == len(self.in_order):
            lists = self.in_order
        elif not self.in_order and columns and all(self._kept(at) is not None for at in columns):
            lists = tuple(self._kept(at) or () for at in columns)
        elif self.in_order:
            raise InputError(
                f"categories names {len(columns)} columns, but the model keeps categories of {len(self.in_order)}: "
                f"{_shown(self.in_order)}"
            )
        else:
            unknown = [column for column in categories if self._kept(self._feature(column, n_features)) is None]
            raise InputError(
                f"the model keeps no categories of {_shown(unknown)}; "
                "pass {column: its categories in code order}"
            )
        placed = list(self.categories) or [None] * n_features
        for column, values in zip(columns, lists, strict=True):
            placed[column] = values
        stated = tuple(sorted({*self.stated, *columns}))
        return replace(self, categories=tuple(placed), in_order=(), stated=stated)

    def _kept(self, feature: int) -> tuple[Any, ...] | None:
        """The categories that the model has for a feature."""
        return self.categories[feature] if self.categories else None

    def _feature(self, column: str | int, n_features: int) -> int:
        if isinstance(column, str):
            for name in (column, self.stored(column)):
                if name in self.names:
                    return self.names.index(name)
        elif isinstance(column, int) and not isinstance(column, bool) and 0 <= column < n_features:
            return column
        called = f"called {_shown(self.names)}" if self.names else f"numbered 0 to {n_features - 1}"
        raise InputError(f"categories names {column!r}, not one of the model's {n_features} features, {called}")


def _checked(values: Any, column: str | int) -> tuple[Any, ...]:
    """Categories as a user gives them, as plain distinct values."""
    if isinstance(values, (str, bytes)) or not hasattr(values, "__iter__"):
        raise InputError(f"the categories of {column!r} are a {type(values).__name__}; pass a list of values")
    plain = tuple(value.item() if hasattr(value, "item") else value for value in values)
    for value in plain:
        if not isinstance(value, _VALUES) or value != value:
            raise InputError(f"the categories of {column!r} hold {value!r}; they must be strings, numbers or booleans")
    if len(set(plain)) < len(plain):
        raise InputError(f"the categories of {column!r} hold a value twice")
    return plain


def _shown(values: Sequence[Any]) -> str:
    """A few of many values, for messages."""
    texts = [f"({_shown(value)})" if isinstance(value, tuple) else repr(value) for value in values[:5]]
    return ", ".join(texts) + (", ..." if len(values) > 5 else "")
