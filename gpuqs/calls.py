"""The general path of a model's calls: what to run, on which documents, into which memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np

from gpuqs import cpu_fallback
from gpuqs.arrays import Documents
from gpuqs.arrays.dense import without_history
from gpuqs.chooser import Chooser
from gpuqs.chunks import MIN_DEEP, pieces, rows_for_cpu, rows_for_gpu, rows_within
from gpuqs.cpu_fallback import Machine
from gpuqs.devices import HOST, Device, GpuDevice
from gpuqs.encoded import EncodedDocuments
from gpuqs.engines import BITSLICE, ENGINES
from gpuqs.engines.cpu import CpuProgram
from gpuqs.errors import InputError
from gpuqs.outputs import Output, Precision, answer_form
from gpuqs.placement import check_out, documents_of, refuse_overlap, refusing_overlap
from gpuqs.plain_calls import PlainWays
from gpuqs.programs import Programs
from gpuqs.repeated_calls import RepeatedCalls
from gpuqs.scoring import Scoring
from gpuqs.stages import staged_answers, stages_at_once
from gpuqs.threads import CODING, LEAF, look_up_cost, look_up_threads, threads_of_call, threads_worth
from gpuqs.tuning.plan import Plan, Way


class Call(NamedTuple):
    """The options of a `Model.predict` call except documents and device, after its keywords are resolved."""

    output: Output = "value"
    n_threads: int | None = None
    out: Any = None
    engine: str | Way = "auto"
    precision: Precision = "exact"
    trees: slice | None = None
    base_margin: Any = None

    @property
    def is_simple(self) -> bool:
        """Whether everything but ``output`` and ``n_threads`` has its default."""
        nothing_given = self.out is None and self.trees is None and self.base_margin is None
        return nothing_given and self.engine == "auto" and self.precision == "exact"


class Memory(NamedTuple):
    """Where an answer is written.

    Attributes
    ----------
    answer : array
        An array of the device where the documents lie.
    out : array or None
        The same memory in the form that the caller gets: their own ``out``, or an array of their library. If None,
        ``answer`` is handed to that library when all work is queued.
    users : tuple of array
        Arrays of libraries whose later work must run after the call's.
    """

    answer: Any
    out: Any
    users: tuple[Any, ...]


class Calls:
    """The calls of a model by one plan. It must not refer to the model: such a cycle would keep the model alive.

    Parameters
    ----------
    programs : Programs
    device : Device
        The device of the model.
    plan : Plan or None

    Attributes
    ----------
    chooser : Chooser
    repeated : RepeatedCalls
    plain : PlainWays or None
        Answers plain calls; None if the model is on a GPU.
    """

    def __init__(self, programs: Programs, device: Device, plan: Plan | None) -> None:
        self._programs, self._forest = programs, programs.forest
        self.chooser, self.repeated = Chooser(programs.forest, programs.reasons, plan), RepeatedCalls()
        self.plain = PlainWays(self.chooser, programs) if device is HOST else None

    def answer(self, X: Any, call: Call, runs_on: Device) -> Any:
        """The answer of `Model.predict`; ``runs_on`` is the active device."""
        here, forest, encoded = cpu_fallback.machine(), self._forest, isinstance(X, EncodedDocuments)
        documents, where = self._documents(X, runs_on, call.engine, here)
        on_host = where is HOST and not encoded
        if on_host and runs_on is HOST and call.is_simple:
            answer = self._plain_answer(documents, call)
            if answer is not None:
                return answer
        way = self._way(call, documents, runs_on, here, encoded)
        scoring = self._scoring(call, way, documents, runs_on, here)
        shape, dtype = answer_form(forest, scoring.program.values, call.output, documents.n)
        memory = _memory(X, call.out, where, shape, dtype)
        rows = documents.n or 1
        if where is not runs_on:
            rows = rows_for_gpu(documents, forest)
        elif on_host:
            rows = self._rows_at_once(scoring, way, documents, here)
        if call.out is not None:
            if on_host:
                documents = refusing_overlap(documents, X, forest, memory.answer, rows)
            elif where is not HOST:
                refuse_overlap(documents, memory.answer, cast(GpuDevice, where))
        fill = self._filling(scoring, call, where)
        margin = self._margin(call.base_margin, documents.n)
        look_ups = look_up_threads(forest, documents.n, call.n_threads)
        try:
            for start, stop in pieces(documents.n, rows):
                one = fill if margin is None else partial(fill, margin=margin[start:stop])
                runs_on.run(one, documents.rows(start, stop, look_ups), memory.answer[start:stop])
            handed = [where.hand_back(memory.answer, array) for array in memory.users]
        except BaseException:  # some of the work may be queued
            for array in memory.users:
                with suppress(Exception):
                    where.hand_back(memory.answer, array)
            raise
        return handed[0] if memory.out is None else memory.out

    def staged(self, X: Any, call: Call, ends: Sequence[int]) -> Iterator[np.ndarray] | None:
        """The answers of `Model.staged_predict` on the host; None where no compiled engine runs the forest."""
        here, forest, encoded = cpu_fallback.machine(), self._forest, isinstance(X, EncodedDocuments)
        documents, _ = self._documents(X, HOST, call.engine, here)
        encodes = not encoded and self._programs.reasons[BITSLICE] is None and not forest.has_linear_leaves
        large = documents.copied and documents.n > rows_for_cpu(documents, forest)
        if encodes and (large or len(ends) > stages_at_once(forest, documents.n)):
            # Encoded documents take at most an eighth of the memory of rows.
            documents, encoded = _as_a_whole(self.encode(documents, call.n_threads, here)), True
        way = self._way(call, documents, HOST, here, encoded)
        scoring = self._scoring(call, way, documents, HOST, here, n_stages=len(ends))
        if not isinstance(scoring.program, CpuProgram):
            return None
        rows = documents.rows(0, documents.n, look_up_threads(forest, documents.n, call.n_threads))
        at_once = (documents.n or 1) if encoded else self._rows_at_once(scoring, way, documents, here)
        return staged_answers(scoring, rows, ends, at_once, self._margin(call.base_margin, documents.n))

    def encode(self, documents: Documents, n_threads: int | None, machine: Machine) -> Any:
        """Ranks of documents, as `bitslice` reads them."""
        forest = self._forest
        way = self.chooser.way_of(BITSLICE, documents.n, machine)
        program = self._programs.get(BITSLICE, "exact", None, documents.narrow, machine=machine, params=way.params)
        step = max(512, rows_for_cpu(documents, forest) // 512 * 512)  # whole blocks of every engine
        of_document = look_up_cost(forest) + CODING * len(forest.tested)
        threads = threads_of_call(threads_worth(lambda n_threads: documents.n * of_document / n_threads), n_threads)
        chunks = (documents.rows(at, min(at + step, documents.n), threads) for at in range(0, documents.n, step))
        return program.scorer.encode(chunks, documents.n, threads)  # type: ignore[attr-defined]

    def _documents(self, X: Any, device: Device, engine: str | Way, machine: Machine) -> tuple[Documents, Device]:
        """Documents, and the device where they lie."""
        if not isinstance(X, EncodedDocuments):
            return documents_of(X, self._forest, device)
        if X.programs is not self._programs or X.isa != machine.isa:
            raise InputError("X was encoded by another model or for another instruction set; encode it again")
        if engine not in ("auto", BITSLICE):
            raise InputError(f"encoded documents are scored by engine {BITSLICE!r}, not {engine!r}")
        return _as_a_whole(X.coded), HOST

    def _plain_answer(self, documents: Documents, call: Call) -> Any:
        """The answer by the plain path, for documents that had to be converted; None if that path does not apply."""
        if call.output not in ("value", "raw") or self.plain is None:
            return None
        if documents.n > rows_for_cpu(documents, self._forest):
            return None
        plain = self.plain.narrow if documents.narrow else self.plain.exact
        if plain is None:
            return None
        rows = documents.rows(0, documents.n, look_up_threads(self._forest, documents.n, call.n_threads))
        threads = 0 if call.n_threads is None else cpu_fallback.effective_threads(call.n_threads)
        return plain.raw(rows, threads) if call.output == "raw" else plain.values(rows, threads)

    def _way(self, call: Call, documents: Documents, runs_on: Device, machine: Machine, encoded: bool) -> Way:
        """The engine and its parameters."""
        if isinstance(call.engine, Way):
            return call.engine
        if not encoded and call.engine == "auto":
            return self.chooser.way(documents.n, runs_on, machine)
        return self.chooser.way_of(BITSLICE if encoded else call.engine, documents.n, machine)

    def _scoring(
        self, call: Call, way: Way, documents: Documents, runs_on: Device, machine: Machine, n_stages: int = 0
    ) -> Scoring:
        """What is computed for each chunk; ``n_stages``: answers for each document in a staged prediction."""
        forest, narrow, n = self._forest, documents.narrow, documents.n
        of_engine = way.engine, call.precision, call.trees, narrow, runs_on, machine, way.params
        program = self._programs.get(*of_engine, n_documents=n)
        if call.output == "per_tree":
            forest = self._programs.part(call.trees, narrow)
        n_answers = len(program.values.trees) if call.output in ("leaf", "per_tree") else n_stages
        n_threads = threads_of_call(self.chooser.threads(way, n, machine, LEAF * n_answers), call.n_threads)
        return Scoring(forest, ENGINES[way.engine], program, runs_on, call.output, n_threads)

    def _rows_at_once(self, scoring: Scoring, way: Way, documents: Documents, machine: Machine) -> int:
        """Documents on the host that are scored between two checks for signals."""
        threads = scoring.n_threads
        if documents.n > MIN_DEEP and threads > 1:
            threads = min(threads, cpu_fallback.default_threads())
        rows = rows_for_cpu(documents, self._forest, scoring.output, threads)
        if documents.n <= MIN_DEEP:
            return rows
        of_thread = -(-rows // threads)
        us = self.chooser.warm_cost(way.engine, of_thread, machine)
        if us is None:  # the reference, which uses one thread, and memory for each document
            return rows_for_cpu(documents, self._forest, scoring.output)
        writing = LEAF * len(scoring.program.values.trees) if scoring.output == "leaf" else 0.0
        return rows_within(us + of_thread * writing, rows, threads)

    def _filling(self, scoring: Scoring, call: Call, where: Device) -> Callable[..., None]:
        """The function that fills an answer for a chunk of documents, or replays the launches that did so before."""
        whole = call.trees is None and call.base_margin is None
        repeats = call.engine == "auto" and whole and self._forest.n_trees > 0
        if not repeats or scoring.device is HOST:
            return scoring.fill
        callers, fresh = where is scoring.device, call.out is None or where is HOST  # not the caller's device memory
        device = cast(GpuDevice, scoring.device)
        return self.repeated.filling(scoring.fill, device, call.output, call.precision, callers=callers, record=fresh)

    def _margin(self, base_margin: Any, n: int) -> np.ndarray | None:
        """``base_margin`` as [n, n_outputs], in the type of the sums."""
        if base_margin is None:
            return None
        n_outputs = self._forest.n_outputs
        try:
            margin = np.asarray(without_history(base_margin)).astype(self._forest.sum_dtype, casting="same_kind")
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"base_margin must hold numbers: {error}") from error
        if margin.ndim == 1 and margin.size == n * n_outputs:  # document by document, as in XGBoost
            margin = margin.reshape(n, n_outputs)
        if margin.shape != (n, n_outputs):
            raise InputError(f"base_margin has shape {margin.shape}, not {(n, n_outputs)}")
        return margin


def _memory(X: Any, out: Any, where: Device, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Memory:
    """The caller's ``out``, or new memory that suits the library of ``X``."""
    if out is not None:
        return Memory(check_out(out, where, shape, dtype), out, (X, out))
    own = where.own_answer(X, shape, dtype)
    if own is not None:
        return Memory(check_out(own, where, shape, dtype), own, (own,))
    return Memory(where.answer_beside(X, shape, dtype), None, (X,))


def _as_a_whole(coded: Any) -> Documents:
    """Encoded documents as `Documents` of a single chunk."""
    def all_of_them(start: int, stop: int) -> Any:
        if (start, stop) != (0, len(coded)):
            raise ValueError("encoded documents are scored as a whole")
        return coded

    return Documents(len(coded), all_of_them)
