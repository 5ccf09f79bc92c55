"""The interface that every engine implements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np

from gpuqs.cpu_fallback import Machine
from gpuqs.devices.base import Device
from gpuqs.engines.parameters import NONE_GIVEN, Changed, Parameter, Params, settings
from gpuqs.forest import Forest
from gpuqs.layout.leaves import LeafValues
from gpuqs.layout.ranks import RankTables
from gpuqs.links import to_raw, to_values
from gpuqs.outputs import class_labels, class_numbers, values_of_leaves

#: Bytes of the L1, L2 and L3 caches of one core.
CacheSizes: TypeAlias = tuple[int, int, int]
#: Fixed cost of a call, in microseconds, before any document is scored.
CALL = 1.0


@dataclass(frozen=True)
class Program:
    """A forest made ready for one engine; immutable, shared between threads.

    Parameters
    ----------
    values : LeafValues
        The leaf values that are summed; `LeafValues.finish` turns sums into scores.
    """

    values: LeafValues


class Engine(ABC):
    """One way to find exit leaves and add their values up.

    Documents and outputs lie where the program runs: NumPy arrays for CPU engines.

    Attributes
    ----------
    name : str
        As in ``Model.predict(engine=...)``.
    device : {"cpu", "cuda"}
        The kind of `gpuqs.devices.base.Device` that it runs on.
    summary : str
        One-line description.
    parameters : tuple of Parameter
        What may be tuned; no value changes a score.
    own_sums : bool
        Its exact sums may differ in some bits from other engines' sums, so no plan may choose it.
    """

    name: ClassVar[str]
    device: ClassVar[str] = "cpu"
    summary: ClassVar[str]
    parameters: ClassVar[tuple[Parameter, ...]] = ()
    own_sums: ClassVar[bool] = False

    @abstractmethod
    def why_not(self, forest: Forest) -> str | None:
        """None where the engine can run the forest, else the reason why not."""

    @abstractmethod
    def cost(self, forest: Forest, n_documents: int, machine: Machine | None = None) -> float | None:
        """Predicted microseconds to score ``n_documents`` documents, on the CPU with one thread.

        None if the engine is used only on request, or only when no other engine can run the forest. ``machine``: see
        `prepare`.

        This is the cost of calls that find everything in the caches; `cold` gives what other calls add. The figures
        were measured on one Zen 5 core with every instruction set: sixteen forests of LightGBM, XGBoost and CatBoost,
        100 to 1,000 trees of 8 to 256 leaves on 28 to 700 columns, calls of 1 to 1,000 documents. Other processors
        scale them about equally, which is all that a choice between engines needs.
        """

    def cold(self, forest: Forest, n_documents: int, machine: Machine | None = None) -> float:
        """Predicted extra microseconds if other work has emptied the caches, and a call has to read its program."""
        return 0.0

    def usual(self, forest: Forest, n_documents: int, machine: Machine, caches: Callable[[], CacheSizes]) -> Changed:
        """Parameters that suit a batch better than the defaults, unless a plan says otherwise."""
        return ()

    def tree_shares(self, forest: Forest, n_documents: int) -> int:
        """Most parts into which threads may split the trees if documents are too few to split; 1: no split."""
        return 1

    @abstractmethod
    def prepare(
        self,
        forest: Forest,
        precision: str,
        *,
        ranks: Callable[[], RankTables] | None = None,
        device: Device | None = None,
        machine: Machine | None = None,
        params: Params = NONE_GIVEN,
    ) -> Program:
        """Lay the forest out.

        Parameters
        ----------
        forest : Forest
        precision : {"exact", "fast"}
        ranks : callable, optional
            Returns the tables that rank documents; by default the engine builds them from the forest.
        device : Device, optional
            Where the program will run; CPU engines do not need it.
        machine : Machine, optional
            What CPU engines lay the forest out for; by default `gpuqs.cpu_fallback.machine()`.
        params : mapping of str to int, optional
            Values of `parameters`; those left out have their defaults.

        Raises
        ------
        ValueError, TypeError
            There is no such parameter, or its value is out of range.
        """

    def _default(self, parameter: str) -> int:
        return next(each.default for each in self.parameters if each.name == parameter)

    def _values(self, params: Params) -> dict[str, int]:
        return settings(self.name, self.parameters, params)

    @abstractmethod
    def score(self, program: Program, documents: Any, sums: Any, n_threads: int = 1, started: bool = False) -> None:
        """Fill ``sums`` ([D, K], of `LeafValues.sum_dtype`, C order).

        ``documents`` is [D, n_features], float32 or float64, any strides. ``started``: the sums
        begin with what ``sums`` holds, not with `LeafValues.start`.
        """

    @abstractmethod
    def leaves(self, program: Program, documents: Any, out: Any, n_threads: int = 1) -> None:
        """Fill ``out`` (int32 [D, T], C order) with the source library's exit leaf numbers."""

    def per_tree(self, program: Program, forest: Forest, documents: Any, out: Any, n_threads: int = 1) -> None:
        """Fill ``out`` ([D, T], or [D, T, width] for vector leaves) with the exit leaves' values, tree by tree."""
        leaves = np.empty((len(out), forest.n_trees), np.int32)
        self.leaves(program, documents, leaves, n_threads)
        values_of_leaves(forest, leaves, out)

    # -- from sums to outputs, on the CPU; engines of other devices override these ----------------

    def finish(self, program: Program, sums: Any, scores: Any, add_last: Any = None) -> None:
        """Fill ``scores`` ([D, K], of `LeafValues.score_dtype`; may be ``sums``) as `LeafValues.finish` does."""
        finished = program.values.finish(sums, add_last)
        if finished is not scores:
            scores[...] = finished

    def link(
        self, program: Program, forest: Forest, scores: Any, out: Any, output: str, n_threads: int = 1
    ) -> None:
        """Fill ``out`` ([D, K] or, for "argmax", [D, 1]; may be ``scores``) with the output "value" or "raw"."""
        n_trees = len(program.values.trees)
        if output == "value":
            values = to_values(forest, scores, n_trees, out=out, n_threads=n_threads)
        else:
            values = to_raw(forest, scores, n_trees)
        if values is not out:
            out[...] = values

    def classify(self, program: Program, forest: Forest, scores: Any, out: Any) -> None:
        """Fill ``out`` ([D], or [D, K] for multi-label models) with class labels."""
        out[...] = class_labels(forest)[class_numbers(forest, scores, len(program.values.trees))]
