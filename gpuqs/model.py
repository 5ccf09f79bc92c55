"""Model: the façade through which users score documents, on the CPU and on GPUs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, SupportsIndex

import numpy as np

from gpuqs import cpu_fallback
from gpuqs.arrays import Documents, as_documents
from gpuqs.chunks import pieces, rows_for_cpu, rows_for_gpu
from gpuqs.devices import HOST, Device, find_device
from gpuqs.encoded import EncodedDocuments
from gpuqs.engines import BITSLICE, ENGINES
from gpuqs.errors import InputError
from gpuqs.explanation import Chooser, Explanation
from gpuqs.forest import Forest
from gpuqs.forks import Lock, lazy
from gpuqs.keywords import output_and_trees, truth, whole
from gpuqs.outputs import Output, Precision, answer_form, check_options
from gpuqs.placement import apart, check_out, documents_of, place
from gpuqs.plain_calls import plain_calls, plain_first
from gpuqs.programs import Programs
from gpuqs.scoring import Scoring
from gpuqs.threads import threads_of_call
from gpuqs.tuning.plan import Plan, Way


class Model:
    """A forest that scores documents; immutable, shared freely between threads.

    Made by `gpuqs.load` and `gpuqs.from_model`.

    Parameters
    ----------
    forest : Forest
    plan : Plan, optional
        What `tune` found for it before.

    Attributes
    ----------
    forest : Forest
    device : Device
        Where it scores unless a call says otherwise: the host, or what `to` was given.
    """

    def __init__(self, forest: Forest, plan: Plan | None = None) -> None:
        self._bind(Programs(forest), HOST, plan)

    def _bind(self, programs: Programs, device: Device, plan: Plan | None) -> None:
        self.forest, self.device = programs.forest, device
        self._programs = programs
        self._chooser = Chooser(programs.forest, programs.reasons, plan)
        self._plain_narrow: tuple[Chooser, cpu_fallback.PlainCalls | None] | None = None
        self._elsewhere: dict[Any, Model] = {}
        self._lock = Lock()

    def __repr__(self) -> str:
        where = "" if self.device is HOST else f", on {self.device!r}"
        return f"<gpuqs.Model: {self.forest.summary}{where}>"

    @property
    def n_features(self) -> int:
        return self.forest.n_features

    @property
    def n_trees(self) -> int:
        return self.forest.n_trees

    @property
    def n_leaves(self) -> int:
        """Λ: the largest number of leaves of one tree."""
        return self.forest.n_leaves

    @property
    def n_outputs(self) -> int:
        return self.forest.n_outputs

    @property
    def n_iterations(self) -> int:
        """Boosting iterations, each of one tree or several, that ``iteration_range`` counts."""
        return self.forest.n_iterations

    @property
    def best_iteration(self) -> int | None:
        """The best iteration that early stopping found, as the source library counts; None where it is not known.

        LightGBM counts from 1: ``num_iteration=best_iteration`` stops there. XGBoost and CatBoost count
        from 0: ``iteration_range=(0, best_iteration + 1)`` does. LightGBM's files do not hold it.
        """
        return self.forest.best_iteration

    @property
    def feature_names(self) -> tuple[str, ...]:
        return self.forest.feature_names

    @property
    def plan(self) -> Plan | None:
        """What `tune` found, here or before the model was saved; None where it was not tuned."""
        return self._chooser.plan

    def engines(self) -> dict[str, str | None]:
        """Every engine's name, with None where it can run this model here, else the reason why not."""
        return self._chooser.reasons_on(self.device)

    def engine_for(self, n_documents: int) -> str:
        """The engine that ``engine="auto"`` uses for so many documents: by the plan, or as predicted the fastest."""
        return self._chooser.way(whole(n_documents, "n_documents", 0), self.device, cpu_fallback.machine()).engine

    def explain(self, n_documents: int = 10_000) -> Explanation:
        """Say which engine would score so many documents, and why: print the result."""
        return self._chooser.explain(whole(n_documents, "n_documents", 0), self.device, cpu_fallback.machine())

    @plain_first
    def predict(
        self,
        X: Any,
        output: Output = "value",
        *,
        n_threads: int | None = None,
        out: Any = None,
        engine: str = "auto",
        precision: Precision = "exact",
        trees: slice | None = None,
        base_margin: Any = None,
        device: int | str | None = None,
        raw_score: bool = False,
        output_margin: bool = False,
        pred_leaf: bool = False,
        pred_contrib: bool = False,
        start_iteration: SupportsIndex = 0,
        num_iteration: SupportsIndex | None = None,
        iteration_range: Sequence[int] | None = None,
    ) -> Any:
        """Score documents.

        Parameters
        ----------
        X : array-like [D, n_features] or EncodedDocuments
            NumPy array (float32, float64 or integers; C or F order, any strides), nested list,
            pandas frame or Arrow table (columns by name), scipy.sparse matrix or array (an absent entry
            is what the source library takes it for: missing for XGBoost and Treelite, else 0); never
            copied beyond one chunk. Arrays hold category codes, but for CatBoost whole numbers that are
            categories themselves. Or what `encode` made of one. Or an array on a GPU (CuPy, PyTorch,
            JAX, Numba; float32, float64 or integers): it is scored there, on the current CuPy stream, and the
            answer comes back as the same library's array.
        output : {"value", "raw", "class", "leaf", "per_tree"}
            "value": what the source library's ``predict`` gives (probabilities and the like).
            "raw": sums before the link. "class": the likeliest class's label (of multi-label models 0
            or 1 for each output). "leaf": the source library's exit leaf numbers, always as int32 [D, n_trees]
            (XGBoost's are float32, and [D] of a single tree). "per_tree": the exit
            leaves' values, tree by tree.
        n_threads : int, optional
            Threads to use, at most four for each processor. By default one for few documents, else one for
            each processor that the process may use: its affinity, its control groups' quotas,
            ``OMP_NUM_THREADS`` and ``threadpoolctl`` say how many these are. -1: so many for few documents
            too, -2: one less, and so on, as joblib's ``n_jobs``.
        out : array, optional
            Where the answer goes: C order, on X's side, the shape and dtype given below.
        engine : str
            "auto", or one of `engines`; "qs_gpu", "bitslice_gpu" and "walk_gpu" run on a GPU.
        precision : {"exact", "fast"}
            "exact": the source library's sums, bit for bit. "fast": leaf values rounded once to a
            24-bit fixed-point grid and summed as integers: the same bits from every engine,
            instruction set, number of threads and split of the batch. The "exact" sums of "qs_gpu" have an order
            of their own: the same bits every time, within n_trees ulps of the sum of the leaf values' magnitudes.
        trees : slice, optional
            Only these trees, as ``slice(0, 100)``, for staged prediction. The base score is added to every
            range (CatBoost drops its bias where a range does not start at 0); of no trees it is all there is,
            but averages (values of LightGBM's random forests) of none are NaN.
        base_margin : array-like [D] or [D, n_outputs], optional
            What each document's sums begin with in place of the model's base score, in raw-score
            units, as XGBoost's ``base_margin``.
        device : int or str, optional
            "cuda", "cuda:1" or 1: score documents of the host on that GPU, as ``to(device)`` does.
            "cpu": on the host. By default documents are scored where they lie. Work on documents that lie on a
            GPU is queued, and the call returns at once; the first call with a precision and range of trees copies
            the model, and waits for that. A call may be captured in a CUDA graph if the same call was made once
            before; the memory that it uses then stays on the device for good.
        raw_score, output_margin : bool
            LightGBM's and XGBoost's names of ``output="raw"``.
        pred_leaf : bool
            Both libraries' name of ``output="leaf"``.
        pred_contrib : bool
            Is not offered: True is refused.
        start_iteration, num_iteration : int, optional
            As in LightGBM: so many iterations from the first one named on; None or less than 1 is all that
            follow, and what lies past the end is passed over. Of a live model that stopped early only
            the iterations up to its best are here.
        iteration_range : (int, int), optional
            As in XGBoost: the iterations from the first number on, up to the second or, where that is 0, to
            the end.

        Returns
        -------
        array
            NumPy's, or of X's library where X lies on a GPU.
            "value" and "raw": [D], or [D, n_outputs] where the model has several (values of XGBoost's
            multi:softmax, which are labels: [D]); of the type in which the source library sums (float32
            for XGBoost, float64 for most others). "class":
            [D], of the labels' type. "leaf": int32 [D, n_trees]. "per_tree": [D, n_trees], or
            [D, n_trees, n_outputs] where leaves hold vectors.

        Raises
        ------
        InputError
            ``X``, ``out`` or ``base_margin`` has the wrong shape or type.
        ValueError
            There is no such output, engine or iteration, or keywords contradict each other.
        DeviceError
            A GPU was asked for, and a package, a driver or the device is missing; or a call is captured in a CUDA
            graph, and something would have to be copied or compiled first.
        """
        output, trees = output_and_trees(
            self.forest,
            output,
            trees,
            raw_score=raw_score,
            output_margin=output_margin,
            pred_leaf=pred_leaf,
            pred_contrib=pred_contrib,
            start_iteration=start_iteration,
            num_iteration=num_iteration,
            iteration_range=iteration_range,
        )
        check_options(self.forest, output, precision, engine)
        asked = self.device if device is None and self.device is not HOST else device
        runs_on = place(self.forest, X, asked, engine, output, base_margin)
        if runs_on is HOST:
            return self._answer(X, output, n_threads, out, engine, precision, trees, base_margin, runs_on)
        with runs_on.active():
            return self._answer(X, output, n_threads, out, engine, precision, trees, base_margin, runs_on)

    def _answer(
        self,
        X: Any,
        output: Output,
        n_threads: int | None,
        out: Any,
        engine: str | Way,
        precision: Precision,
        trees: slice | None,
        base_margin: Any,
        runs_on: Device,
    ) -> Any:
        """The answer of `predict`, once its keywords are read and the device is chosen."""
        here, encoded = cpu_fallback.machine(), isinstance(X, EncodedDocuments)
        documents, where = self._documents(X, runs_on, engine, here[0])
        plain = engine == "auto" and precision == "exact" and where is runs_on is HOST and not encoded
        if plain and n_threads is None and out is None and trees is None and base_margin is None:
            answer = self._answer_plain(documents, output)
            if answer is not None:
                return answer
        if engine == "auto":
            engine = BITSLICE if encoded else self._chooser.way(documents.n, runs_on, here)
        way = Way(engine) if isinstance(engine, str) else engine
        program = self._programs.get(way.engine, precision, trees, documents.narrow, runs_on, here, way.params)
        shape, dtype = answer_form(self.forest, program.values, output, documents.n)
        answer = where.empty(shape, dtype) if out is None else check_out(out, where, shape, dtype)
        margin = None if base_margin is None else self._margin(base_margin, documents.n)
        forest = self._programs.part(trees) if output == "per_tree" else self.forest
        n_threads = threads_of_call(self.forest, documents.n, n_threads, way.n_threads)
        fill = Scoring(forest, ENGINES[way.engine], program, runs_on, output, n_threads).fill
        rows = documents.n or 1
        if where is not runs_on:
            rows = rows_for_gpu(documents, self.forest)
        elif runs_on is HOST and not encoded:
            rows = rows_for_cpu(documents, self.forest, output, n_threads)
        if out is not None and where is HOST and not encoded:
            documents = apart(documents, X, self.forest, out, rows)
        for start, stop in pieces(documents.n, rows):
            one = fill if margin is None else partial(fill, margin=margin[start:stop])
            runs_on.run(one, documents.chunk(start, stop), answer[start:stop])
        if out is None:
            return where.hand_back(answer, X)
        for given in (X, out):  # what their libraries do next comes after this call's work
            where.hand_back(answer, given)
        return out

    def _answer_plain(self, documents: Documents, output: Output) -> Any:
        """The answer as a plain call gives it, of documents that had to be made first; None where none does."""
        if output not in ("value", "raw") or documents.n > rows_for_cpu(documents, self.forest):
            return None
        plain = self._plain_of_tested() if documents.narrow else self._plain
        if plain is None:
            return None
        rows = documents.chunk(0, documents.n)
        return plain.raw(rows) if output == "raw" else plain.values(rows)

    @cpu_fallback.in_default_float_mode
    def warm_up(
        self,
        n_documents: int = 10_000,
        *,
        engine: str = "auto",
        precision: Precision = "exact",
        trees: slice | None = None,
        device: int | str | None = None,
    ) -> Model:
        """Prepare what a call of `predict` with so many documents needs, so that the first is as fast as the next.

        The first time on a machine it also takes a fraction of a second to measure how the engines compare on it;
        that is kept in ``GPUQS_CACHE_DIR`` or the user's cache folder. ``GPUQS_CALIBRATE=0`` turns it off.

        Parameters
        ----------
        n_documents : int
            How many documents calls will bring: other engines score few than many.
        engine, precision, trees, device
            As calls will have them.

        Returns
        -------
        Model
            This one.
        """
        n_documents = whole(n_documents, "n_documents", 1)
        # As many as fill the widest words: machine code is made for each width.
        shape = min(n_documents, cpu_fallback.instruction_set().widest_word), self.n_features
        rows = Documents(shape[0], lambda a, b: np.broadcast_to(np.zeros((), self.forest.input_dtype), shape)[a:b])
        if engine == "auto" and device in (None, "cpu"):
            if self.device is HOST:
                from gpuqs.tuning.calibration import ensure

                ensure(cpu_fallback.machine())
                way = self._chooser.way(n_documents, HOST, cpu_fallback.machine())
                self._answer(rows, "value", None, None, way, precision, trees, None, HOST)
                return self
            engine = self.engine_for(n_documents)
        self.predict(rows, engine=engine, precision=precision, trees=trees, device=device)
        return self

    @cpu_fallback.in_default_float_mode
    def tune(
        self,
        X: Any,
        budget_s: float = 10.0,
        *,
        batch_sizes: Sequence[int] | None = None,
        n_threads: int | None = None,
        progress: Callable[[int, int | None], object] | None = None,
    ) -> Plan:
        """Find by measurement how batches like ``X`` are scored fastest here, and score them so from then on.

        Engines, their blocks of trees and documents, and numbers of threads are tried in the order of what a cost
        model predicts (docs/tuning.md); none changes a score, which is checked on ``X``. What scores the model without
        a plan stays, unless another way is clearly faster. The plan serves calls with ``engine="auto"``, which
        it gives engine and parameters, and with ``n_threads=None``, on the model's device: ``to("cuda").tune(X)``
        compares the engines of that GPU. It belongs to this processor or GPU; `save` keeps it.

        Parameters
        ----------
        X : array-like [D, n_features]
            Documents as for `predict`, at best such as will be scored, where they will lie; up to 10,000 are used, on a
            GPU up to 1,048,576 (of the host 256 MiB).
        budget_s : float
            Seconds that it may take. What was begun is ended, as the making of a large model's program; with too few
            seconds for a size of batches, its default is kept.
        batch_sizes : sequence of int, optional
            How many documents calls will bring; by default 1, 10, 100, 1,000 (on a GPU 10,000 and 100,000, too) and all
            of ``X`` that is used. A size also tells of calls with 1.5 times as many, or as few; one of 1,000 or more
            (on a GPU 1,048,576) serves all that are larger.
        n_threads : int, optional
            Most threads that the plan may use, as for `predict`: a GPU's engines use none.
        progress : callable, optional
            Called with how many milliseconds have passed, and of how many.

        Returns
        -------
        Plan
            Also `plan` from now on; print it for a table of what was predicted and measured.

        Raises
        ------
        InputError
            ``X`` holds no documents, fewer than a size asks for, or lies on a GPU that is not the model's.
        ValueError
            ``budget_s`` is negative or no number.
        DeviceError
            The current CUDA stream is being captured.
        """
        from gpuqs.tune import tune

        with self.device.active():
            plan = tune(self._programs, self._chooser, self.device, X, budget_s, batch_sizes, n_threads, progress)
        with self._lock.held():
            self._chooser = Chooser(self.forest, self._programs.reasons, plan)
            self.__dict__["_plain"] = self._make_plain(self._chooser)  # plain calls keep programs of their own
            self.__dict__["_plain_fast"] = self._make_plain(self._chooser, "fast")
        return plan

    @cpu_fallback.in_default_float_mode
    def encode(self, X: Any, *, n_threads: int | None = None) -> EncodedDocuments:
        """Code documents once, to score them many times or with several prefixes of the model.

        Each value becomes its rank among the thresholds that the model compares it with: every test
        decides as before, and the batch shrinks to about a byte per tested feature.

        Parameters
        ----------
        X : array-like [D, n_features]
            As for `predict`.
        n_threads : int, optional
            As for `predict`.

        Returns
        -------
        EncodedDocuments
            For `predict` of this model with engine "auto" or "bitslice".

        Raises
        ------
        UnsupportedModelError
            The model does not run on `bitslice`.
        """
        if self.device is not HOST:
            raise InputError("encoded documents are scored on the CPU; use model.to('cpu').encode(X)")
        documents = as_documents(X, self.forest)
        here = cpu_fallback.machine()
        program = self._programs.get(BITSLICE, "exact", None, documents.narrow, on=here)
        step = max(512, rows_for_cpu(documents, self.forest) // 512 * 512)  # whole blocks of every engine
        chunks = (documents.chunk(at, min(at + step, documents.n)) for at in range(0, documents.n, step))
        threads = threads_of_call(self.forest, documents.n, n_threads)
        coded = program.scorer.encode(chunks, documents.n, threads)  # type: ignore[attr-defined]
        return EncodedDocuments(self, here[0], coded)

    def to(self, device: Any = "cuda") -> Model:
        """The model on a device: ``to("cuda:0")`` scores there, wherever documents lie.

        The trees are copied there at the first call, once for all models that this one has given.

        Parameters
        ----------
        device : int or str
            "cuda" (CuPy's current GPU), "cuda:1", 1; or "cpu".

        Raises
        ------
        DeviceError
            A package, a driver or the device is missing; says which, and how to get it.
        UnsupportedModelError
            The model does not run on GPUs.
        """
        there = find_device(device)
        if there.key == self.device.key:
            return self
        self._chooser.able(there)
        with self._lock.held():
            if there.key not in self._elsewhere:
                model = object.__new__(type(self))
                model._bind(self._programs, there, self.plan)
                self._elsewhere[there.key] = model
            return self._elsewhere[there.key]

    @cpu_fallback.in_default_float_mode
    def save(self, path: str | os.PathLike[str], *, ready: bool = False) -> None:
        """Save the model in gpuqs's own format: `gpuqs.load` reads it in a moment.

        The file is checksummed, holds arrays and no code, and is replaced as a whole or not at all. It keeps the
        `plan`, which is used where the file is loaded on such a machine.

        Parameters
        ----------
        path : str or os.PathLike
        ready : bool
            Also keep the ranks of the thresholds, which take longest to find when a loaded model is first used: two
            bytes more a node. They serve every machine, and are checked when they are used.

        Raises
        ------
        FileExistsError
            The file holds something else than a model of this format: another library's model is not replaced.
        OSError
            It cannot be written.
        """
        from gpuqs.formats import native
        from gpuqs.layout.ranks import to_keep
        from gpuqs.tuning.plan import to_json

        kept = to_keep(self.forest) if truth(ready, "ready") else {}
        plan = None if self.plan is None else to_json(self.plan)
        native.check_target(path)
        native.write(self.forest, path, plan, kept)

    def _documents(self, X: Any, device: Device, engine: str | Way, isa: str) -> tuple[Documents, Device]:
        """Documents, and the device where they lie."""
        if isinstance(X, EncodedDocuments):
            if X.model is not self or X.isa != isa:
                raise InputError("X was encoded by another model or for another instruction set; encode it again")
            if engine not in ("auto", BITSLICE):
                raise InputError(f"encoded documents are scored by engine {BITSLICE!r}, not {engine!r}")
            return Documents(len(X), lambda start, stop: X.coded), HOST
        return documents_of(X, self.forest, device)

    @lazy
    def _plain(self) -> cpu_fallback.PlainCalls | None:
        return self._make_plain(self._chooser)

    @lazy
    def _plain_fast(self) -> cpu_fallback.PlainCalls | None:
        return self._make_plain(self._chooser, "fast")

    def _plain_of_tested(self) -> cpu_fallback.PlainCalls | None:
        """`_plain` for documents of the columns `Forest.tested` alone, by the plan of now."""
        chooser, made = self._chooser, self._plain_narrow
        if made is None or made[0] is not chooser:
            made = self._plain_narrow = chooser, self._make_plain(chooser, narrow=True)
        return made[1]

    def _make_plain(
        self, chooser: Chooser, precision: Precision = "exact", narrow: bool = False
    ) -> cpu_fallback.PlainCalls | None:
        if self.device is not HOST:
            return None
        return plain_calls(self.forest, chooser, self._programs, precision=precision, narrow=narrow)

    def _margin(self, base_margin: Any, n: int) -> np.ndarray:
        """``base_margin`` as [n, n_outputs], in the type of the sums."""
        try:
            margin = np.asarray(base_margin).astype(self.forest.sum_dtype, casting="same_kind")
        except (TypeError, ValueError) as error:
            raise InputError(f"base_margin must hold numbers: {error}") from error
        if margin.ndim == 1 and self.n_outputs == 1:
            margin = margin[:, None]
        if margin.shape != (n, self.n_outputs):
            raise InputError(f"base_margin has shape {margin.shape}, not {(n, self.n_outputs)}")
        return margin

    def __getstate__(self) -> Mapping[str, Any]:
        # Programs and device memory stay behind: unpickling looks for the device, and tells where there is none.
        return {"forest": self.forest, "device": self.device, "plan": self.plan}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self._bind(Programs(state["forest"]), state["device"], state.get("plan"))  # none before models were tuned
