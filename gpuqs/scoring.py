"""What a call computes for each chunk of its documents, on any device: sums, scores, outputs."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gpuqs import cpu_fallback
from gpuqs.cpu_fallback.linear import linear_outputs
from gpuqs.devices import Device
from gpuqs.engines import Engine, Program
from gpuqs.forest import Forest
from gpuqs.layout.leaves import leaf_values
from gpuqs.outputs import positions_of_leaves


class Scoring(NamedTuple):
    """One call of `Model.predict`, planned.

    Parameters
    ----------
    forest : Forest
        The model's forest; for output "per_tree", that of the scored trees, for documents with the program's columns.
    engine : Engine
    program : Program
    device : Device
        Where the program runs.
    output : str
    n_threads : int
    """

    forest: Forest
    engine: Engine
    program: Program
    device: Device
    output: str
    n_threads: int

    def fill(self, documents: Any, out: Any, margin: Any = None) -> None:
        """Fill ``out``, of the form that `gpuqs.outputs.answer_form` says; all three lie on the device.

        ``margin`` [D, K] is what sums begin with in place of the base score.
        """
        engine, program, output = self.engine, self.program, self.output
        if output == "leaf":
            engine.leaves(program, documents, out, self.n_threads)
        elif output == "per_tree" and self.forest.has_linear_leaves:
            self._linear_outputs(documents, out)
        elif output == "per_tree":
            engine.per_tree(program, self.forest, documents, out, self.n_threads)
        else:
            answer, scores = self._places(out)
            same = program.values.sum_dtype == scores.dtype
            sums = scores if same else self.device.empty(scores.shape, program.values.sum_dtype)
            if margin is not None:
                sums[...] = margin if program.values.starts_at_base else 0
            engine.score(program, documents, sums, self.n_threads, started=margin is not None)
            self._finish(sums, scores, answer, margin)

    def fill_from(self, sums: Any, out: Any, margin: Any = None) -> None:
        """Fill ``out`` as `fill` does, from given sums [D, K], which stay unchanged."""
        answer, scores = self._places(out)
        self._finish(sums, scores, answer, margin)

    def _places(self, out: Any) -> tuple[Any, Any]:
        """``out`` in the shape that is filled, and where scores [D, K] are written before: the same if they fit."""
        answer = out if out.ndim == 2 or self.output == "class" else out[:, None]
        shape = out.shape[0], self.forest.n_outputs
        wide = self.output != "class" and answer.shape[1] == shape[1]  # else it holds only labels, in one column
        return answer, answer if wide else self.device.empty(shape, self.program.values.score_dtype)

    def _finish(self, sums: Any, scores: Any, answer: Any, margin: Any) -> None:
        engine, program = self.engine, self.program
        engine.finish(program, sums, scores, None if program.values.starts_at_base else margin)
        if self.output == "class":
            engine.classify(program, self.forest, scores, answer)
        else:
            engine.link(program, self.forest, scores, answer, self.output, self.n_threads)

    def _linear_outputs(self, documents: Any, out: Any) -> None:
        """Fill ``out`` with each tree's output, computed by the exit leaf's linear model."""
        forest, leaves = self.forest, np.empty((len(documents), self.forest.n_trees), np.int32)
        self.engine.leaves(self.program, documents, leaves, self.n_threads)
        values = cpu_fallback.Values(leaf_values(forest, forest.leaf_place, "exact"))
        linear_outputs(values, documents, positions_of_leaves(forest, leaves), out, self.n_threads)
