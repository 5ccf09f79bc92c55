"""DeviceModel: a model on one GPU, the answer of ``Model.to("cuda:0")``."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuqs.arrays import as_documents
from gpuqs.engines.gpu_device import GpuDevice
from gpuqs.engines.gpu_forest import GpuForest
from gpuqs.engines.qs_gpu import GpuProgram, QsGpu
from gpuqs.errors import InputError, UnsupportedModelError
from gpuqs.forest import Forest
from gpuqs.forks import Lock, lazy
from gpuqs.links import to_values
from gpuqs.outputs import answer_form, check_options, class_labels, class_numbers

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
        self._engine = QsGpu(lambda: device)
        reason = self._engine.supports(forest)
        if reason is not None:
            raise UnsupportedModelError(
                f"this {forest.source} model does not run on a GPU: {reason}; use device='cpu'"
            )
        self._programs: dict[tuple[str, int, int], GpuProgram] = {}
        self._lock = Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        # Device memory stays behind; unpickling looks for the device, and tells where there is none.
        return DeviceModel, (self.forest, self.device)

    def __repr__(self) -> str:
        return f"<gpuqs.DeviceModel: {self.forest.source}, {self.forest.n_trees:,} trees on {self.device!r}>"

    def predict(
        self,
        X: Any,
        output: str = "value",
        *,
        out: Any = None,
        precision: str = "exact",
        trees: slice | None = None,
    ) -> Any:
        """Score documents.

        Work on documents that lie on the device is queued on the current CuPy stream, and the
        call returns at once; the first call with a precision and range of trees copies the model,
        and waits for that.

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

        Returns
        -------
        array
            Of X's library where it lies on the device, else NumPy's; shapes and types as from
            `Model.predict`.

        Raises
        ------
        InputError
            ``X`` or ``out`` has the wrong shape or type, or lies on another device.
        """
        check_options(self.forest, output, precision)
        if output == "class" and class_labels(self.forest).dtype.kind not in "biuf":
            raise InputError(
                "the class labels are texts, which GPUs do not hold; use output='value', or device='cpu'"
            )
        program = self._program(precision, trees)
        with self.device.active():
            documents = self.device.adopt(X)
            if documents is None:
                return self._predict_host(program, X, output, out)
            return self._predict_device(program, X, documents, output, out)

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
        forest = program.on(self.device)
        if output == "leaf":
            forest.leaves(documents, answer)
        elif output == "per_tree":
            forest.per_tree(documents, answer)
        elif output == "class":
            self._classify(forest, documents, answer)
        else:
            self._score(forest, documents, answer.reshape(documents.shape[0], self.forest.n_outputs), output)
        return out if out is not None else self.device.hand_back(answer, X)

    def _predict_host(self, program: GpuProgram, X: Any, output: str, out: Any) -> np.ndarray:
        documents = as_documents(X, self.forest)
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
        table = out.reshape(documents.n, self.forest.n_outputs) if output in ("value", "raw") else out
        # Runs on the copies on the device, chunk by chunk, so that links are applied there too.
        step = {"leaf": GpuForest.leaves, "per_tree": GpuForest.per_tree, "class": self._classify}.get(
            output, lambda forest, d, r: self._score(forest, d, r, output)
        )
        rows = max(1, HOST_CHUNK_BYTES // (8 * max(self.forest.n_features, 1)))
        for start in range(0, documents.n, rows):
            stop = min(start + rows, documents.n)
            self._engine.run(program, step, documents.chunk(start, stop), table[start:stop])
        return out

    def _score(self, forest: GpuForest, documents: Any, answer: Any, output: str) -> None:
        """Fill ``answer`` [D, K] with values or raw scores."""
        if not answer.shape[0]:
            return
        values = forest.values
        same = values.sum_dtype == answer.dtype
        sums = answer if same else self.device.empty(answer.shape, values.sum_dtype)
        forest.score(documents, sums)
        if not same or values.add_last.any():
            forest.finish(sums, answer)
        if output == "value":
            linked = to_values(self.forest, answer, forest.n_trees)
            if linked is not answer:
                answer[...] = linked

    def _classify(self, forest: GpuForest, documents: Any, answer: Any) -> None:
        """Fill ``answer`` [D] with class labels."""
        raw = self.device.empty((answer.shape[0], self.forest.n_outputs), np.dtype(forest.values.score_dtype))
        self._score(forest, documents, raw, "raw")
        if answer.shape[0]:
            self.device.retain(self._labels)
            answer[...] = self._labels[class_numbers(self.forest, raw, forest.n_trees)]

    @lazy
    def _labels(self) -> Any:
        return self.device.upload(class_labels(self.forest))

    def _check(self, documents: Any) -> Any:
        if documents.ndim != 2 or documents.shape[1] != self.forest.n_features:
            raise InputError(
                f"X has shape {tuple(documents.shape)}, not [documents, {self.forest.n_features}]"
            )
        if documents.dtype.kind == "f" and documents.dtype.itemsize == 2:
            return documents.astype(np.float32)  # every float16 is a float32
        if documents.dtype.kind not in "fiub":
            raise InputError(
                f"X has dtype {documents.dtype}; documents are floating-point or integer numbers"
            )
        return documents

    def _program(self, precision: str, trees: slice | None) -> GpuProgram:
        start, stop, _ = (trees or slice(None)).indices(self.forest.n_trees)
        key = (precision, start, max(start, stop))
        with self._lock.held():
            program = self._programs.pop(key, None)
            if program is None:
                forest = self.forest if trees is None else self.forest.select(trees)
                program = self._engine.prepare(forest, precision)
                if len(self._programs) == MAX_PROGRAMS:
                    self.device.wait()  # other streams may still read what is given back here
                    del self._programs[next(iter(self._programs))]
            self._programs[key] = program  # the last one used comes last
            return program
