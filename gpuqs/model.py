"""Model: the façade through which users score documents."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, SupportsIndex

import numpy as np

from gpuqs import cpu_fallback
from gpuqs.arrays import Documents, as_documents
from gpuqs.costs import Choice, Explanation, predicted_microseconds
from gpuqs.device_model import DeviceModel
from gpuqs.devices.cuda import cuda_device, device_of
from gpuqs.devices.foreign import is_on_device
from gpuqs.engines import BITSLICE, ENGINES, QS_GPU, Engine, Program
from gpuqs.errors import InputError
from gpuqs.forest import Forest
from gpuqs.forks import Lock, lazy
from gpuqs.keywords import output_and_trees, whole
from gpuqs.links import to_raw, to_values
from gpuqs.outputs import (
    Output,
    Precision,
    answer_form,
    check_options,
    class_labels,
    class_numbers,
    values_of_leaves,
)
from gpuqs.programs import Programs

#: Work (documents x trees) between two looks at pending signals such as Ctrl-C.
CHUNK_WORK = 100_000_000
#: Leaf numbers (documents x trees) that are held while their values are looked up.
PER_TREE_WORK = 4_000_000
#: Less work than this is done sooner by one thread than by several.
THREAD_WORK = 500_000
#: Bytes of documents that one chunk may copy when they must be converted.
CHUNK_BYTES = 16 << 20
#: Rows of such a chunk, however wide they are.
LEAST_ROWS = 64
#: Documents of the widest word that programs run on.
WIDEST_WORD = 512


@dataclass(frozen=True)
class EncodedDocuments:
    """Documents coded by `Model.encode`, to be scored by the same model any number of times.

    Attributes
    ----------
    model : Model
    isa : str
        Instruction set that the coding is laid out for.
    nbytes : int
    """

    model: Model
    isa: str
    coded: Any

    def __repr__(self) -> str:
        return f"<gpuqs.EncodedDocuments: {len(self):,} for {self.isa}, {self.nbytes:,} bytes>"

    def __len__(self) -> int:
        return len(self.coded)

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "encoded documents are of one model in one process, and cannot be pickled or copied; send the documents, "
            "and encode them again there"
        )

    @property
    def nbytes(self) -> int:
        return int(self.coded.nbytes)


class Model:
    """A forest that scores documents; immutable, shared freely between threads.

    Made by `gpuqs.load` and `gpuqs.from_model`.

    Parameters
    ----------
    forest : Forest
    """

    def __init__(self, forest: Forest) -> None:
        self.forest = forest
        self._programs = Programs(forest)
        self._on_devices: dict[Any, DeviceModel] = {}
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"<gpuqs.Model: {self.forest.summary}>"

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

    def engines(self) -> dict[str, str | None]:
        """Every engine's name, with None where it can run this model, else the reason why not."""
        return dict(self._programs.reasons)

    def engine_for(self, n_documents: int) -> str:
        """The engine that ``engine="auto"`` uses for so many documents: the one predicted to be fastest."""
        key = (min(whole(n_documents, "n_documents", 0), 4096), cpu_fallback.isa(), cpu_fallback.compiles_programs())
        name = self._chosen.get(key)
        if name is None:
            able = [name for name, reason in self._programs.reasons.items() if reason is None]
            name = min(able, key=lambda name: predicted_microseconds(name, self.forest, key[0]))
            self._chosen[key] = name
        return name

    def explain(self, n_documents: int = 10_000) -> Explanation:
        """Say which engine would score so many documents, and why: print the result."""
        n_documents = whole(n_documents, "n_documents", 0)
        choices = tuple(
            Choice(
                name,
                ENGINES[name].summary,
                predicted_microseconds(name, self.forest, n_documents) if reason is None else None,
                reason,
            )
            for name, reason in self._programs.reasons.items()
        )
        return Explanation(self.engine_for(n_documents), n_documents, cpu_fallback.isa(), choices)

    def predict(
        self,
        X: Any,
        output: Output = "value",
        *,
        n_threads: int | None = None,
        out: np.ndarray | None = None,
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
            JAX, Numba): it is scored there and the answer comes back as the same library's array.
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
        out : ndarray, optional
            Where the answer goes: C order, the shape and dtype given below.
        engine : str
            "auto", or one of `engines`; "qs_gpu" runs on a GPU.
        precision : {"exact", "fast"}
            "exact": the source library's sums, bit for bit. "fast": leaf values rounded once to a
            24-bit fixed-point grid and summed as integers: the same bits from every engine,
            instruction set, number of threads and split of the batch.
        trees : slice, optional
            Only these trees, as ``slice(0, 100)``, for staged prediction. The base score is added to every
            range (CatBoost drops its bias where a range does not start at 0); of no trees it is all there is,
            but averages (values of LightGBM's random forests) of none are NaN.
        base_margin : array-like [D] or [D, n_outputs], optional
            What each document's sums begin with in place of the model's base score, in raw-score
            units, as XGBoost's ``base_margin``.
        device : int or str, optional
            "cuda", "cuda:1" or 1: score documents of the host on that GPU, as ``to(device)`` does.
            By default documents are scored where they lie.
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
        ndarray
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
            A GPU was asked for, and a package, a driver or the device is missing.
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
        if engine == QS_GPU and device is None:
            device = "cuda"
        if device not in (None, "cpu") or (type(X) is not np.ndarray and is_on_device(X)):
            if engine not in ("auto", QS_GPU):
                raise ValueError(f"engine {engine!r} does not run on GPUs; use engine='auto' or {QS_GPU!r}")
            if isinstance(X, EncodedDocuments):
                raise InputError("encoded documents are scored on the CPU; leave device out, or give documents")
            if base_margin is not None:
                raise ValueError("base_margin is not taken on GPUs; add it to output='raw' there, or use device='cpu'")
            there = self.to(device_of(X) if device is None else device)
            return there.predict(X, output, out=out, precision=precision, trees=trees)
        check_options(self.forest, output, precision)
        if isinstance(X, EncodedDocuments):
            documents, name = self._encoded(X, engine)
        else:
            documents = as_documents(X, self.forest)
            name = self.engine_for(documents.n) if engine == "auto" else engine
        n_threads = self._threads(n_threads, documents.n)
        program = self._programs.get(name, precision, trees, documents.narrow)
        shape, dtype = answer_form(self.forest, program.values, output, documents.n)
        if out is None:
            out = np.empty(shape, dtype)
        elif not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != dtype or not out.flags.carray:
            raise InputError(f"out must be a writable, aligned, C-contiguous {dtype} array of shape {shape}")
        elif isinstance(X, np.ndarray) and np.may_share_memory(X, out):
            raise InputError("out shares memory with X, which would change while it is read; use another array")
        margin = None if base_margin is None else self._margin(base_margin, documents.n)
        runs, whole = ENGINES[name], isinstance(X, EncodedDocuments)
        step = documents.n if whole else self._chunk_rows(documents)
        if output == "per_tree" and not whole:
            step = max(1, min(step, PER_TREE_WORK // max(self.n_trees, 1)))
        for start in range(0, documents.n, step or 1):
            stop = min(start + step, documents.n)
            chunk, to = documents.chunk(start, stop), out[start:stop]
            if output == "leaf":
                runs.leaves(program, chunk, to, n_threads)
            elif output == "per_tree":
                leaves = np.empty((stop - start, len(program.values.tree_output)), np.int32)
                runs.leaves(program, chunk, leaves, n_threads)
                values_of_leaves(self._programs.part(trees), leaves, to)
            else:
                own = None if margin is None else margin[start:stop]
                self._score_chunk(runs, program, chunk, to, output, n_threads, own)
        return out

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
        there = self if device in (None, "cpu") else self.to(device)
        if isinstance(there, DeviceModel):
            there.warm_up(precision=precision, trees=trees)
        else:
            name = self.engine_for(n_documents) if engine == "auto" else engine
            # As many as fill the widest words: machine code is made for each width.
            shape = min(n_documents, WIDEST_WORD), self.n_features
            rows = Documents(shape[0], lambda a, b: np.broadcast_to(np.zeros((), self.forest.input_dtype), shape)[a:b])
            self.predict(rows, engine=name, precision=precision, trees=trees)
        return self

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
        documents = as_documents(X, self.forest)
        program = self._programs.get(BITSLICE, "exact", None, documents.narrow)
        step = max(512, self._chunk_rows(documents) // 512 * 512)  # whole blocks of every engine
        chunks = (documents.chunk(at, min(at + step, documents.n)) for at in range(0, documents.n, step))
        threads = self._threads(n_threads, documents.n)
        coded = program.scorer.encode(chunks, documents.n, threads)  # type: ignore[attr-defined]
        return EncodedDocuments(self, cpu_fallback.isa(), coded)

    def to(self, device: Any = "cuda") -> Model | DeviceModel:
        """The model on a device: ``to("cuda:0")`` copies it to that GPU once and keeps it there.

        Parameters
        ----------
        device : int or str
            "cuda" (CuPy's current GPU), "cuda:1", 1; or "cpu", which gives the model itself.

        Raises
        ------
        DeviceError
            A package, a driver or the device is missing; says which, and how to get it.
        """
        if device == "cpu":
            return self
        there = device if hasattr(device, "attributes") else cuda_device(device)  # a GpuDevice, or its name
        with self._lock.held():
            if there not in self._on_devices:
                self._on_devices.setdefault(there, DeviceModel(self.forest, there))
            return self._on_devices[there]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Save the model in gpuqs's own format: `gpuqs.load` reads it in a moment.

        The file is checksummed, holds arrays and no code, and is replaced as a whole or not at all.
        """
        from gpuqs.formats import native

        native.write(self.forest, path)

    def _encoded(self, X: EncodedDocuments, engine: str) -> tuple[Documents, str]:
        if X.model is not self or X.isa != cpu_fallback.isa():
            raise InputError("X was encoded by another model or for another instruction set; encode it again")
        if engine not in ("auto", BITSLICE):
            raise InputError(f"encoded documents are scored by engine {BITSLICE!r}, not {engine!r}")
        return Documents(len(X), lambda start, stop: X.coded), BITSLICE

    def _threads(self, n_threads: int | None, n_documents: int) -> int:
        if n_threads is None and n_documents * self.forest.n_trees < THREAD_WORK:
            return 1
        return cpu_fallback.effective_threads(n_threads)

    def _score_chunk(
        self,
        engine: Engine,
        program: Program,
        chunk: Any,
        out: np.ndarray,
        output: Output,
        n_threads: int,
        margin: np.ndarray | None,
    ) -> None:
        values = program.values
        shape = len(out), self.forest.n_outputs
        direct = values.sum_dtype == out.dtype and output != "class" and out.size == shape[0] * shape[1]
        sums = out.reshape(shape) if direct else np.empty(shape, values.sum_dtype)
        if margin is None:
            engine.score(program, chunk, sums, n_threads)
            scores = values.finish(sums)
        else:
            sums[:] = margin if values.starts_at_base else 0
            engine.score(program, chunk, sums, n_threads, started=True)
            scores = values.finish(sums, None if values.starts_at_base else margin)
        n_trees = len(values.tree_output)
        if output == "class":
            out[:] = class_labels(self.forest)[class_numbers(self.forest, scores, n_trees)]
            return
        scores = (to_values if output == "value" else to_raw)(self.forest, scores, n_trees)
        if scores is not sums or not direct:
            out[:] = scores.reshape(out.shape)

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

    @lazy
    def _chosen(self) -> dict[tuple[int, str, bool], str]:
        return {}

    def _chunk_rows(self, documents: Documents) -> int:
        width = len(self.forest.tested) if documents.narrow else self.n_features
        by_work = CHUNK_WORK // max(self.n_trees, 1)
        by_bytes = CHUNK_BYTES // (8 * max(width, 1))
        rows = max(1024, min(by_work, by_bytes) // 1024 * 1024)
        # Wide rows that are copied are few at a time, though fewer than engines like.
        return max(LEAST_ROWS, min(rows, by_bytes)) if documents.copied else rows

    def __getstate__(self) -> Mapping[str, Any]:
        return {"forest": self.forest}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__init__(state["forest"])  # type: ignore[misc]
