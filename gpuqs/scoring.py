"""The computation of one call for each chunk of its documents: sums, scores, outputs, on whatever device."""

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
        The model's; of output "per_tree", that of the trees that are scored, for such documents.
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
        elif output == "class":
            scores = self.device.empty((out.shape[0], self.forest.n_outputs), program.values.score_dtype)
            self._score(documents, scores, margin)
            engine.classify(program, self.forest, scores, out)
        else:
            table = out if out.ndim == 2 else out[:, None]
            wide = table.shape[1] == self.forest.n_outputs  # else labels alone, of one column
            shape = out.shape[0], self.forest.n_outputs
            scores = table if wide else self.device.empty(shape, program.values.score_dtype)
            self._score(documents, scores, margin)
            engine.link(program, self.forest, scores, table, output, self.n_threads)

    def _score(self, documents: Any, scores: Any, margin: Any) -> None:
        engine, program, values = self.engine, self.program, self.program.values
        same = values.sum_dtype == scores.dtype
        sums = scores if same else self.device.empty(scores.shape, values.sum_dtype)
        if margin is not None:
            sums[...] = margin if values.starts_at_base else 0
        engine.score(program, documents, sums, self.n_threads, started=margin is not None)
        engine.finish(program, sums, scores, None if values.starts_at_base else margin)

    def _linear_outputs(self, documents: Any, out: Any) -> None:
        """Trees' outputs, of the exit leaves' linear models."""
        forest, leaves = self.forest, np.empty((len(documents), self.forest.n_trees), np.int32)
        self.engine.leaves(self.program, documents, leaves, self.n_threads)
        values = cpu_fallback.Values(leaf_values(forest, forest.leaf_place, "exact"))
        linear_outputs(values, documents, positions_of_leaves(forest, leaves), out, self.n_threads)
