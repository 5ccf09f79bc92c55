"""The parts of a table: points (a model, a batch, a place in the table) and rows (systems and their parameters)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

Given = Mapping[str, int | str]
#: The parameter choices of a row's system at a point; the fastest one gives the row's time.
Choices = Callable[["Point"], tuple[Given, ...]]


@dataclass(frozen=True)
class Spec:
    """A model: the first trees of one training."""

    shape: str
    trees: int
    leaves: int
    oblivious: bool = False

    def called(self, real: bool) -> str:
        """The model's name, which says whether it was trained on real or on made-up documents of the shape."""
        kind = "CatBoost, oblivious" if self.oblivious else "LightGBM lambdarank"
        return f"{self.shape}{', real' if real else '-like'}, {kind}, {self.trees:,} x {self.leaves}"


@dataclass(frozen=True)
class Point:
    """One place on a table's axis.

    Parameters
    ----------
    panel, x : str, int or str
        Its place in the paper's table.
    model : Spec
    documents : int
    given : tuple of (parameter, value)
        Parameters of all systems that have them.
    """

    panel: str
    x: int | str
    model: Spec
    documents: int
    given: tuple[tuple[str, int], ...] = ()


def nothing(_: Point) -> tuple[Given, ...]:
    """Give no parameters: all of a system's parameters are tuned."""
    return ({},)


@dataclass(frozen=True)
class Row:
    """A line of a table.

    Parameters
    ----------
    label : str
        Its name in the paper.
    systems : tuple of str
        Systems of the papers, of which the fastest counts; or one engine of gpuqs, or "auto".
    choices : callable
    ours : bool
        Whether the row is ours and not in the paper.
    """

    label: str
    systems: tuple[str, ...]
    choices: Choices = nothing
    ours: bool = False


@dataclass(frozen=True)
class Counted:
    """What is counted for which rows and points; panels are named after counters and, if asked, the points' panels."""

    counters: tuple[str, ...]
    points: tuple[Point, ...]
    rows: tuple[Row, ...]
    by_panel: bool = False


@dataclass(frozen=True)
class Unit:
    """The unit to which a table converts microseconds per document."""

    name: str
    of: Callable[[float, Point], float]


MICROSECONDS = Unit("us a document", lambda us, point: us)
NANOSECONDS = Unit("ns a document and tree", lambda us, point: us * 1e3 / point.model.trees)
#: Queries of ten documents each.
QUERIES = Unit("queries a second", lambda us, point: 1e5 / us)


@dataclass(frozen=True)
class Table:
    """A table or figure of a paper.

    Parameters
    ----------
    name : str
        The paper's number and the table's, "F" before a figure's.
    title : str
    points, rows : tuples
        The points and rows that are timed.
    base : str
        The row that ratios are taken to.
    unit : Unit
    x_name : str
    counted : Counted, optional
    selects : bool
        Whether each point is a choice of blocking parameters (paper 004, Table 5), and no table of times.
    notes : tuple of str
    """

    name: str
    title: str
    points: tuple[Point, ...]
    rows: tuple[Row, ...]
    base: str
    unit: Unit = MICROSECONDS
    x_name: str = "trees"
    counted: Counted | None = None
    selects: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scale:
    """How much of the tables is run.

    Parameters
    ----------
    quick : bool
        A hundredth of the trees, few documents, two points of each panel.
    rounds, budget : int, float
        For a group of contenders: maximum number of rounds, and seconds after which no further round starts.
    max_generated : int
        Largest number of nodes of forests that are compiled as programs.
    """

    quick: bool = False
    rounds: int = 100
    budget: float = 5.0
    max_generated: int = 75_000

    def reduced(self, points: tuple[Point, ...], ends: int = 2) -> tuple[Point, ...]:
        """The points to run, in their reduced size; a quick run keeps each panel's last point, or both ends."""
        if not self.quick:
            return points
        kept: dict[str, list[Point]] = {}
        for point in points:
            kept.setdefault(point.panel, []).append(point)
        few = [point for of in kept.values() for point in dict.fromkeys((of[0], of[-1])[-ends:])]
        return tuple(self._small(point) for point in few)

    def _small(self, point: Point) -> Point:
        model = replace(point.model, trees=max(10, point.model.trees // 100))
        given = tuple((p, min(value, 50)) for p, value in point.given)
        return replace(point, model=model, documents=min(point.documents, 100), given=given)


QUICK = Scale(quick=True, rounds=3, budget=0.2, max_generated=200)
