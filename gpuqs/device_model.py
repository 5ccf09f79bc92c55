"""DeviceModel: a model on one GPU, the answer of ``Model.to("cuda:0")``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np

from gpuqs.arrays import Documents, as_documents
from gpuqs.devices.base import GpuDevice
from gpuqs.devices.pipeline import run
from gpuqs.engines.gpu.forest import GpuForest
from gpuqs.engines.gpu.links import apply_link, find_classes
from gpuqs.engines.gpu.qs_gpu import GpuProgram, QsGpu
from gpuqs.errors import InputError, UnsupportedModelError
from gpuqs.forest import Forest
from gpuqs.forks import Lock, lazy
from gpuqs.keywords import output_and_trees
from gpuqs.links import class_decision, decides_on_values, trees_averaged
from gpuqs.outputs import Output, Precision, answer_form, check_options, class_labels

#: Bytes of documents on the host that are converted at a time, where they must be.
HOST_CHUNK_BYTES = 256 << 20

#: Programs (precision, range of trees) that stay on the device; the one unused for longest goes first.
MAX_PROGRAMS = 8


class DeviceModel:
    """A forest that scores documents on one device; immutable, shared freely between threads.

    Parameters
    ----------
    forest : Forest
    device : GpuDevice

    Raises
    ------
    UnsupportedModelError
        The forest does not run on GPUs.
    """

    def __init__(self, forest: Forest, device: GpuDevice) -> None:
        self.forest, self.device = forest, device
        self._engine = QsGpu()
        reason = self._engine.supports(forest)
        if reason is not None:
            raise UnsupportedModelError(
                f"this {forest.source} model does not run on a GPU: {reason}; use device='cpu'"
            )
        self._programs: dict[tuple[str, int, int, bool], GpuProgram] = {}
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        # Device memory stays behind; unpickling looks for the device, and tells where there is none.
        return DeviceModel, (self.forest, self.device)

    def __repr__(self) -> str:
        return f"<gpuqs.DeviceModel: {self.forest.summary}, on {self.device!r}>"

    def predict(
        self,
        X: Any,
        output: Output = "value",
        *,
        out: Any = None,
        precision: Precision = "exact",
        trees: slice | None = None,
        raw_score: bool = False,
        output_margin: bool = False,
        pred_leaf: bool = False,
        pred_contrib: bool = False,
        start_iteration: SupportsIndex = 0,
        num_iteration: SupportsIndex | None = None,
        iteration_range: Sequence[int] | None = None,
    ) -> Any:
        """Score documents.

        Work on documents that lie on the device is queued on the current CuPy stream, and the
        call returns at once; the first call with a precision and range of trees copies the model,
        and waits for that. A call may be captured in a CUDA graph if the same call was made once
        before; the memory that it uses then stays on the device for good.

        Parameters
        ----------
        X : array-like [D, n_features]
            On the device: a CuPy, PyTorch, JAX or Numba array (float32, float64 or integers; any
            strides). On the host: as for `Model.predict`.
        output : {"value", "raw", "class", "leaf", "per_tree"}
            As for `Model.predict`.
        out : array, optional
            Where the answer goes: C order, on X's side, the shape and type given below.
        precision : {"exact", "fast"}
            "exact": leaf values in the source library's type, summed in a fixed order: the same
            bits every time, within n_trees ulps of the largest partial sum (in either order) of the CPU's.
            "fast": the bits of every other engine's "fast".
        trees : slice, optional
            Only these trees, as ``slice(0, 100)``, for staged prediction.
        raw_score, output_margin, pred_leaf, pred_contrib, start_iteration, num_iteration, iteration_range
            The libraries' own keywords, as for `Model.predict`.

        Returns
        -------
        array
            Of X's library where it lies on the device, else NumPy's; shapes and types as from
            `Model.predict`.

        Raises
        ------
        InputError
            ``X`` or ``out`` has the wrong shape or type, or lies on another device.
        DeviceError
            The call is captured in a CUDA graph, and something would have to be copied or compiled first.
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
        check_options(self.forest, output, precision)
        if output == "class" and class_labels(self.forest).dtype.kind not in "biuf":
            raise InputError(
                "the class labels are texts, which GPUs do not hold; use output='value', or device='cpu'"
            )
        with self.device.active():
            documents = self.device.adopt(X)
            if documents is None:
                return self._predict_host(X, output, out, precision, trees)
            return self._predict_device(self._program(precision, trees), X, documents, output, out)

    def warm_up(self, *, precision: Precision = "exact", trees: slice | None = None) -> DeviceModel:
        """Copy the model to the device and compile its kernels, so that the first call is as fast as the next."""
        row = np.zeros((1, self.forest.n_features), self.forest.input_dtype)
        self.predict(Documents(1, lambda start, stop: row[start:stop]), precision=precision, trees=trees)
        return self

    def _predict_device(self, program: GpuProgram, X: Any, documents: Any, output: str, out: Any) -> Any:
        documents = self._check(documents)
        shape, dtype = answer_form(self.forest, program.values, output, documents.shape[0])
        if out is None:
            answer = self.device.empty(shape, dtype)
        else:
            answer = self.device.adopt(out)
            if (
                answer is None
                or answer.shape != shape
                or answer.dtype != dtype
                or not answer.flags.c_contiguous
            ):
                raise InputError(
                    f"out must be a C-contiguous {dtype} array of shape {shape} on {self.device!r}"
                )
        forest = program.ready()
        if output == "leaf":
            forest.leaves(documents, answer)
        elif output == "per_tree":
            forest.per_tree(documents, answer)
        elif output == "class":
            self._classify(forest, documents, answer)
        else:
            self._score(forest, documents, answer[:, None] if answer.ndim == 1 else answer, output)
        if out is None:
            return self.device.hand_back(answer, X)
        for given in (X, out):  # what their libraries do next comes after this call's work
            self.device.hand_back(answer, given)
        return out

    def _predict_host(
        self, X: Any, output: str, out: np.ndarray | None, precision: str, trees: slice | None
    ) -> np.ndarray:
        documents = as_documents(X, self.forest)
        program = self._program(precision, trees, documents.narrow)
        shape, dtype = answer_form(self.forest, program.values, output, documents.n)
        if out is None:
            out = np.empty(shape, dtype)
        elif (
            not isinstance(out, np.ndarray)
            or out.shape != shape
            or out.dtype != dtype
            or not out.flags.c_contiguous
        ):
            raise InputError(f"out must be a C-contiguous {dtype} array of shape {shape}")
        table = out[:, None] if output in ("value", "raw") and out.ndim == 1 else out
        # Runs on the copies on the device, chunk by chunk, so that links are applied there too.
        step = {"leaf": GpuForest.leaves, "per_tree": GpuForest.per_tree, "class": self._classify}.get(
            output, lambda forest, d, r: self._score(forest, d, r, output)
        )
        width = len(self.forest.tested) if documents.narrow else self.forest.n_features
        rows = max(1, HOST_CHUNK_BYTES // (8 * max(width, 1)))
        for start in range(0, documents.n, rows):
            stop = min(start + rows, documents.n)
            run(self.device, lambda d, r: step(program.ready(), d, r), documents.chunk(start, stop), table[start:stop])
        return out

    def _score(self, forest: GpuForest, documents: Any, answer: Any, output: str) -> None:
        """Fill ``answer`` [D, K] with values or raw scores ([D, 1] with the values of "argmax")."""
        if answer.shape[0]:
            self._apply_link(forest, self._sums(forest, documents, answer), answer, output)

    def _apply_link(self, forest: GpuForest, sums: Any, out: Any, output: str) -> None:
        whole, value = self.forest, output == "value"
        averaged = whole.average if value else whole.average_raw
        divisor = trees_averaged(whole, forest.n_trees) if averaged else 1.0
        apply_link(self.device, whole.link if value else "identity", whole.link_scale, divisor, sums, out)

    def _sums(self, forest: GpuForest, documents: Any, answer: Any = None) -> Any:
        """Finished sums [D, K], in ``answer`` where it holds so many of their type."""
        values, shape = forest.values, (documents.shape[0], self.forest.n_outputs)
        if answer is None or answer.shape != shape:
            answer = self.device.empty(shape, np.dtype(values.score_dtype))
        same = values.sum_dtype == answer.dtype
        sums = answer if same else self.device.empty(shape, values.sum_dtype)
        forest.score(documents, sums)
        if not same or values.add_last.any():
            forest.finish(sums, answer)
        return answer

    def _classify(self, forest: GpuForest, documents: Any, answer: Any) -> None:
        """Fill ``answer`` [D] with class labels."""
        if answer.shape[0]:
            scores = self._sums(forest, documents)
            if decides_on_values(self.forest):
                self._apply_link(forest, scores, scores, "value")
            shape = answer.shape if answer.ndim == 2 else (answer.shape[0], 1)
            numbers = self.device.empty(shape, np.int64)
            find_classes(self.device, class_decision(self.forest), scores, numbers)
            self.device.retain(self._labels)
            answer[...] = self._labels[numbers.reshape(answer.shape)]

    @lazy
    def _labels(self) -> Any:
        return self.device.upload(class_labels(self.forest))

    def _check(self, documents: Any) -> Any:
        if documents.ndim != 2 or documents.shape[1] != self.forest.n_features:
            raise InputError(
                f"X has shape {tuple(documents.shape)}, not [documents, {self.forest.n_features}]"
            )
        if self.forest.schema.arrays_hold_values:
            raise InputError("X is on a GPU, but the model's categories are coded on the host; pass documents there")
        if documents.dtype.kind == "f" and documents.dtype.itemsize == 2:
            return documents.astype(np.float32)  # every float16 is a float32
        if documents.dtype.kind not in "fiub":
            raise InputError(
                f"X has dtype {documents.dtype}; documents are floating-point or integer numbers"
            )
        return documents

    def _program(self, precision: str, trees: slice | None, narrow: bool = False) -> GpuProgram:
        start, stop, _ = (trees or slice(None)).indices(self.forest.n_trees)
        key = (precision, start, max(start, stop), narrow)
        with self._lock.held():
            program = self._programs.pop(key, None)
            if program is None:
                whole = self.forest.narrowed if narrow else self.forest
                forest = whole if trees is None else whole.select(trees)
                program = self._engine.prepare(forest, precision, self.device)
                if len(self._programs) >= MAX_PROGRAMS:
                    self.device.wait()  # other streams may still read what is given back here
                    del self._programs[next(iter(self._programs))]
            self._programs[key] = program  # the last one used comes last
            return program
