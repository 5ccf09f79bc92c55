"""Model: the façade through which users score documents, on the CPU and on GPUs."""

from __future__ import annotations

import copyreg
import os
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, SupportsIndex

import numpy as np

from gpuqs import cpu_fallback
from gpuqs.arrays import Documents, as_documents
from gpuqs.calls import Call, Calls
from gpuqs.devices import HOST, Device, find_device
from gpuqs.encoded import EncodedDocuments
from gpuqs.errors import InputError, UnsupportedModelError
from gpuqs.explanation import Explanation
from gpuqs.forest import Forest
from gpuqs.forks import Lock
from gpuqs.keywords import as_bool, as_integer, check_others, iterations_asked, output_and_trees, threads_asked
from gpuqs.outputs import Output, Precision, check_options
from gpuqs.placement import place
from gpuqs.plain_calls import asked_as, plain_first
from gpuqs.programs import Programs
from gpuqs.repeated_calls import all_are
from gpuqs.stages import STAGED_OUTPUTS, ends_of_stages
from gpuqs.tuning.plan import Plan, Way

#: Attributes of estimators that models do not have, and where to find them.
_ELSEWHERE: Final = {
    **dict.fromkeys(
        ("predict_proba", "score", "classes_"),
        "gpuqs.sklearn.wrap makes an estimator that has it from a fitted estimator or this model; predict(X) gives "
        "probabilities (with two classes, those of the second), and predict(X, 'class') gives labels",
    ),
    **dict.fromkeys(
        ("predict_log_proba", "decision_function"),
        "gpuqs.sklearn.wrap makes an estimator that has it if the trained one does; predict(X, 'raw') gives raw scores",
    ),
    **dict.fromkeys(
        ("feature_importances_", "feature_importance", "get_score", "get_feature_importance"),
        "gpuqs only scores: ask the library that trained the model",
    ),
    **dict.fromkeys(("feature_name", "feature_names_in_", "feature_names_"), "it is called feature_names here"),
    "num_trees": "it is called n_trees here",
    "num_feature": "it is called n_features here",
}
#: Documents that `Model.warm_up` scores, at most.
_WARM_UP_ROWS: Final = 4096


class Model(cpu_fallback.PlainFirst):
    """A forest that scores documents. Nothing changes its scores, and threads may share it freely.

    `gpuqs.load` and `gpuqs.from_model` make models.

    Parameters
    ----------
    forest : Forest
    plan : Plan, optional
        An earlier result of `tune` for the forest.

    Attributes
    ----------
    forest : Forest
        The trees, and how to read documents for them.
    device : Device
        Where the model scores unless a call says otherwise: the host, or the device that `to` was given.
    """

    def __init__(self, forest: Forest, plan: Plan | None = None) -> None:
        self._bind(Programs(forest), HOST, plan)

    def _bind(self, programs: Programs, device: Device, plan: Plan | None) -> None:
        self.forest, self.device = programs.forest, device
        self._programs = programs
        self._choose_by(plan)
        self._elsewhere: dict[Any, Model] = {}
        self._origin: Callable[[], Model | None] = lambda: None
        self._lock = Lock()

    def _choose_by(self, plan: Plan | None) -> None:
        """Score by a plan from now on, and forget everything that was chosen by the previous one."""
        self._calls = Calls(self._programs, self.device, plan)
        self._plain = self._calls.plain  # where `plain_first` looks for it

    def __repr__(self) -> str:
        where = "" if self.device is HOST else f", on {self.device!r}"
        return f"<gpuqs.Model: {self.forest.summary}{where}>"

    @property
    def n_features(self) -> int:
        """Number of features of a document."""
        return self.forest.given.n_features

    @property
    def n_trees(self) -> int:
        """Number of trees, in all iterations together."""
        return self.forest.n_trees

    @property
    def n_leaves(self) -> int:
        """The largest number of leaves of a tree: the papers' Λ."""
        return self.forest.n_leaves

    @property
    def n_outputs(self) -> int:
        """Number of raw scores of a document: one, or one for each class or target."""
        return self.forest.n_outputs

    @property
    def n_iterations(self) -> int:
        """Number of boosting iterations, each of one or several trees; ``iteration_range`` counts these."""
        return self.forest.n_iterations

    @property
    def best_iteration(self) -> int | None:
        """The best iteration that early stopping found, as the source library counts; None where it is not known.

        LightGBM counts from 1, so that ``num_iteration=best_iteration`` scores up to it; its files do not hold the
        number. XGBoost and CatBoost count from 0: ``iteration_range=(0, best_iteration + 1)`` does the same.
        """
        return self.forest.best_iteration

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Names of the features in order; empty where the model has none."""
        return self.forest.feature_names

    @property
    def plan(self) -> Plan | None:
        """What `tune` found, for this model or before it was saved; None if it was never tuned."""
        return self._calls.chooser.plan

    def engines(self) -> dict[str, str | None]:
        """The engines by name: None for those that can run this model here, the reason for those that cannot."""
        return self._calls.chooser.reasons_on(self.device)

    def engine_for(self, n_documents: int) -> str:
        """The engine that ``engine="auto"`` chooses for ``n_documents``: by the plan, or by predicted costs."""
        n_documents = as_integer(n_documents, "n_documents", 0)
        return self._calls.chooser.way(n_documents, self.device, cpu_fallback.machine()).engine

    def explain(self, n_documents: int = 10_000) -> Explanation:
        """Which engine would score ``n_documents``, and why; print the result for a table."""
        n_documents = as_integer(n_documents, "n_documents", 0)
        return self._calls.chooser.explain(n_documents, self.device, cpu_fallback.machine())

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
        **others: Any,
    ) -> Any:
        """Score documents.

        Parameters
        ----------
        X : array-like [D, n_features] or EncodedDocuments
            The documents, one per row. Any of:

            - a NumPy array (float32, float64 or integers; C or F order, any strides);
            - a nested list, where None is missing;
            - a pandas frame or an Arrow table, whose columns are found by name;
            - a scipy.sparse matrix or array, whose absent entries mean what they mean to the source library: missing
              for XGBoost and Treelite, 0 for all others;
            - the result of `encode` for one of these;
            - an array on a GPU (CuPy, PyTorch, JAX, Numba; float32, float64 or integers). It is scored on that GPU, on
              the current CuPy stream, and the answer is an array of the same library.

            At most a chunk of the documents is copied at a time, except for lists, object arrays, and sparse formats
            other than CSR and CSC. Where features are categories, arrays hold their codes; for CatBoost models, integer
            arrays hold the categories themselves.
        output : {"value", "raw", "class", "leaf", "per_tree"}
            What to compute for each document:

            - "value": what the source library's ``predict`` gives, such as probabilities.
            - "raw": the raw scores, before the link.
            - "class": the label of the likeliest class; for multi-label models, 0 or 1 for each output.
            - "leaf": the source library's number of the exit leaf in each tree. The answer is always int32
              [D, n_trees]; XGBoost itself gives float32, and [D] for a single tree.
            - "per_tree": the value of the exit leaf in each tree.
        n_threads : int, optional
            Threads to use, at most four per processor. By default as many as pay off for the batch's predicted time,
            but no more than the number of processors that the process may use. That number depends on CPU affinity,
            cgroup quotas, ``OMP_NUM_THREADS`` and ``threadpoolctl``. With -1, every batch gets that number of threads;
            with -2 one fewer, and so on, as with joblib's ``n_jobs``.
        out : array, optional
            Where to write the answer: an array in C order on the same side as ``X`` (host or GPU), with the shape and
            the dtype given below.
        engine : str
            "auto", or one of `engines`. "qs_gpu", "bitslice_gpu" and "walk_gpu" run on a GPU.
        precision : {"exact", "fast"}
            "exact": the source library's sums, bit for bit. Only "qs_gpu" adds in a different order: its exact sums
            have the same bits every time, and differ from the library's by at most n_trees ulps of the sum of the leaf
            values' magnitudes.
            "fast": leaf values are rounded once to a 24-bit fixed-point grid and summed as integers. The result has the
            same bits for every engine, instruction set, number of threads and split into batches. Not for linear trees.
        trees : slice, optional
            Score with only these trees, such as ``slice(0, 100)``, for staged prediction. The base score is added for
            any range; but CatBoost models leave their bias out of ranges that do not start at 0, as CatBoost itself
            does. An empty range gives the base score, or NaN where values are averages, as in LightGBM's random
            forests.
        base_margin : array-like [D, n_outputs] or [D * n_outputs], optional
            Where each document's sums start, in place of the model's base score; in units of raw scores, as in XGBoost.
        device : int or str, optional
            "cuda", "cuda:1" or 1: score documents that are on the host on that GPU (by this model's plan; the model
            that ``to(device)`` returns has its own). "cpu": score on the host. By default, documents are scored where
            they are.
            For documents on a GPU, the work is queued and the call returns at once; only the first call with a given
            precision and range of trees waits, until the model is copied. A call may be captured in a CUDA graph if
            the same call was made before; the memory that it uses stays allocated on the device from then on.
        raw_score, output_margin : bool
            LightGBM's and XGBoost's names for ``output="raw"``.
        pred_leaf : bool
            Both libraries' name for ``output="leaf"``.
        pred_contrib : bool
            Must be False: gpuqs does not compute the features' contributions to a score.
        start_iteration, num_iteration : int, optional
            As in LightGBM: score with ``num_iteration`` iterations from ``start_iteration`` on. None, or a number below
            1, means all that follow, and a range that goes past the last iteration ends with it. A live model that was
            converted after early stopping has no iterations past its best one; asking for them is an error.
        iteration_range : (int, int), optional
            As in ``xgboost.Booster``: score with the iterations from the first number up to, but not including, the
            second; if the second is 0, up to the last. (An ``XGBModel`` then also uses those before the first.)
        **others
            Other keywords of LightGBM, XGBoost and CatBoost, with values that change no score, such as
            ``validate_features=True``, ``pred_early_stop=False``, ``verbosity=-1`` or ``task_type="CPU"``; and their
            names for ``n_threads``, such as ``num_threads``, and for the ends of ``iteration_range``, ``ntree_start``
            and ``ntree_end``.

        Returns
        -------
        array
            A NumPy array, or an array of X's library where X lies on a GPU:

            - "value" and "raw": [D], or [D, n_outputs] where the model has several outputs. Values of XGBoost's
              multi:softmax are labels, [D]. The dtype is the one in which the source library sums: float32 for XGBoost,
              float64 for most others.
            - "class": [D], or [D, n_outputs] for multi-label models; int64, float64, bool, strings or times, like the
              labels (uint64 or objects where labels would not stay distinct in these).
            - "leaf": int32 [D, n_trees].
            - "per_tree": [D, n_trees], or [D, n_trees, n_outputs] where leaves hold vectors.

        Raises
        ------
        InputError
            ``X``, ``out`` or ``base_margin`` has the wrong shape or type.
        ValueError
            There is no such output, engine or iteration, or keywords contradict each other.
        UnsupportedModelError
            ``pred_contrib`` is True, another keyword asks for something that is not offered, or the model does not run
            on the device.
        DeviceError
            A GPU is asked for, and a package, a driver or the device is missing; or the call is being captured in a
            CUDA graph, and something would have to be copied or compiled first.
        """
        repeated = self._calls.repeated
        if repeated and type(engine) is str and engine == "auto" and not others:
            # Recorded calls answer only calls whose other options have their defaults.
            unset = (n_threads, out, trees, base_margin, device, num_iteration, iteration_range)
            off = (raw_score, output_margin, pred_leaf, pred_contrib)
            if all_are(None, unset) and all_are(False, off) and type(start_iteration) is int and not start_iteration:
                answer = repeated.answer(X, output, precision)
                if answer is not None:
                    return answer
        if others:
            check_others(self.forest, others)
            n_threads = threads_asked(n_threads, others)
            iteration_range = iterations_asked(iteration_range, others)
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
        runs_on = place(self.forest, X, self._asked(device), engine, output, base_margin)
        with runs_on.active():
            return self._calls.answer(X, Call(output, n_threads, out, engine, precision, trees, base_margin), runs_on)

    @cpu_fallback.in_default_float_mode
    def staged_predict(
        self,
        X: Any,
        output: Output = "value",
        *,
        eval_period: int = 1,
        n_threads: int | None = None,
        base_margin: Any = None,
    ) -> Iterator[Any]:
        """Score documents with the first iteration, the first two, and so on, as for learning curves.

        On the CPU, documents pass through the trees once, whatever the number of stages.

        Parameters
        ----------
        X : array-like [D, n_features] or EncodedDocuments
            As for `predict`. Do not change them before the last answer. Large batches that must be converted (tables,
            sparse matrices, lists), and batches whose sums of all stages take more than 64 MiB, are encoded first, as
            by `encode`; if the model does not support that, batches that must be converted are converted as a whole.
        output : {"value", "raw", "class"}
            As for `predict`.
        eval_period : int
            Iterations from one stage to the next. The last stage has all trees, even if it is shorter.
        n_threads, base_margin
            As for `predict`.

        Yields
        ------
        array
            The answer of each stage, bit for bit that of ``predict(X, output, iteration_range=(0, end))`` with exact
            sums.

        Raises
        ------
        InputError, ValueError, UnsupportedModelError, DeviceError
            As for `predict`, raised by this call, before the first answer is requested. On GPUs, where each stage is a
            call of `predict`, some are raised only when an answer is requested.
        """
        if output not in STAGED_OUTPUTS:
            raise ValueError(f"output must be one of {', '.join(map(repr, STAGED_OUTPUTS))}, not {output!r}")
        check_options(self.forest, output, "exact", "auto")
        ends = ends_of_stages(self.forest, as_integer(eval_period, "eval_period", 1))
        runs_on = place(self.forest, X, self._asked(None), "auto", output, base_margin)
        if runs_on is HOST:
            answers = self._calls.staged(X, Call(output, n_threads, base_margin=base_margin), ends)
            if answers is not None:
                return answers
        options = {"n_threads": n_threads, "base_margin": base_margin}
        return (self.predict(X, output, trees=slice(0, end), **options) for end in ends)

    def _asked(self, device: Any) -> Any:
        """Where a call with ``device`` runs; None if that depends on its documents."""
        return self.device if device is None and self.device is not HOST else device

    @cpu_fallback.in_default_float_mode
    def warm_up(
        self,
        n_documents: int = 10_000,
        *,
        engine: str = "auto",
        precision: Precision = "exact",
        trees: slice | None = None,
        device: int | str | None = None,
        start_iteration: SupportsIndex = 0,
        num_iteration: SupportsIndex | None = None,
        iteration_range: Sequence[int] | None = None,
    ) -> Model:
        """Prepare what calls of `predict` with ``n_documents`` need, so that the first is as fast as the next.

        The first time on a machine, this also measures how fast the engines are on it, which takes a fraction of a
        second. The result is kept in ``GPUQS_CACHE_DIR`` or in the user's cache folder; with ``GPUQS_CALIBRATE=0``,
        nothing is measured.

        Parameters
        ----------
        n_documents : int
            How many documents each call will have: the fastest engine for few is not the fastest for many. The first
            call with another number of documents chooses again, which takes some 50 us, and prepares what it lacks.
        engine, precision, trees, device, start_iteration, num_iteration, iteration_range
            What the calls will pass to `predict`.

        Returns
        -------
        Model
            The model itself.
        """
        n_documents = as_integer(n_documents, "n_documents", 1)
        # Enough rows to fill the widest words, since machine code is made for each width, and to start threads.
        shape = min(n_documents, _WARM_UP_ROWS), self.n_features
        rows = Documents(shape[0], lambda a, b: np.broadcast_to(np.zeros((), self.forest.input_dtype), shape)[a:b])
        _, chosen = output_and_trees(
            self.forest,
            "value",
            trees,
            start_iteration=start_iteration,
            num_iteration=num_iteration,
            iteration_range=iteration_range,
        )
        check_options(self.forest, "value", precision, engine)
        self._programs.expect(chosen)
        runs_on = place(self.forest, rows, self._asked(device), engine, "value", None)
        way: str | Way = engine
        if engine == "auto":
            if runs_on is HOST:
                from gpuqs.tuning.calibration import ensure

                ensure(cpu_fallback.machine())
            way = self._calls.chooser.way(n_documents, runs_on, cpu_fallback.machine())
        with runs_on.active():
            self._calls.answer(rows, Call(engine=way, precision=precision, trees=chosen), runs_on)
        if engine == "auto" and runs_on is HOST and self._plain is not None:
            asked = asked_as(precision, trees, start_iteration, num_iteration, iteration_range)
            self._plain.prepare(asked, n_documents)
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
        """Measure how batches like ``X`` are scored fastest on this machine, and score them that way from now on.

        Engines, their block sizes and numbers of threads are tried in the order of their costs as predicted by a model
        (docs/tuning.md). None of them changes a score; this is checked on ``X``. A choice replaces the default only if
        it is clearly faster.

        The plan sets the engine and its parameters for calls with ``engine="auto"``, and the threads for those with
        ``n_threads=None``. It holds for the model's device (``to("cuda").tune(X)`` compares the engines of that GPU),
        and only on this kind of processor or GPU. `save` keeps it.

        Parameters
        ----------
        X : array-like [D, n_features]
            Documents as for `predict`, like those that will be scored, and in the same place (host or GPU). Up to
            10,000 are used; on a GPU up to 1,048,576, but at most 256 MiB of documents that are on the host.
        budget_s : float
            Seconds that tuning may take. A step that has begun is finished, such as preparing a large model for an
            engine. A batch size for which no time is left keeps its default.
        batch_sizes : sequence of int, optional
            How many documents the calls will have. By default 1, 10, 100, 1,000 (on a GPU also 10,000 and 100,000), and
            the number of documents of ``X`` that are used. The result for a size also serves calls whose number of
            documents differs by a factor of at most 1.5; a size of 1,000 or more (on a GPU 1,048,576) also serves all
            larger calls.
        n_threads : int, optional
            Upper limit of threads that the plan may use, as for `predict`. It does not matter to engines of GPUs.
        progress : callable, optional
            Called with the milliseconds that have passed and those of the whole budget.

        Returns
        -------
        Plan
            The new `plan`; print it for a table of what was predicted and measured.

        Raises
        ------
        InputError
            ``X`` holds no documents, or fewer than one of the sizes, or lies on a GPU other than the model's.
        ValueError
            ``budget_s`` is negative or not a number.
        DeviceError
            The current CUDA stream is being captured.
        """
        from gpuqs.tune import tune

        with self.device.active():
            plan = tune(self._programs, self._calls.chooser, self.device, X, budget_s, batch_sizes, n_threads, progress)
        with self._lock.held():
            self._choose_by(plan)
        return plan

    @cpu_fallback.in_default_float_mode
    def encode(self, X: Any, *, n_threads: int | None = None) -> EncodedDocuments:
        """Encode documents once, to score them many times or with several ranges of the model's trees.

        Each value is replaced with its rank among the thresholds that the model compares it with. Every test then
        decides as before, and a document takes about a byte for each feature that is tested.

        Parameters
        ----------
        X : array-like [D, n_features]
            As for `predict`.
        n_threads : int, optional
            As for `predict`.

        Returns
        -------
        EncodedDocuments
            Accepted by this model's `predict`, with engine "auto" or "bitslice".

        Raises
        ------
        InputError
            ``X`` does not fit the model, as for `predict`; or the model lies on a GPU.
        UnsupportedModelError
            The model does not run on `bitslice`, or has linear leaves.
        """
        if self.device is not HOST:
            raise InputError("encoded documents are scored on the CPU; use model.to('cpu').encode(X)")
        if self.forest.has_linear_leaves:
            raise UnsupportedModelError("encoded documents lack the values that the leaves' linear models need")
        here = cpu_fallback.machine()
        coded = self._calls.encode(as_documents(X, self.forest), n_threads, here)
        return EncodedDocuments(self._programs, here.isa, coded)

    def to(self, device: Any = "cuda") -> Model:
        """The same model on a device: ``model.to("cuda:0")`` scores there, wherever documents are.

        The trees are copied to the device when they are first used, once for all models that came from this one. A
        model for another device starts with this model's `plan`; later calls of `tune` affect only their own model.
        ``model.to("cuda").to("cpu")`` is ``model``.

        Parameters
        ----------
        device : int or str
            "cuda" (CuPy's current GPU), "cuda:1" or 1 (the second GPU), or "cpu".

        Raises
        ------
        DeviceError
            A package, a driver or the device is missing; the message says which, and how to get it.
        UnsupportedModelError
            The model does not run on GPUs.
        """
        there = find_device(device)
        if there.key == self.device.key:
            return self
        origin = self._origin()
        if origin is not None:
            return origin.to(there)
        self._calls.chooser.usable_engines(there)
        with self._lock.held():
            if there.key not in self._elsewhere:
                model = type(self).__new__(type(self))
                model._bind(self._programs, there, self.plan)
                model._origin = weakref.ref(self)  # self owns the model: a strong reference would be a cycle
                self._elsewhere[there.key] = model
            return self._elsewhere[there.key]

    @cpu_fallback.in_default_float_mode
    def save(self, path: str | os.PathLike[str], *, ready: bool = False) -> None:
        """Save the model in gpuqs's own format, which `gpuqs.load` reads quickly.

        The file has a checksum and holds arrays, no code. An existing file is replaced as a whole or not at all. The
        `plan` is saved, too, and used wherever the file is loaded on the same kind of machine.

        Parameters
        ----------
        path : str or os.PathLike
        ready : bool
            Also save the ranks of the thresholds, in two more bytes per node. Computing them takes a third of the time
            in which a loaded model is laid out. They are the same on every machine, and checked when used.

        Raises
        ------
        TypeError
            ``path`` is neither a str nor an os.PathLike.
        FileExistsError
            ``path`` holds something other than a model in this format, such as another library's model.
        OSError
            The file cannot be written; or it could only be overwritten in place (no file can be created in its folder),
            and a model of this process has it mapped (``mmap=True``).
        """
        from gpuqs.formats import native
        from gpuqs.layout.ranks import to_keep
        from gpuqs.tuning.plan import to_json

        if not isinstance(path, (str, os.PathLike)):
            raise TypeError(f"path must be a str or os.PathLike, not {type(path).__name__}")
        kept = to_keep(self.forest) if as_bool(ready, "ready") else {}
        plan = None if self.plan is None else to_json(self.plan)
        native.check_target(path)
        native.write(self.forest, path, plan, kept)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Say where to find what other libraries' classes have by a name."""
            if hasattr(type(self), name):  # a property that failed: its own error
                return object.__getattribute__(self, name)
            where = _ELSEWHERE.get(name)
            hint = "" if where is None else f"; {where}"
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}", name=name, obj=self)

    def __reduce__(self) -> tuple[Any, ...]:  # pickle's protocols 0 and 1 cannot tell how to make a compiled base class
        return copyreg.__newobj__, (type(self),), self.__getstate__()  # type: ignore[attr-defined]

    def __getstate__(self) -> Mapping[str, Any]:
        # Programs and device memory are left out: unpickling looks for the device, and fails with a message without it.
        return {"forest": self.forest, "device": self.device, "plan": self.plan}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self._bind(Programs(state["forest"]), state["device"], state["plan"])
