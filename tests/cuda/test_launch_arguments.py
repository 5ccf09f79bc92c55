"""Launches of the bit-sliced kernels name their arguments as the kernels name their parameters, in their order."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import gpu_budget
import numpy as np
import pytest
from forests import probing_documents, random_forest

from gpuqs.devices import sources
from gpuqs.engines.gpu.bitslice_gpu import BitsliceGpu
from gpuqs.engines.gpu.bitslice_placed import BitsliceSettings
from gpuqs.engines.gpu.placed import PlacedForest

KERNELS = {"rank_documents", "decode_predicates", "steps", "slots", "sum_exact", "sum_fast", "look_up_leaves"}
KERNELS |= {"add_tree_blocks", "finish_scores"}


def parameters(file: str, kernel: str) -> list[str]:
    """Names of a kernel's parameters, as its source has them."""
    found = re.search(rf"__global__[^;{{]*?\b{kernel}\(([^)]*)\)", sources.source(file))
    assert found is not None
    return [declared.split()[-1] for declared in found[1].split(",")]


def test_launches_name_the_kernels_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    launched: dict[tuple[str, str], set[tuple[str, ...]]] = {}

    def launch(self: PlacedForest, file: str, name: str, *where: Any, shared_bytes: int = 0, **arguments: Any) -> None:
        launched.setdefault((file, name.partition("<")[0]), set()).add(tuple(arguments))

    monkeypatch.setattr(PlacedForest, "_launch_kernel", launch)
    rng = np.random.default_rng(3)
    forest = random_forest(rng, n_trees=12, max_leaves=20)
    documents = probing_documents(rng, forest, 1500, np.float32)
    for precision, evaluation in product(("exact", "fast"), ("steps", "slots")):
        engine = BitsliceGpu(BitsliceSettings(evaluation=evaluation))
        placed = engine.prepare(forest, precision, device=gpu_budget.Launches()).forest
        sums = np.zeros((len(documents), 1), placed.values.sum_dtype)
        placed.score(documents, sums)
        placed.finish(sums, np.zeros(sums.shape))
        placed.leaves(documents, np.zeros((len(documents), forest.n_trees), np.int32))
    assert {kernel for _, kernel in launched} == KERNELS
    for (file, kernel), named in launched.items():
        assert named == {tuple(parameters(file, kernel))}, kernel
