"""Hypothesis strategies for forests and documents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from forests import probing_documents, random_forest
from hypothesis import strategies as st

from gpuqs.forest import Forest

#: Batch sizes around the sizes of engines' words, blocks and groups of documents.
BATCHES = (0, 1, 2, 63, 64, 65, 127, 128, 129, 511, 512, 513, 1500)


#: Numbers of leaves around the limits of bitvectors and leaf indices.
LEAVES = (1, 2, 3, 8, 9, 16, 17, 31, 32, 33, 63, 64, 65, 100, 255, 256, 257, 1000)


@dataclass(frozen=True)
class Drawn:
    """A forest described by its parameters, so that a failing example prints how to rebuild it."""

    seed: int
    fields: dict[str, Any]

    def forest(self) -> Forest:
        return random_forest(np.random.default_rng(self.seed), **self.fields)

    def documents(self, forest: Forest, n: int, dtype: type, *, all_equal: bool = False) -> np.ndarray:
        rng = np.random.default_rng(self.seed + 1)
        X = probing_documents(rng, forest, 1 if all_equal else n, dtype)
        return np.repeat(X, n, axis=0) if all_equal else X


@st.composite
def forests(draw: st.DrawFn, max_nodes: int = 2500) -> Drawn:
    """Forests of every shape: chains, complete trees, stumps, 1 to 1,000 leaves, few or many thresholds."""
    max_leaves = draw(st.sampled_from(LEAVES))
    few = max(1, min(150, max_nodes // max_leaves))
    n_outputs = draw(st.sampled_from([1, 1, 1, 2, 3]))
    return Drawn(
        seed=draw(st.integers(0, 2**32 - 1)),
        fields={
            "n_trees": draw(st.integers(0, few)),
            "max_leaves": max_leaves,
            "shape": draw(st.sampled_from(["random", "chain", "complete", "oblivious"])),
            "n_features": draw(st.sampled_from([1, 2, 7, 40])),
            "n_thresholds": draw(st.sampled_from([1, 2, 15, 16, 17, 40, 255, 256, 257, 2000])),
            "n_outputs": n_outputs,
            "vector_leaves": draw(st.booleans()),
            "input_dtype": draw(st.sampled_from(["float64", "float32"])),
            "sum_dtype": draw(st.sampled_from(["float64", "float32"])),
            "base_first": draw(st.booleans()),
            "categorical": draw(st.sampled_from([0.0, 0.0, 0.3, 1.0])),
        },
    )
