"""Launches name their arguments as the kernels name their parameters, in the same order."""

from __future__ import annotations

import re
from dataclasses import dataclass
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
from gpuqs.engines.gpu.qs_gpu import QsGpu
from gpuqs.engines.gpu.walk_gpu import WalkGpu
from gpuqs.engines.gpu.walk_placed import WalkSettings

KERNELS = {"rank_documents", "decode_predicates", "steps", "slots", "sum_exact", "sum_few", "sum_fast",
           "look_up_leaves"}  # fmt: skip
KERNELS |= {"transpose", "find_false_nodes", "update_scores", "update_outputs", "exit_leaves"}
KERNELS |= {"walk_scores", "walk_leaves", "add_tree_blocks", "finish_scores"}


@dataclass
class Named:
    """A kernel that is known by its source and name."""

    file: str
    name: str
    max_dynamic_shared_size_bytes: int = 0


class Device(gpu_budget.Launches):
    def kernel(self, file: str, name: str, registers: int) -> Any:
        return Named(file, name.partition("<")[0])


def parameters(file: str, kernel: str) -> list[str]:
    """Names of a kernel's parameters, as its source has them."""
    found = re.search(rf"__global__[^;{{]*?\b{kernel}\(([^)]*)\)", sources.source(file))
    assert found is not None
    return [declared.split()[-1] for declared in found[1].split(",")]


def test_launches_name_the_kernels_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    launched: dict[tuple[str, str], set[tuple[str, ...]]] = {}

    def launch(kernel: Named, *where: Any, shared_bytes: int = 0, **arguments: Any) -> None:
        launched.setdefault((kernel.file, kernel.name), set()).add(tuple(arguments))

    monkeypatch.setattr(PlacedForest, "_launch_kernel", staticmethod(launch))
    rng = np.random.default_rng(3)
    bitsliced = [BitsliceGpu(BitsliceSettings(evaluation=evaluation)) for evaluation in ("steps", "slots")]
    engines = [*bitsliced, QsGpu(), WalkGpu(), WalkGpu(WalkSettings(part_trees=1))]
    for engine, precision, n_outputs in product(engines, ("exact", "fast"), (1, 2)):
        forest = random_forest(rng, n_trees=12, max_leaves=20, n_outputs=n_outputs)
        documents = probing_documents(rng, forest, 1500, np.float32)
        placed = engine.prepare(forest, precision, device=Device()).forest
        sums = np.zeros((len(documents), n_outputs), placed.values.sum_dtype)
        placed.score(documents, sums)
        placed.score(documents[:1], sums[:1])
        if isinstance(engine, BitsliceGpu) and precision == "exact":
            many = BitsliceGpu(BitsliceSettings(summed=1)).prepare(forest, precision, device=Device()).forest
            many.score(documents, sums)
        placed.finish(sums, np.zeros(sums.shape))
        placed.leaves(documents, np.zeros((len(documents), forest.n_trees), np.int32))
    assert {kernel for _, kernel in launched} == KERNELS
    for (file, kernel), named in launched.items():
        assert named == {tuple(parameters(file, kernel))}, kernel
