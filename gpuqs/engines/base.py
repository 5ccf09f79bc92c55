"""The interface behind which every engine stands."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from gpuqs.cpu_fallback import Machine
from gpuqs.devices.base import Device
from gpuqs.engines.parameters import NONE_GIVEN, Parameter, Params, settings
from gpuqs.forest import Forest
from gpuqs.layout.leaves import LeafValues
from gpuqs.layout.ranks import RankTables
from gpuqs.links import to_raw, to_values
from gpuqs.outputs import class_labels, class_numbers, values_of_leaves

#: Microseconds of a call before any document is scored.
CALL = 1.0


@dataclass(frozen=True)
class Program:
    """A forest made ready for one engine; immutable, shared between threads.

    Parameters
    ----------
    values : LeafValues
        What the leaves add up to; `LeafValues.finish` turns sums into scores.
    """

    values: LeafValues


class Engine(ABC):
    """One way to find exit leaves and add their values up.

    Documents and what is filled lie where the program runs: NumPy's arrays for engines of the CPU.

    Attributes
    ----------
    name : str
        As in ``Model.predict(engine=...)``.
    device : {"cpu", "cuda"}
        The kind of `gpuqs.devices.base.Device` that it runs on.
    summary : str
        One line for people.
    parameters : tuple of Parameter
        What may be tuned; no value changes a score.
    own_sums : bool
        Its exact sums may have other bits than the others': no plan may choose it.
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
        """Predicted microseconds to score so many documents, on the CPU with one thread.

        None where the engine is taken only if it is asked for, or if no other runs the forest. ``machine`` is as of
        `prepare`.

        They are those of calls that find everything in the caches; `cold` says what the others take more. The figures
        are those of a core of a Zen 5, with every instruction set: sixteen forests of LightGBM, XGBoost and CatBoost,
        100 to 1,000 trees of 8 to 256 leaves on 28 to 700 columns, calls of 1 to 1,000 documents. Other processors
        scale them much alike, which is all that a choice between engines needs.
        """

    def cold(self, forest: Forest, n_documents: int, machine: Machine | None = None) -> float:
        """Predicted microseconds more where other work has emptied the caches: a call reads its program once."""
        return 0.0

    def tree_shares(self, forest: Forest, n_documents: int) -> int:
        """Shares of the trees that threads may take where documents are too few to be shared out; 1: they may not."""
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
            Gives the tables by which documents are ranked; by default the engine makes them of the forest.
        device : Device, optional
            Where the program will run; engines of the CPU know without.
        machine : Machine, optional
            What engines of the CPU make it for; by default what `gpuqs.cpu_fallback.machine` gives.
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
        """Fill ``out`` ([D, T], or [D, T, width] of vector leaves) with the exit leaves' values, tree by tree."""
        leaves = np.empty((len(out), forest.n_trees), np.int32)
        self.leaves(program, documents, leaves, n_threads)
        values_of_leaves(forest, leaves, out)

    # -- from sums to outputs: the CPU's here, other devices' where an engine runs there ----------

    def finish(self, program: Program, sums: Any, scores: Any, add_last: Any = None) -> None:
        """Fill ``scores`` ([D, K], of `LeafValues.score_dtype`; may be ``sums``) as `LeafValues.finish` says."""
        finished = program.values.finish(sums, add_last)
        if finished is not scores:
            scores[...] = finished

    def link(
        self, program: Program, forest: Forest, scores: Any, out: Any, output: str, n_threads: int = 1
    ) -> None:
        """Fill ``out`` ([D, K] or, of "argmax", [D, 1]; may be ``scores``) with the output "value" or "raw"."""
        n_trees = len(program.values.trees)
        if output == "value":
            values = to_values(forest, scores, n_trees, out=out, n_threads=n_threads)
        else:
            values = to_raw(forest, scores, n_trees)
        if values is not out:
            out[...] = values

    def classify(self, program: Program, forest: Forest, scores: Any, out: Any) -> None:
        """Fill ``out`` ([D], or [D, K] of multi-label models) with class labels."""
        out[...] = class_labels(forest)[class_numbers(forest, scores, len(program.values.trees))]
