"""A Plan: which engine, parameters and threads score batches of some sizes, and what was predicted and measured."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gpuqs.engines import ENGINES, LEFT_OUT
from gpuqs.engines.parameters import Changed, changed
from gpuqs.errors import ModelFormatError
from gpuqs.tuning.machine import Target

#: Upper limit of sizes in a plan. A file that exceeds this limit or one of the next does not hold a plan of ours.
MAX_SIZES = 64
#: Upper limit of candidates of a size.
MAX_CANDIDATES = 64
#: Upper limit of parameters of a candidate.
MAX_PARAMS = 16
#: Upper limit of characters in a string.
MAX_TEXT = 200
#: Upper limit of any number.
MAX_NUMBER = 1 << 40
#: A tuned size is used for calls with at most this many times as many documents, or as few.
NEAR = 1.5
#: A size of at least this many documents, by the kind of device, is used for any larger call, too: each block takes as
#: long. On a GPU the fixed cost of a call may decide which way is best for up to a million documents.
MANY = {"cpu": 1000, "cuda": 1 << 20}


@dataclass(frozen=True)
class Way:
    """How a batch is scored.

    Parameters
    ----------
    engine : str
    params : tuple of (str, int)
        The engine's parameters that do not have their defaults, as `gpuqs.engines.parameters.changed` gives them.
    n_threads : int or None
        None: as many as the call's predicted cost is worth.
    planned : bool
        Whether the way comes from the model's plan. Ways that differ only in this are equal.
    """

    engine: str
    params: Changed = ()
    n_threads: int | None = None
    planned: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Candidate:
    """A `Way` that a plan may choose, with its costs.

    Parameters
    ----------
    engine : str
    params : tuple of (str, int)
        The engine's parameters that do not have their defaults.
    n_threads : int
    predicted, measured : float or None
        Microseconds of a call with warm caches; None if not predicted, or not measured.

    Raises
    ------
    ValueError
        A plan that holds it could not be used, or not be saved and read again. `Tuned` and `Plan` raise it likewise.
    """

    engine: str
    params: Changed
    n_threads: int
    predicted: float | None = None
    measured: float | None = None

    def __post_init__(self) -> None:
        _check_text(self.engine, "engine")
        _check_tuple(self.params, "params", MAX_PARAMS)
        for name, value in self.params:
            _check_text(name, "params")
            _check_whole(value, "params", -MAX_NUMBER)
        _check_whole(self.n_threads, "n_threads", 1)
        _check_microseconds(self.predicted, "predicted")
        _check_microseconds(self.measured, "measured")

    @property
    def way(self) -> Way:
        return Way(self.engine, self.params, self.n_threads)

    @property
    def label(self) -> str:
        """The way, for people."""
        threads = f"{self.n_threads} thread" + ("" if self.n_threads == 1 else "s")
        on_cpu = self.engine not in ENGINES or ENGINES[self.engine].device == "cpu"
        params = (f"{name} {value:,}" for name, value in self.params)
        return ", ".join([self.engine, *params, *([threads] if on_cpu else [])])


@dataclass(frozen=True)
class Tuned:
    """What was found for batches of one size.

    Parameters
    ----------
    n_documents : int
    chosen, default : int
        Index of the candidate that is used, and of the one that would be used without a plan.
    candidates : tuple of Candidate
        From `Model.tune`: the chosen one, then the others that were measured, fastest first, then the rest.
    """

    n_documents: int
    chosen: int
    default: int
    candidates: tuple[Candidate, ...]

    def __post_init__(self) -> None:
        _check_whole(self.n_documents, "n_documents", 1)
        _check_tuple(self.candidates, "candidates", MAX_CANDIDATES)
        _check_whole(self.chosen, "chosen", 0, len(self.candidates) - 1)
        _check_whole(self.default, "default", 0, len(self.candidates) - 1)

    @property
    def best(self) -> Candidate:
        return self.candidates[self.chosen]


@dataclass(frozen=True)
class Plan:
    """What `Model.tune` found: print it for a table.

    It changes how fast a model scores, never a score. It is used only on the kind of processor or GPU on
    which it was made.

    Parameters
    ----------
    gpuqs : str
        The version that made it.
    processor, isa : str
    compiled : bool
        As in a `gpuqs.tuning.machine.Target`.
    sizes : tuple of Tuned
        In ascending order of documents.
    """

    gpuqs: str
    processor: str
    isa: str
    compiled: bool
    sizes: tuple[Tuned, ...]

    def __post_init__(self) -> None:
        for name in ("gpuqs", "processor", "isa"):
            _check_text(getattr(self, name), name)
        if not isinstance(self.compiled, bool):
            raise NoPlanError("compiled", "is not true or false")
        _check_tuple(self.sizes, "sizes", MAX_SIZES)
        counts = [tuned.n_documents for tuned in self.sizes]
        if not counts or counts != sorted(set(counts)):
            raise NoPlanError("sizes", "are not in ascending order")

    @property
    def target(self) -> Target:
        """What it was made on."""
        return Target(self.processor, self.isa, self.compiled)

    @property
    def many(self) -> int:
        """`MANY` for the device."""
        return MANY[self.target.kind]

    def for_batch(self, n_documents: int) -> Tuned | None:
        """The tuned size that decides how ``n_documents`` are scored; None: they are scored as without a plan.

        It is the nearest one, if that is at most `NEAR` times as many documents or as few. Calls larger than all sizes
        use the largest one if it is at least `MANY`.
        """
        n_documents, largest = max(n_documents, 1), self.sizes[-1]
        if n_documents > largest.n_documents >= self.many:
            return largest

        def ratio(tuned: Tuned) -> float:
            return max(tuned.n_documents, n_documents) / min(tuned.n_documents, n_documents)

        nearest = min(self.sizes, key=ratio)
        return nearest if ratio(nearest) <= NEAR else None

    def why_not(self, here: Target, reasons: Mapping[str, str | None]) -> str | None:
        """None if the plan is to be used, else the reason why not.

        Parameters
        ----------
        here : Target
            The device or machine that is to score.
        reasons : mapping of str to (str or None)
            Every engine's name, with None if it can run the forest, else the reason why not.
        """
        on_gpu = self.target.kind == "cuda"
        if self.target.kind != here.kind:
            made, other = ("a GPU", "the CPU") if on_gpu else ("the CPU", "a GPU")
            return f"it was made on {made} ({self.processor}), and this is {other}"
        if self.processor != here.processor:
            return f"it was made on another {'GPU' if on_gpu else 'machine'} ({self.processor})"
        if self.target != here:
            made = f"{self.isa}, {'machine code' if self.compiled else 'programs interpreted'}"
            return f"it was made for {made}"
        for tuned in self.sizes:
            reason = unusable(tuned.best, reasons, here.kind)
            if reason is not None:
                return reason
        return None

    def __str__(self) -> str:
        made = "" if self.target.kind == "cuda" else f", {'machine code' if self.compiled else 'programs interpreted'}"
        head = f"Plan for {self.processor} ({self.isa}{made})"
        return "\n".join([head, *(table(tuned, measured_alone=True) for tuned in self.sizes)])

    __repr__ = __str__


def unusable(candidate: Candidate, reasons: Mapping[str, str | None], kind: str) -> str | None:
    """Why a plan's candidate cannot be used on a kind of device, else None; ``reasons``: see `Plan.why_not`."""
    engine = candidate.engine
    if engine not in ENGINES or ENGINES[engine].device != kind:
        return f"it names engine {engine!r}, which this gpuqs does not have{LEFT_OUT.get(engine, '')}"
    if ENGINES[engine].own_sums:
        return f"it names engine {engine!r}, whose exact sums may differ in the last bits"
    if reasons.get(engine) is not None:
        return f"it names engine {engine!r}, which cannot run this model: {reasons[engine]}"
    try:
        changed(engine, ENGINES[engine].parameters, dict(candidate.params))
    except (ValueError, TypeError) as error:
        return str(error)
    return None


def table(tuned: Tuned, measured_alone: bool = False) -> str:
    """A table of one size's candidates, or of those measured, with their predicted and measured costs."""
    lines = [f"{tuned.n_documents:,} documents a call: us predicted, measured"]
    for at, candidate in enumerate(tuned.candidates):
        if measured_alone and candidate.measured is None and at not in (tuned.chosen, tuned.default):
            continue
        mark = "->" if at == tuned.chosen else "  "
        costs = (f"{'-' if cost is None else f'{cost:,.1f}':>12}" for cost in (candidate.predicted, candidate.measured))
        default = "  (the default)" if at == tuned.default else ""
        lines.append(f"{mark}{''.join(costs)}   {candidate.label}{default}")
    if left_out := 1 + len(tuned.candidates) - len(lines):
        lines.append(f"{'':26}   and {left_out} not measured: explain({tuned.n_documents}) lists them")
    return "\n".join(lines)


# -- to a file and back ---------------------------------------------------------------------------


def to_json(plan: Plan) -> dict[str, Any]:
    """The plan as JSON values."""
    sizes = [
        {
            "n_documents": tuned.n_documents,
            "chosen": tuned.chosen,
            "default": tuned.default,
            "candidates": [
                {
                    "engine": c.engine,
                    "params": dict(c.params),
                    "n_threads": c.n_threads,
                    "predicted": c.predicted,
                    "measured": c.measured,
                }
                for c in tuned.candidates
            ],
        }
        for tuned in plan.sizes
    ]
    head = {"gpuqs": plan.gpuqs, "processor": plan.processor, "isa": plan.isa, "compiled": plan.compiled}
    return {**head, "sizes": sizes}


def from_json(kept: Any) -> Plan:
    """The plan of a file, which is not trusted; engines and values that are unknown here are left to `Plan.why_not`.

    Raises
    ------
    ModelFormatError
        It is not a plan.
    """
    try:
        plan = _object(kept, "plan")
        sizes = tuple(_tuned(entry) for entry in _list(plan.get("sizes"), "sizes"))
        return Plan(sizes=sizes, **_named(plan, "gpuqs", "processor", "isa", "compiled"))
    except NoPlanError as error:
        problem = f"{error.problem}; tune the model again, or save it without its plan"
        raise ModelFormatError(problem, field=f"plan: {error.field}") from None


def _tuned(entry: Any) -> Tuned:
    entry = _object(entry, "sizes")
    candidates = tuple(_candidate(candidate) for candidate in _list(entry.get("candidates"), "candidates"))
    return Tuned(candidates=candidates, **_named(entry, "n_documents", "chosen", "default"))


def _candidate(entry: Any) -> Candidate:
    entry = _object(entry, "candidates")
    params = tuple(_object(entry.get("params"), "params").items())
    return Candidate(params=params, **_named(entry, "engine", "n_threads", "predicted", "measured"))


def _named(entry: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: entry.get(name) for name in names}


def _object(value: Any, field: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise NoPlanError(field, "is not an object")
    return value


def _list(value: Any, field: str) -> list[Any]:
    if not isinstance(value, list):
        raise NoPlanError(field, "is not an array")
    return value


# -- what a plan may hold -------------------------------------------------------------------------


class NoPlanError(ValueError):
    """What a plan cannot hold."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"a plan's {field} {problem}")
        self.field, self.problem = field, problem


def _check_tuple(value: Any, field: str, most: int) -> None:
    if not isinstance(value, tuple) or len(value) > most:
        raise NoPlanError(field, f"is not a sequence of up to {most}")


def _check_text(value: Any, field: str) -> None:
    if not isinstance(value, str) or len(value) > MAX_TEXT or not value.isprintable():
        raise NoPlanError(field, "is not a short string")


def _check_whole(value: Any, field: str, low: int, high: int = MAX_NUMBER) -> None:
    if type(value) is not int or not low <= value <= high:
        raise NoPlanError(field, f"is not an integer in [{low}, {high}]")


def _check_microseconds(value: Any, field: str) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value is not None and not (number and 0 <= value <= MAX_NUMBER):  # NaN fails this
        raise NoPlanError(field, "is not a number of microseconds")
