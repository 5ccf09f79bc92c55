"""Model: the façade through which users score documents."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any, Literal

import numpy as np

from gpuqs import cpu_fallback
from gpuqs.arrays import as_documents
from gpuqs.engines import ENGINES, Program
from gpuqs.errors import InputError, UnsupportedModelError
from gpuqs.forest import Forest
from gpuqs.links import to_values

Output = Literal["value", "raw", "leaf"]
Precision = Literal["exact", "fast"]

#: Work (documents x trees) between two looks at pending signals such as Ctrl-C.
CHUNK_WORK = 100_000_000
#: Less work than this is done sooner by one thread than by several.
THREAD_WORK = 500_000
#: Bytes of documents that one chunk may copy when they must be converted.
CHUNK_BYTES = 16 << 20
#: Orders in which "auto" prefers engines: batches, and few documents.
BATCH_ENGINES = ("bitslice", "vqs", "qs", "walk", "reference")
FEW_DOCUMENTS_ENGINES = ("qs", "walk", "reference")
#: Up to this many documents `qs` wastes less than engines that score many at once.
FEW_DOCUMENTS = 4


class Model:
    """A forest that scores documents; immutable, shared freely between threads.

    Made by `gpuqs.load` and `gpuqs.from_model`.

    Parameters
    ----------
    forest : Forest
    """

    def __init__(self, forest: Forest) -> None:
        self.forest = forest
        self._programs: dict[tuple[str, str, str], Program] = {}
        self._lock = threading.Lock()
        self._reasons = {name: engine.supports(forest) for name, engine in ENGINES.items()}
        if all(reason is not None for name, reason in self._reasons.items() if name != "reference"):
            raise UnsupportedModelError(
                f"this {forest.source} model has categorical splits, which are not evaluated yet; "
                "train with the categories one-hot encoded"
            )

    def __repr__(self) -> str:
        f = self.forest
        return (
            f"<gpuqs.Model: {f.source} {f.objective}, {f.n_trees:,} trees of up to {f.n_leaves} leaves, "
            f"{f.n_features} features, {f.n_outputs} output{'s' if f.n_outputs > 1 else ''}>"
        )

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
    def feature_names(self) -> tuple[str, ...]:
        return self.forest.feature_names

    def engines(self) -> dict[str, str | None]:
        """Every engine's name, with None where it can run this model, else the reason why not."""
        return dict(self._reasons)

    def engine_for(self, n_documents: int) -> str:
        """The engine that ``engine="auto"`` uses for so many documents."""
        few = n_documents <= FEW_DOCUMENTS
        preferred = FEW_DOCUMENTS_ENGINES if few else BATCH_ENGINES
        return next(name for name in preferred if self._reasons[name] is None)

    def predict(
        self,
        X: Any,
        output: Output = "value",
        *,
        n_threads: int | None = None,
        out: np.ndarray | None = None,
        engine: str = "auto",
        precision: Precision = "exact",
    ) -> np.ndarray:
        """Score documents.

        Parameters
        ----------
        X : array-like [D, n_features]
            NumPy array (float32, float64 or integers; C or F order, any strides), nested list,
            pandas frame or Arrow table (columns by name). Never copied beyond one chunk.
        output : {"value", "raw", "leaf"}
            "value": what the source library's ``predict`` gives (probabilities and the like).
            "raw": sums before the link. "leaf": the source library's exit leaf numbers.
        n_threads : int, optional
            Threads to use; all processors by default.
        out : ndarray, optional
            Where the answer goes: C order, the shape and dtype given below.
        engine : str
            "auto", or one of `engines`.
        precision : {"exact", "fast"}
            "exact": the source library's sums, bit for bit. "fast": leaf values rounded once to a
            24-bit fixed-point grid and summed as integers: the same bits from every engine.

        Returns
        -------
        ndarray
            "value" and "raw": [D], or [D, n_outputs] where the model has several; float64 for
            LightGBM, float32 for XGBoost, as there. "leaf": int32 [D, n_trees].

        Raises
        ------
        InputError
            ``X`` or ``out`` has the wrong shape or type.
        """
        if output not in ("value", "raw", "leaf"):
            raise ValueError(f"output must be 'value', 'raw' or 'leaf', not {output!r}")
        documents = as_documents(X, self.forest)
        if n_threads is None:
            few = documents.n * self.n_trees < THREAD_WORK
            n_threads = 1 if few else cpu_fallback.default_threads()
        elif n_threads < 1:
            raise ValueError(f"n_threads must be at least 1, not {n_threads}")
        name = self.engine_for(documents.n) if engine == "auto" else engine
        program = self._program(name, precision)
        if output == "leaf":
            width, dtype = self.forest.n_trees, np.int32
        else:
            width, dtype = self.forest.n_outputs, self.forest.sum_dtype
        shape = (documents.n,) if output != "leaf" and width == 1 else (documents.n, width)
        if out is None:
            out = np.empty(shape, dtype)
        elif not isinstance(out, np.ndarray) or out.shape != shape or out.dtype != dtype or not out.flags.c_contiguous:
            raise InputError(f"out must be a C-contiguous {np.dtype(dtype)} array of shape {shape}")
        table = out.reshape(documents.n, width)
        step = self._chunk_rows
        for start in range(0, documents.n, step):
            stop = min(start + step, documents.n)
            chunk = documents.chunk(start, stop)
            if output == "leaf":
                ENGINES[name].leaves(program, chunk, table[start:stop], n_threads)
                continue
            self._score_chunk(name, program, chunk, table[start:stop], output, n_threads)
        return out

    def _score_chunk(
        self, name: str, program: Program, chunk: np.ndarray, out: np.ndarray, output: Output, n_threads: int
    ) -> None:
        values = program.values
        direct = values.sum_dtype == out.dtype
        sums = out if direct else np.empty(out.shape, values.sum_dtype)
        ENGINES[name].score(program, chunk, sums, n_threads)
        scores = values.finish(sums)
        if output == "value":
            scores = to_values(self.forest, scores)
        if scores is not out:
            out[:] = scores

    @cached_property
    def _chunk_rows(self) -> int:
        by_work = CHUNK_WORK // max(self.n_trees, 1)
        by_bytes = CHUNK_BYTES // (8 * max(self.n_features, 1))
        return max(1024, min(by_work, by_bytes) // 1024 * 1024)

    def _program(self, name: str, precision: str) -> Program:
        key = (name, precision, cpu_fallback.isa())
        program = self._programs.get(key)
        if program is not None:
            return program
        if name not in ENGINES:
            raise ValueError(f"engine must be 'auto' or one of {', '.join(ENGINES)}, not {name!r}")
        if precision not in ("exact", "fast"):
            raise ValueError(f"precision must be 'exact' or 'fast', not {precision!r}")
        reason = self._reasons[name]
        if reason is not None:
            raise UnsupportedModelError(f"engine {name!r} cannot run this model: {reason}; use engine='auto'")
        with self._lock:
            if key not in self._programs:
                self._programs[key] = ENGINES[name].prepare(self.forest, precision)
            return self._programs[key]

    def __getstate__(self) -> dict[str, Any]:
        return {"forest": self.forest}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["forest"])
