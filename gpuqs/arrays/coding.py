"""How the columns of a table become numbers: one plan for frames, Arrow tables and batches of files.

A plan depends only on the columns' types and the model's `Schema`; values are coded as they come.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpuqs.cpu_fallback.ctrs import integer_hashes, object_hashes, text_hashes
from gpuqs.errors import InputError
from gpuqs.forest import Forest
from gpuqs.forks import lazy
from gpuqs.schema import LOST, Schema
from gpuqs.text_hashes import are_hashes, hash_of_name

_HOW = (
    "pass an array of codes, or give its categories by the feature's name in the model or by its number: "
    "gpuqs.load(path, categories={feature: values in code order}), gpuqs.from_model(model, categories=...)"
)

_MEND = (
    "make the same columns category columns as in training, or say which they are: "
    "gpuqs.load(path, categories=[column, ...]), gpuqs.from_model(model, categories=...), or --category COLUMN on the "
    "command line; or pass an array of codes (on the command line, a .npy or svmlight file)"
)


class Kind(Enum):
    """The kind of a column's values, as far as coding is concerned."""

    WHOLE = "integers"
    FRACTION = "fractions"
    TRUTH = "truth values"
    CATEGORY = "categories"
    TEXT = "texts"
    OTHER = "something else"


#: Kinds that are numbers without coding.
NUMBERS = (Kind.WHOLE, Kind.FRACTION, Kind.TRUTH)


class Column(NamedTuple):
    """A table's column that is a feature: its name, what its type is called ("dtype"), the type, and its kind."""

    name: str
    called: str
    type: Any
    kind: Kind


class CodeTable(NamedTuple):
    """The codes of a column's own categories; the last element of each array is for a missing category.

    Parameters
    ----------
    coder : Coder
    values : sequence
        The categories.
    codes : float64 [categories + 1]
        NaN for categories that the model has not seen.
    missing : bool [categories + 1]
        Which of them are missing values.
    """

    coder: Coder
    values: Sequence[Any]
    codes: npt.NDArray[np.float64]
    missing: npt.NDArray[np.bool_]

    def at(self, places: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.float64]:
        """Codes of ``values[places]``; NaN for place -1 (missing) and for categories that the model has not seen.

        Raises
        ------
        InputError
            A value is unseen, or missing, and the model's library refuses that.
        """
        column, schema = self.coder.column, self.coder.schema
        rules, codes = schema.rules, self.codes[places]
        if rules.missing_refused and self.missing[places].any():
            raise InputError(
                f"column {column.name!r} has missing categories, which {schema.library} refuses; write them as a "
                "string, as in training (in CSV, not as an empty field or a word such as NA, which means missing there)"
            )
        if rules.unseen_refused:
            bad = np.flatnonzero(np.isnan(codes) & ~self.missing[places])
            if len(bad):
                value = self.values[places[bad[0]]]
                if isinstance(value, (bytes, tuple)):
                    raise InputError(
                        f"column {column.name!r} holds the category {value!r}, a {type(value).__name__}, which "
                        f"{schema.library} saves only as pieces of a string; train with categories that are strings or "
                        "numbers"
                    )
                raise InputError(
                    f"column {column.name!r} holds the category {value!r}, which the model has not seen and "
                    f"{schema.library} refuses (some of its releases confuse some of these with known categories); "
                    "make it missing (None), or drop the document"
                )
        return np.asarray(codes)


@dataclass(frozen=True)
class Coder:
    """Turns a column's values into category codes.

    Parameters
    ----------
    column : Column
    known : tuple, optional
        The model's categories in code order; None if the values are used as numbers.
    schema : Schema
    """

    column: Column
    known: tuple[Any, ...] | None
    schema: Schema

    def codes(self, values: Sequence[Any], places: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.float64]:
        """Codes of ``values[places]``, as `CodeTable.at` gives them."""
        return self.table(values).at(places)

    @lazy
    def by_hash(self) -> bool:
        """Whether codes are looked up by the hashes of strings and integers."""
        return self.known is not None and (self.schema.hashed or self.schema.rules.as_texts or self._are_hashes)

    def codes_of_hashes(self, hashes: npt.NDArray[np.uint32]) -> npt.NDArray[np.float64]:
        """Codes of hashes; NaN for hashes that the model has not seen."""
        if self.schema.hashed:
            return hashes.astype(np.float64)
        known, codes = self._codes_by_hash
        places = np.searchsorted(known, hashes)
        return np.where(known[places] == hashes, codes[places], np.nan)

    def codes_of_integers(self, values: np.ndarray) -> npt.NDArray[np.float64]:
        """Codes of integers or booleans; `by_hash` must hold."""
        return self.codes_of_hashes(integer_hashes(values))

    def codes_of_objects(self, values: np.ndarray) -> npt.NDArray[np.float64] | None:
        """Codes of objects if `by_hash` holds and all are strings or integers; else None."""
        found = None
        if self.by_hash:
            with suppress(UnicodeEncodeError):  # raised again, with the column, when they are coded one by one
                found = object_hashes(values)
        return None if found is None else self.codes_of_hashes(found)

    def table(self, values: Sequence[Any]) -> CodeTable:
        """The codes of a column's own categories.

        Raises
        ------
        InputError
            Values that cannot be the model's categories.
        """
        missing = np.array([value is None or value != value for value in values] + [True])
        return CodeTable(self, values, np.append(self._codes(values), np.nan), missing)

    def _codes(self, values: Sequence[Any]) -> npt.NDArray[np.float64]:
        """Codes by value, as in pandas: 1 equals 1.0, but not "1"."""
        if self.known is None:
            if all(isinstance(value, (int, float)) for value in values):
                return np.array([*map(float, values)])
            raise self._refusal()
        if self.by_hash:
            codes = self.codes_of_hashes(self._hashes(values))
            return np.where([value is None for value in values], np.nan, codes)
        if len(values) == len(self.known) and list(values) == list(self.known):
            return np.arange(len(self.known), dtype=np.float64)
        if {_of_one_type(values), self._type} == {"truth values", "numbers"}:
            return np.full(len(values), np.nan)  # pandas then distinguishes True from 1
        code = self._code
        if self._type == "numbers" and any(isinstance(value, float) for value in values):
            code = {float(value): number for value, number in code.items()}  # pandas compares both as float64
            if len(code) < len(self._code):
                raise InputError(
                    f"column {self.column.name!r} holds floats, too imprecise to tell the model's categories, such as "
                    f"{self.known[:2]}, apart; pass integers, as in training"
                )
        try:
            return np.array([code.get(value, np.nan) for value in values])
        except TypeError:
            raise self._refusal() from None

    def _hashes(self, values: Sequence[Any]) -> npt.NDArray[np.uint32]:
        try:
            found: npt.NDArray[np.uint32] = text_hashes([*map(self._text, values)])
            return found
        except UnicodeEncodeError as error:
            raise InputError(f"column {self.column.name!r} holds a string that is not Unicode: {error}") from None

    @lazy
    def _are_hashes(self) -> bool:
        return are_hashes(self.known or ())

    @lazy
    def _type(self) -> str:
        return _of_one_type(self.known or ())

    @lazy
    def _code(self) -> dict[Any, float]:
        return {value: float(number) for number, value in enumerate(self.known or ())}

    @lazy
    def _codes_by_hash(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
        """The hashes of the model's strings, ascending, and their codes; then a hash that no string has.

        Like the libraries that compare strings by hash, this confuses strings of equal hashes.
        """
        texts = [value for value in self._code if isinstance(value, str)]
        hashes = [*map(hash_of_name, texts)] if self._are_hashes else text_hashes(texts).tolist()
        code_of = {hashed: self._code[text] for hashed, text in zip(hashes, texts, strict=True)}
        known = sorted(code_of)
        return np.array([*known, 1 << 32]), np.array([*(code_of[hashed] for hashed in known), np.nan])

    def _text(self, value: Any) -> str | None:
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, int):
            return str(int(value))  # True is "1"
        raise InputError(
            f"column {self.column.name!r} holds the category {value!r}; {self.schema.library}'s categories are "
            "strings and integers; convert it as in training"
        )

    def _refusal(self) -> InputError:
        of_catboost = self.schema.rules.as_texts  # its models say which columns hold categories
        return _no_number(self.column, "make it numbers, as in training" if of_catboost else _HOW)


def _no_number(column: Column, how: str) -> InputError:
    how = "convert it, or leave it out" if column.kind is Kind.OTHER else how
    if column.kind is Kind.TEXT or str(column.type) == "object":  # in pandas these may hold numbers nevertheless
        how = f"if it holds numbers, cast it (in pandas, X[column].astype(float)); else {how}"
    return InputError(f"column {column.name!r} has {column.called} {column.type}, not a number; {how}")


def coders_of(columns: Sequence[Column], forest: Forest) -> list[Coder | None]:
    """How to code the model's features, in their order; None where a column holds plain numbers.

    Raises
    ------
    InputError
        A column is not numeric and cannot be coded, or the category columns are not the model's.
    """
    schema = forest.schema
    known = list(schema.categories) or [None] * len(columns)
    kinds = [column.kind for column in columns]
    coded = [at for at, kind in enumerate(kinds) if kind in (Kind.CATEGORY, Kind.TEXT)]
    if schema.in_order:
        # As LightGBM does: the table's category columns, in order, are those of the training frame.
        if len(coded) != len(schema.in_order):
            raise _wrong_number(columns, coded, schema)
        if (doubtful := _doubtful_text(columns, coded, forest)) is not None:
            raise doubtful
        for at, values in zip(coded, schema.in_order, strict=True):
            known[at] = values
    for at in schema.lost:
        if kinds[at] in (Kind.CATEGORY, Kind.TEXT):
            raise InputError(f"column {columns[at].name!r} has {columns[at].called} {columns[at].type}, {LOST}")
        if schema.rules.numbers_refused and kinds[at] in NUMBERS:
            raise InputError(
                f"column {columns[at].name!r} holds numbers, but the model's categories are strings, which its file "
                "does not hold intact; if the numbers are codes, pass an array of them"
            )
    return [
        _coder(column, values, schema, at in schema.stated)
        for at, (column, values) in enumerate(zip(columns, known, strict=True))
    ]


def _coder(column: Column, known: tuple[Any, ...] | None, schema: Schema, stated: bool) -> Coder | None:
    rules, coder = schema.rules, Coder(column, known, schema)
    if known is None:
        if column.kind in NUMBERS:
            return None
        if column.kind is Kind.CATEGORY and rules.levels_are_numbers:
            return coder
        raise coder._refusal()
    or_codes = "" if rules.values_in_arrays else ", or pass an array of codes"
    if column.kind in NUMBERS:
        if known and all(isinstance(value, str) for value in known) and not are_hashes(known):
            what = "nothing (type null)" if str(column.type) == "null" else "numbers"
            raise InputError(
                f"column {column.name!r} holds {what}, but the model's categories are strings, such as "
                f"{known[:1]}; make it a column of strings{or_codes}"
            )
        if (rules.numbers_refused and not stated) or (rules.as_texts and column.kind is Kind.FRACTION):
            # Columns of CSV files are read as fractions, whatever they hold.
            what = "numbers" if rules.numbers_refused else column.kind.value
            such_as = f" such as {known[:2]}" if known else ""
            mend = (
                "a category column as in training, or state that it holds categories, so that its numbers are coded by "
                "value: gpuqs.load(path, categories=[column]).save(...), or --category COLUMN on the command "
                f"line{or_codes}"
            )
            if rules.as_texts:
                mend = "a column of integers or of strings, as in training"
            raise InputError(
                f"column {column.name!r} holds {what}, which {schema.library} does not accept as "
                f"categories{such_as}; make it {mend}"
            )
    elif column.kind is Kind.OTHER:
        raise coder._refusal()
    return coder


def _doubtful_text(columns: Sequence[Column], coded: list[int], forest: Forest) -> InputError | None:
    """The error if string columns, which LightGBM itself refuses, may not be its category columns; else None."""
    texts = [at for at in coded if columns[at].kind is Kind.TEXT]
    if not texts:
        return None
    for at in texts:
        if at in forest.tested_as_numbers or at not in forest.tested_as_categories:
            how = "compare it as numbers" if at in forest.tested_as_numbers else "do not test it as categories"
            return InputError(
                f"column {columns[at].name!r} holds strings, but the model's trees {how}; pass numbers if it was not a "
                f"category column of the training frame; {_MEND}"
            )
    uncoded = sorted(forest.tested_as_categories.difference(coded))
    if not uncoded:
        return None
    column = columns[uncoded[0]]
    return InputError(
        f"column {column.name!r} holds {column.kind.value}, but the model's trees test it as categories, and "
        f"column {columns[texts[0]].name!r}, which holds strings, seems to be in its place; {_MEND}"
    )


def _wrong_number(columns: Sequence[Column], places: list[int], schema: Schema) -> InputError:
    others = [column for column in columns if column.kind is Kind.OTHER]
    if others:
        return _no_number(others[0], _HOW)
    coded = [columns[at] for at in places]
    lists = "; ".join(f"{len(values)} such as {values[:2]}" for values in schema.in_order[:3])
    n = len(schema.in_order)
    empty = next((column for column in columns if str(column.type) == "null"), None)
    hint = "" if empty is None else f" (column {empty.name!r} has type null, so that it holds no categories)"
    if any(str(column.type) == "object" for column in coded):
        hint += " (objects count as categories: cast those that are numbers, in pandas by X[column].astype(float))"
    are = ", ".join(repr(column.name) for column in coded[:5]) + (", ..." if len(coded) > 5 else "")
    return InputError(
        f"the model was trained on a frame with {n} category column{'s' * (n > 1)} ({lists}), and X has "
        f"{len(coded)}{': ' if coded else ''}{are}{hint}; {_MEND}"
    )


def _of_one_type(values: Sequence[Any]) -> str:
    if values and all(isinstance(value, bool) for value in values):
        return "truth values"
    if values and all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in values):
        return "numbers"
    return "others"


def plain(values: Any) -> list[Any]:
    """Values as Python's own types."""
    return [value.item() if isinstance(value, np.generic) else value for value in values]


def distinct_objects(values: np.ndarray) -> tuple[list[Any], npt.NDArray[np.int64]]:
    """The distinct objects among ``values``, and each value's place among them; 1, 1.0 and True count as distinct.

    Raises
    ------
    TypeError
        A value cannot be hashed, such as a list.
    """
    items = [(type(value), value) for value in plain(values)]
    place_of = {item: place for place, item in enumerate(dict.fromkeys(items))}
    return [value for _, value in place_of], np.array([place_of[item] for item in items], np.int64)
