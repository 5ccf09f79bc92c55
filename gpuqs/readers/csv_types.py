"""What the columns of CSV text are read as: by the model's schema, and by the first values in a column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gpuqs.arrays.arrow_tables import kind_of_arrow
from gpuqs.arrays.coding import NUMBERS, Kind
from gpuqs.errors import InputError
from gpuqs.forest import Forest
from gpuqs.readers.headers import MISSING
from gpuqs.schema import Schema
from gpuqs.text_hashes import holds

#: How to say which columns hold categories, where the model does not.
TELL: Final = "say which columns hold categories: --category COLUMN, or gpuqs.load(path, categories=[column, ...])"

#: Spellings that Arrow and pandas read as bools.
_TRUTHS: Final = ("True", "False", "TRUE", "FALSE", "true", "false")


class ColumnTypes:
    """What to read the features' columns as.

    Where the model says that a column holds strings, it is read as such; otherwise its first values decide, however
    far down they come. Until then the column is `blank`. A model may say how many string columns there are, and which
    columns its trees test as categories (LightGBM): then blank ones that can be among them are expected to be.

    Parameters
    ----------
    forest : Forest
    names : list of str
        What the features' columns are called.
    path : object
        What messages call the file.

    Attributes
    ----------
    blank : set of int
        Features whose columns have held nothing so far.
    types : list of str
        Names of Arrow's types, feature by feature; blank columns become these when they are read.
    """

    def __init__(self, forest: Forest, names: list[str], path: object) -> None:
        self._schema = forest.schema
        self._tested = forest.tested_as_categories
        self._names = names
        self._path = path
        self._kinds: list[Kind | None] = [None] * len(names)
        self._awaited: set[int] = set()
        self.blank = set(range(len(names))) if forest.schema.has_categories else set()
        self.types = ["float64"] * len(names)
        self._refuse_missing_spellings(dict(enumerate(forest.schema.categories)))

    def see(self, types: Mapping[int, Any]) -> None:
        """Record Arrow's types of blank columns' values; its null is the type of columns that still hold none."""
        for at, arrow_type in types.items():
            if str(arrow_type) != "null":
                self.blank.discard(at)
                self._kinds[at] = kind_of_arrow(arrow_type)
        self._decide()

    def awaitable(self) -> set[int]:
        """Blank columns that would complete the model's number of string columns if they held strings; else none."""
        tested = self.blank & self._tested
        return tested if len(self._texts()) + len(tested) == len(self._schema.in_order) else set()

    def await_texts(self) -> None:
        """Expect strings in the columns that are `awaitable`."""
        self._awaited = self.awaitable()
        self._decide()

    def check(self, feature: int, value: str, line: int) -> None:
        """Refuse the first value of a blank column if what was read before is wrong because of it."""
        is_text = self._kinds[feature] not in NUMBERS
        if self._schema.in_order and is_text != (feature in self._awaited):
            raise InputError(
                f"{self._path}, line {line}, column {self._names[feature]!r}: {value!r}, the column's first value, is "
                f"not {'a number' if is_text else 'a string'}, though the other columns suggest that the column holds "
                f"{'numbers' if is_text else 'categories that are strings'}; {TELL}"
            )
        self._awaited.discard(feature)

    def finish(self) -> None:
        """Refuse columns in which strings were expected, and which hold nothing in the whole file."""
        if self._awaited:
            name = self._names[min(self._awaited)]
            raise InputError(
                f"{self._path}: column {name!r} is empty, so the model's categories may belong to another column; "
                f"{TELL}"
            )

    def _decide(self) -> None:
        schema = self._schema
        if schema.in_order:
            texts = sorted([*self._texts(), *self._awaited])
            if len(texts) == len(schema.in_order):
                self._refuse_missing_spellings(dict(zip(texts, schema.in_order, strict=True)))
            self.types = ["bool" if kind is Kind.TRUTH else "float64" for kind in self._kinds]
            for at in texts:
                self.types[at] = "string"
        elif schema.categories:
            columns = zip(schema.categories, self._kinds, strict=True)
            self.types = [_type_of(*column, schema) for column in columns]

    def _texts(self) -> list[int]:
        return [at for at, kind in enumerate(self._kinds) if kind is not None and kind not in NUMBERS]

    def _refuse_missing_spellings(self, known: dict[int, tuple[Any, ...] | None]) -> None:
        """Refuse features with a category whose string means a missing value in CSV."""
        for feature, values in known.items():
            held = {value for value in values or () if isinstance(value, str)}
            spelling = next((text for text in MISSING if holds(held, text)), None)
            if spelling is not None:
                raise InputError(
                    f"{self._path}: the model has the category {spelling!r} in column {self._names[feature]!r}, but "
                    "in CSV this means a missing value; write the documents as Parquet"
                )


def _type_of(known: tuple[Any, ...] | None, kind: Kind | None, schema: Schema) -> str:
    """What to read a column as, by the model's categories and the kind of its values (None: nothing yet)."""
    if known is None:
        return "bool" if kind is Kind.TRUTH else "float64"
    if known and all(isinstance(value, bool) for value in known):
        return "bool"
    if schema.rules.as_texts and kind is Kind.TRUTH:
        return _type_of_truths(frozenset(known), not schema.hashed)
    texts = schema.rules.as_texts or all(isinstance(value, str) for value in known)
    if not texts and any(isinstance(value, str) for value in known):
        raise InputError(
            f"the model has both strings and numbers among a column's categories, such as {known[:3]}, and CSV does "
            "not say which of them a cell holds; write the documents as Parquet"
        )
    return "string" if texts else "float64"


def _type_of_truths(known: frozenset[Any], all_known: bool) -> str:
    """What to read a column of bools as, by the model's categories, which are compared as strings."""
    text = next((text for text in _TRUTHS if holds(known, text)), None)
    number = next((text for text in "10" if holds(known, text)), None)
    both = text is not None and number is not None
    if both or (text is None and number is None and not all_known):
        has = f"the model has both {text!r} and {number!r}" if both else "the model does not say what is"
        raise InputError(
            f"{has} among a column's categories, and CSV does not say whether a column of True and False holds these "
            "strings or booleans, which are compared as 1 and 0; write the documents as Parquet"
        )
    return "string" if number is None else "bool"
