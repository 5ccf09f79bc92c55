"""Compare gpuqs with a source library, batch by batch: how much agrees, and what does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuqs.arrays import Documents, as_documents, coded_rows
from gpuqs.engines import ENGINES, LEFT_OUT
from gpuqs.errors import InputError
from gpuqs.forest import Forest
from gpuqs.model import Model
from gpuqs.verify.disagreement import Disagreement, leaf_disagreement, score_disagreement
from gpuqs.verify.frames import category_lists
from gpuqs.verify.sources import Source

#: Numbers of documents for which "auto" may choose different engines.
_BATCHES = (1, 64, 10_000)


@dataclass
class Tally:
    """How one engine's answers compare so far.

    Attributes
    ----------
    engine : str
    leaves, leaves_agree : int
        Rows x trees compared, and those whose exit leaves are the same.
    scores, scores_agree : int
        Raw scores compared (rows x outputs), and those that are the same bit for bit.
    scores_within : int
        Scores that differ, but within the bound that is promised where bits are not.
    values, values_agree : int
        Values (what ``predict`` gives) compared, and those that are the same bit for bit, or both NaN.
    largest, largest_ulps : float, int
        The largest difference between two scores, absolute and in units in the last place.
    """

    engine: str
    leaves: int = 0
    leaves_agree: int = 0
    scores: int = 0
    scores_agree: int = 0
    scores_within: int = 0
    values: int = 0
    values_agree: int = 0
    largest: float = 0.0
    largest_ulps: int = 0

    @property
    def ok(self) -> bool:
        raw_agree = self.leaves_agree == self.leaves and self.scores_agree + self.scores_within == self.scores
        return raw_agree and self.values_agree == self.values


@dataclass
class Certificate:
    """The outcome of a comparison.

    Attributes
    ----------
    source : str
        The library and its version.
    tallies : list of Tally
        One for each engine.
    rows : dict of str to int
        How many rows were compared, by where they came from.
    left_out : int
        Rows with infinite values, which the source library refuses.
    first : Disagreement, optional
        The first disagreement.
    notes : list of str
    frames : list of str
        The first row of a frame about which the two disagree, in readable lines.
    values : list of str
        The first row of which only the values differ, likewise.
    bound : float
        How far scores may lie apart where equal bits are not promised; 0 where they are.
    """

    source: str
    tallies: list[Tally]
    rows: dict[str, int] = field(default_factory=dict)
    left_out: int = 0
    first: Disagreement | None = None
    notes: list[str] = field(default_factory=list)
    frames: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    bound: float = 0.0

    def __repr__(self) -> str:
        engines = ", ".join(tally.engine for tally in self.tallies)
        agrees = "everything agrees" if self.ok else "not everything agrees"
        rows = sum(self.rows.values())
        return f"<gpuqs.verify.Certificate: {self.source} and {engines}, {rows:,} rows, {agrees}>"

    @property
    def ok(self) -> bool:
        """Whether rows were compared, and everything agrees."""
        return sum(self.rows.values()) > 0 and all(tally.ok for tally in self.tallies) and not self.frames


class Check:
    """Compares batch after batch of rows; `certificate` holds the outcome so far.

    Parameters
    ----------
    source : Source
    engines : sequence of str
        Engines to check by name. "auto": those that are chosen for batches of one and of many; "all": every one that
        can run the model.
    forest : Forest, optional
        What to check; by default the source's own.

    Raises
    ------
    InputError
        There is no such engine, or it cannot run the model.
    """

    def __init__(self, source: Source, engines: Sequence[str] = ("auto",), forest: Forest | None = None) -> None:
        self.source = source
        self.model = Model(source.forest if forest is None else forest)
        # Only engines of the CPU are checked.
        able = {name: why for name, why in self.model.engines().items() if ENGINES[name].device == "cpu"}
        names: list[str] = []
        for name in engines:
            if name == "auto":
                names += [self.model.engine_for(n) for n in _BATCHES]
            elif name == "all":
                names += [able_name for able_name, reason in able.items() if reason is None]
            elif name not in able:
                why = LEFT_OUT.get(name, "")
                raise InputError(f"engine {name!r} is not one of auto, all, {', '.join(able)}{why}")
            elif able[name] is not None:
                raise InputError(f"engine {name!r} cannot run this model: {able[name]}")
            else:
                names.append(name)
        self._engines = [Tally(name) for name in dict.fromkeys(names)]
        self.certificate = Certificate(source.name, list(self._engines), notes=source.notes, bound=source.bound())
        self._seen: dict[str, int] = {}
        self._frames = Tally("frames")

    def add(self, X: Any, origin: str, n_threads: int | None = None) -> None:
        """Compare both sides' answers for the rows ``X`` [D, n_features]; ``origin`` says which rows they are.

        Rows are an array or a sparse matrix, which the source library is given as it is; or `Documents`, whose
        categories are codes.
        """
        outcome = self.certificate
        coded = isinstance(X, Documents)
        X = X.chunk(0, X.n) if coded else X
        numbers = self._seen.get(origin, 0) + np.arange(X.shape[0])
        self._seen[origin] = self._seen.get(origin, 0) + X.shape[0]
        if not self.source.takes_infinite and X.dtype.kind == "f":
            finite = ~infinite_rows(X)
            outcome.left_out += int((~finite).sum())
            X, numbers = X[finite], numbers[finite]
        if X.shape[0] == 0:
            return
        outcome.rows[origin] = outcome.rows.get(origin, 0) + X.shape[0]
        X = np.ascontiguousarray(X) if isinstance(X, np.ndarray) else X
        given = coded_rows(X) if coded else X
        leaves = self.source.leaves(given)
        raw, values = self.source.raw(given), self.source.values(given)
        for tally in self._engines:
            ours = self.model.predict(given, "leaf", engine=tally.engine, n_threads=n_threads)
            scores = self.model.predict(given, "raw", engine=tally.engine, n_threads=n_threads).reshape(X.shape[0], -1)
            if scores.shape != raw.shape or scores.dtype != raw.dtype:
                raise InputError(
                    f"{self.source.name} gives scores of shape {raw.shape} and {raw.dtype}, gpuqs {scores.shape} "
                    f"and {scores.dtype}"
                )
            differ, wrong = self._count(tally, ours != leaves, scores, raw)
            apart = differ.any(axis=1) | wrong.any(axis=1)
            if values is not None:
                got = self.model.predict(given, engine=tally.engine, n_threads=n_threads)
                alone = self._count_values(tally, got, values) & ~apart
                if alone.any() and not outcome.values:
                    row = int(np.argmax(alone))
                    outcome.values = [
                        f"first disagreement about values: row {numbers[row]:,} of {origin}",
                        f"  raw scores of both: {raw[row].tolist()}",
                        f"  values: gpuqs ({tally.engine}) {got[row].tolist()}, {outcome.source} "
                        f"{values[row].tolist()}",
                    ]
            if outcome.first is not None or not apart.any():
                continue
            row = int(np.argmax(apart))
            one = X[row : row + 1]
            place = (coded_rows(one) if coded else one, int(numbers[row]), origin, tally.engine)
            if differ[row].any():
                tree = int(np.argmax(differ[row]))
                pair = int(ours[row, tree]), int(leaves[row, tree])
                outcome.first = leaf_disagreement(self.model, self.source, *place, tree, pair)
            else:
                outcome.first = score_disagreement(self.model, self.source, *place, int(np.argmax(wrong[row])))

    def _count_values(self, tally: Tally, ours: np.ndarray, theirs: np.ndarray) -> npt.NDArray[np.bool_]:
        """Count a batch's values; return the rows where some differ."""
        if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
            raise InputError(
                f"{self.certificate.source} gives values of shape {theirs.shape} and {theirs.dtype}, gpuqs "
                f"{ours.shape} and {ours.dtype}"
            )
        same = (ulps_between(ours, theirs) == 0) | (np.isnan(ours) & np.isnan(theirs))
        tally.values += same.size
        tally.values_agree += int(same.sum())
        differ: npt.NDArray[np.bool_] = ~same.reshape(len(same), -1).all(axis=1)
        return differ

    def add_frame(self, frame: Any, origin: str, n_threads: int | None = None, *, ours: Any = None) -> None:
        """Compare both sides' answers for a pandas frame, whose categories each side codes by itself.

        Parameters
        ----------
        frame : pandas.DataFrame
            The model's features, in order.
        origin : str
            Which rows they are.
        n_threads : int, optional
        ours : ndarray, optional
            What gpuqs is given in place of the frame: the same rows, as it read and coded them.
        """
        outcome = self.certificate
        try:
            leaves, raw, values = self.source.leaves(frame), self.source.raw(frame), self.source.values(frame)
        except InputError as error:
            outcome.frames = outcome.frames or [f"{origin}, which gpuqs scores: {error}"]
            return
        if self._frames not in outcome.tallies:
            outcome.tallies.append(self._frames)
        outcome.rows[origin] = outcome.rows.get(origin, 0) + len(frame)
        given = frame if ours is None else coded_rows(ours)
        try:
            got = self.model.predict(given, "leaf", n_threads=n_threads)
        except InputError as error:
            outcome.frames = outcome.frames or [f"gpuqs refuses {origin}, which {outcome.source} scores: {error}"]
            return
        scores = self.model.predict(given, "raw", n_threads=n_threads).reshape(len(frame), -1)
        differ, wrong = self._count(self._frames, got != leaves, scores, raw)
        apart = differ.any(axis=1) | wrong.any(axis=1)
        if values is not None:
            apart |= self._count_values(self._frames, self.model.predict(given, n_threads=n_threads), values)
        bad = np.flatnonzero(apart)
        if len(bad) and not outcome.frames:
            row = int(bad[0])
            shown = frame.iloc[row : row + 1]
            coded = as_documents(shown, self.model.forest).rows(0, 1)[0] if ours is None else ours[row]
            outcome.frames = [
                f"first disagreement about a frame: row {row:,} of a batch of {origin}",
                *(
                    f"  {name!r} = {shown.iloc[0, at]!r}: code {coded[at]:g} in gpuqs"
                    for at, name in enumerate(frame.columns)
                    if at in category_lists(self.model.forest)
                ),
                f"  raw scores: gpuqs {scores[row].tolist()}, {outcome.source} {raw[row].tolist()}",
            ]

    def _count(
        self, tally: Tally, differ: npt.NDArray[np.bool_], ours: np.ndarray, theirs: np.ndarray
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Count a batch's comparison; return where leaves differ, and where scores differ by more than is promised."""
        ulps = ulps_between(ours, theirs)
        with np.errstate(invalid="ignore", over="ignore"):
            distance = np.abs(ours.astype(np.float64) - theirs.astype(np.float64))
        same = ulps == 0
        within = ~same & (distance <= self.certificate.bound) & (self.certificate.bound > 0)
        tally.leaves += differ.size
        tally.leaves_agree += int((~differ).sum())
        tally.scores += same.size
        tally.scores_agree += int(same.sum())
        tally.scores_within += int(within.sum())
        tally.largest = max(tally.largest, float(np.nan_to_num(distance, nan=np.inf).max(initial=0.0)))
        tally.largest_ulps = max(tally.largest_ulps, int(ulps.max(initial=0)))
        return differ, ~same & ~within


def infinite_rows(X: Any) -> npt.NDArray[np.bool_]:
    """Which rows of an array or a sparse matrix hold values that are infinite as float32."""
    if isinstance(X, np.ndarray):
        with np.errstate(over="ignore"):
            return np.atleast_1d(np.isinf(X.astype(np.float32)).any(axis=1))
    infinite = np.zeros(X.shape[0], bool)
    entries = X.tocoo()
    with np.errstate(over="ignore"):
        infinite[entries.row[np.isinf(entries.data.astype(np.float32))]] = True
    return infinite


def ulps_between(a: np.ndarray, b: np.ndarray) -> npt.NDArray[np.uint64]:
    """Distance of two arrays' floats (both float32 or both float64) in representable numbers; 0.0 and -0.0 are 1 apart.

    Returns
    -------
    uint64, the arrays' shape
        0 for equal bits only.
    """
    ordered = []
    for array in (a, b):
        kind = np.uint32 if array.dtype == np.float32 else np.uint64
        bits = np.ascontiguousarray(array).view(kind).astype(np.uint64)
        sign = np.uint64(1) << np.uint64(8 * array.itemsize - 1)
        # Negative numbers, from the largest magnitude to the smallest, come before the others.
        all_bits = sign | (sign - np.uint64(1))
        ordered.append(np.where(bits & sign, bits ^ all_bits, bits | sign))
    distance: npt.NDArray[np.uint64] = np.maximum(*ordered) - np.minimum(*ordered)
    return distance
