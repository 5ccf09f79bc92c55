"""Hypothesis strategies for tables of numbers and categories, and their equivalents in every kind of table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

N_ROWS = 100

Frame = Any
TEXTS = ["red", "green", "blue", "b", "Blue ", "größe", "7"]


#: Possible categories: distinct values that differ from their codes.
LEVELS: dict[str, list[Any]] = {
    "text": TEXTS,
    "ASCII": [text for text in TEXTS if text.isascii()],
    "whole": [10, 20, 30, 3, 2, 1, -5],
    "fraction": [0.5, 1.5, 2.0, 10.25, -1.0],
    "positive": [10, 20, 30, 3, 2, 1, 0],
    "truth": [False, True],
}
NUMBERS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "float": lambda rng, n: np.where(rng.random(n) < 0.1, np.nan, rng.normal(size=n)),
    "float32": lambda rng, n: rng.normal(size=n).astype(np.float32),
    "int": lambda rng, n: rng.integers(-3, 4, n),
    "bool": lambda rng, n: rng.random(n) < 0.5,
    "constant": lambda rng, n: np.full(n, 2.5),
}


@dataclass
class Table:
    """The frame to train on, another to score, and which of their columns hold categories."""

    train: Frame
    score: Frame
    categories: list[str]
    target: np.ndarray


@dataclass(frozen=True)
class Column:
    """A column: one of `NUMBERS`, or "category"."""

    kind: str
    spaced: bool = False
    levels: tuple[Any, ...] = ()
    ordered: bool = False
    constant: bool = False
    missing: bool = False


@dataclass(frozen=True)
class Drawn:
    """A table described by its columns, so that a failing example prints how to rebuild it."""

    columns: tuple[Column, ...]
    seed: int

    def table(self) -> Table:
        rng, n = np.random.default_rng(self.seed), 2 * N_ROWS
        both: dict[str, Any] = {}
        target, categories = rng.normal(size=n) * 0.1, []
        for at, column in enumerate(self.columns):
            name = f"col {at}" if column.spaced else f"c{at}"
            if column.kind == "category":
                code = np.zeros(n, int) if column.constant else rng.integers(0, len(column.levels), n)
                if column.missing:
                    code[rng.random(n) < 0.2] = -1
                categories.append(name)
                both[name] = pd.Categorical.from_codes(code, list(column.levels), ordered=column.ordered)
                target += rng.normal(size=8)[code] * 3
            else:
                both[name] = NUMBERS[column.kind](rng, n)
                target += np.nan_to_num(np.asarray(both[name], float)) * rng.normal()
        both["last"] = rng.normal(size=n)
        frame = pd.DataFrame(both)
        train, score = (part.reset_index(drop=True) for part in (frame.iloc[:N_ROWS], frame.iloc[N_ROWS:]))
        return Table(train, score, categories, target[:N_ROWS])


def _levels(kind: str) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.permutations(LEVELS[kind]).flatmap(lambda all_: st.integers(2, len(all_)).map(lambda n: tuple(all_[:n])))


def tables(kinds: tuple[str, ...], missing: bool = True) -> st.SearchStrategy[Drawn]:
    """Tables of numbers and categories of ``kinds``, some constant, some ordered, with missing values if allowed."""
    spaced = st.booleans()
    numbers = st.builds(Column, st.sampled_from(list(NUMBERS)), spaced)
    categories = st.builds(
        Column,
        st.just("category"),
        spaced,
        st.sampled_from(kinds).flatmap(_levels),
        ordered=st.booleans(),
        constant=st.sampled_from([False, False, False, True]),
        missing=st.booleans() if missing else st.just(False),
    )
    columns = st.lists(st.one_of(numbers, categories), min_size=2, max_size=6).map(tuple)
    return st.builds(Drawn, columns, st.integers(0, 2**32 - 1))


def changed(table: Table, rng: np.random.Generator) -> Frame:
    """The frame to score with levels in another order, some removed, some unseen in training."""
    frame = table.score.copy()
    for name in table.categories:
        levels = list(frame[name].cat.categories)
        new = [*levels, "never seen" if isinstance(levels[0], str) else 99] if len(levels) > 2 else levels
        frame[name] = frame[name].cat.set_categories([new[i] for i in rng.permutation(len(new))])
        if rng.random() < 0.3 and len(new) > len(levels):
            frame.loc[rng.random(len(frame)) < 0.1, name] = new[-1]
        if rng.random() < 0.3:
            frame[name] = frame[name].cat.remove_unused_categories()
        if rng.random() < 0.3:
            frame[name] = frame[name].cat.as_ordered()
    return frame


# -- kinds of tables ----------------------------------------------------------------------


def nullable(frame: Frame, rng: np.random.Generator) -> Frame:
    to = {"float64": "Float64", "float32": "Float32", "int64": "Int64", "bool": "boolean"}
    return frame.astype({name: to[str(kind)] for name, kind in frame.dtypes.items() if str(kind) in to})


def arrow_backed(frame: Frame, rng: np.random.Generator) -> Frame:
    plain = [name for name, kind in frame.dtypes.items() if str(kind) != "category"]
    frame = frame.assign(**{name: frame[name].convert_dtypes(dtype_backend="pyarrow") for name in plain})
    for name in set(frame.columns) - set(plain):
        if rng.random() < 0.5:
            frame[name] = pd.Series(pd.arrays.ArrowExtensionArray(pa.chunked_array([pa.array(frame[name])])))
    return frame


def texts(frame: Frame, rng: np.random.Generator) -> Frame:
    """Category columns of strings as plain string columns."""
    of_texts = [name for name, kind in frame.dtypes.items() if str(kind) == "category" and holds_texts(frame[name])]
    return frame.astype({name: object if rng.random() < 0.5 else "str" for name in of_texts})


def holds_texts(column: Any) -> bool:
    return all(isinstance(level, str) for level in column.cat.categories)


def unsigned_codes(frame: Frame, rng: np.random.Generator) -> Any:
    """An Arrow table in several chunks whose dictionaries have unsigned indices."""
    table = pa.Table.from_pandas(frame, preserve_index=False)
    for at, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            kind = pa.dictionary(pa.uint8(), field.type.value_type)
            table = table.set_column(at, field.name, table.column(at).cast(kind))
    return pa.concat_tables([table.slice(0, 50), table.slice(50)])


def polars(frame: Frame, rng: np.random.Generator) -> Any:
    frame = pl.from_pandas(frame)
    names = [name for name, kind in frame.schema.items() if kind == pl.Categorical]
    enums = [name for name in names if rng.random() < 0.5]
    levels = {name: frame[name].cast(pl.String).drop_nulls().unique().to_list() for name in enums}
    return frame.with_columns(pl.col(name).cast(pl.String).cast(pl.Enum(levels[name])) for name in enums)


def shuffled(frame: Frame, rng: np.random.Generator) -> Frame:
    return frame.assign(other=1.0)[rng.permutation([*frame.columns, "other"])]


def unaligned(frame: Frame, rng: np.random.Generator) -> Frame:
    """The frame with float64 columns in unaligned memory, as worker processes get it."""
    out = frame.copy()
    for name in frame.columns[frame.dtypes == np.float64]:
        view = np.zeros(8 * len(frame) + 1, np.uint8)[1:].view(np.float64)
        view[:] = frame[name]
        out[name] = pd.Series(view, copy=False)
    return out


KINDS: dict[str, Callable[[Frame, np.random.Generator], Any]] = {
    "as it is": lambda frame, rng: frame,
    "shuffled": shuffled,
    "nullable": nullable,
    "Arrow-backed": arrow_backed,
    "texts": texts,
    "unaligned": unaligned,
    "Arrow": lambda frame, rng: pa.Table.from_pandas(frame, preserve_index=False),
    "Arrow, unsigned": unsigned_codes,
    "polars": polars,
}
