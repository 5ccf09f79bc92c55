"""CTRs: the numbers that CatBoost tests where categories are too many to be tested one by one.

A CTR is a statistic that training has collected for a category, or for a combination of categories and tests: how often
it occurred, or what share of its labels was positive. It is looked up for each document, and compared with borders as
other numbers are. So a forest with CTRs has a column for each, after the columns that users give. Documents are read
with the users' columns (`Forest.given`), which hold hashes of categories in place of codes; `Ctrs.documents` makes the
forest's own documents from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuqs.cpu_fallback.ctrs import CtrTable
from gpuqs.ctr_groups import grouped, hashes_of
from gpuqs.errors import ModelFormatError
from gpuqs.forks import lazy


@dataclass(frozen=True, eq=False)
class Projection:
    """A combination of categories and tests that C CTRs count by; training has seen M values of it.

    Parameters
    ----------
    categories : tuple of int
        Columns of categories. Their hashes are combined into a document's key in this order, then the tests' outcomes.
    above : tuple of (int, float, bool)
        Tests of a number: column, the border that it must be above, whether NaN counts as above.
    equals : tuple of (int, int)
        Tests of a category: column, the hash that it must have.
    keys : uint64 [M]
        The keys that training has seen, ascending.
    values : float32 [M + 1, C]
        The CTRs of each key; the last row is for keys that training has not seen.
    """

    categories: tuple[int, ...]
    above: tuple[tuple[int, float, bool], ...]
    equals: tuple[tuple[int, int], ...]
    keys: npt.NDArray[np.uint64]
    values: npt.NDArray[np.float32]

    @property
    def columns(self) -> tuple[int, ...]:
        """The columns that it reads."""
        return (*self.categories, *(test[0] for test in self.above), *(test[0] for test in self.equals))

    def check(self, n_given: int) -> None:
        """Refuse what cannot be computed.

        Raises
        ------
        ModelFormatError
        """
        if not all(0 <= column < n_given for column in self.columns):
            raise ModelFormatError(f"names a column that is not one of {n_given}", field="ctrs")
        if not all(0 <= value < 1 << 32 for _, value in self.equals):
            raise ModelFormatError("names a hash of more than 32 bits", field="ctrs")
        if self.values.ndim != 2 or len(self.values) != len(self.keys) + 1:
            raise ModelFormatError(f"{len(self.values)} values for {len(self.keys)} keys", field="ctrs")
        if not (self.keys[1:] > self.keys[:-1]).all():
            raise ModelFormatError("keys are not in strictly ascending order", field="ctrs")


@dataclass(frozen=True, eq=False)
class Ctrs:
    """The CTRs of a forest, whose columns follow the given ones in the order of the projections.

    Parameters
    ----------
    n_given : int
        Columns that users give.
    codes : dict of int to tuple of int
        For columns whose categories are tested one by one by trees: the categories' hashes, in the order of the codes.
    projections : tuple of Projection
    """

    n_given: int
    codes: dict[int, tuple[int, ...]]
    projections: tuple[Projection, ...]

    def __post_init__(self) -> None:
        for projection in self.projections:
            projection.check(self.n_given)
            projection.keys.setflags(write=False)
            projection.values.setflags(write=False)
        if not all(0 <= column < self.n_given for column in self.codes):
            raise ModelFormatError(f"names a column that is not one of {self.n_given}", field="ctrs")

    def __repr__(self) -> str:
        return f"<gpuqs.Ctrs: {self.n_columns - self.n_given:,} of {len(self.projections):,} projections>"

    @lazy
    def n_columns(self) -> int:
        """Columns of the forest's own documents."""
        return self.n_given + sum(int(projection.values.shape[1]) for projection in self.projections)

    def documents(self, given: npt.NDArray[np.floating[Any]], n_threads: int = 1) -> npt.NDArray[np.float32]:
        """Make a forest's own documents [D, n_columns] from given ones [D, n_given], whose categories are hashes."""
        given = np.asfortranarray(given, np.float64)
        out = np.empty((len(given), self.n_columns), np.float32, order="F")
        with np.errstate(over="ignore"):
            out[:, : self.n_given] = given
        self._table.fill(given, out, n_threads)
        for column, (hashes, order) in self._order.items():
            place = np.minimum(np.searchsorted(hashes, given[:, column]), len(hashes) - 1)
            out[:, column] = np.where(hashes[place] == given[:, column], order[place], np.nan)
        return out

    def met(self, column: int) -> list[int]:
        """Hashes of a column's categories that training has seen, as far as projections of only this column show."""
        met = {*self.codes.get(column, ())}
        for projection in self.projections:
            if projection.columns == projection.categories == (column,):
                met.update(*(hashes.tolist() for _, hashes, _ in hashes_of(projection)))
        return sorted(met)

    @lazy
    def _order(self) -> dict[int, tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]]:
        """The hashes of each column of `codes`, ascending, and their codes."""
        orders = {column: np.argsort(hashes) for column, hashes in self.codes.items() if hashes}
        return {column: (np.array(self.codes[column], np.float64)[order], order) for column, order in orders.items()}

    @lazy
    def _table(self) -> CtrTable:
        return CtrTable(self.projections, grouped(self.projections), self.n_given)

    def __reduce__(self) -> tuple[Any, ...]:
        return Ctrs, (self.n_given, self.codes, self.projections)
