"""Defines when gpuqs agrees with a source library; shared by all conformance tests."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pytest

import gpuqs
from gpuqs import cpu_fallback
from gpuqs.engines import ENGINES, LEFT_OUT
from gpuqs.engines.cpu import CpuEngine, CpuProgram
from gpuqs.errors import GpuqsError, UnsupportedModelError
from gpuqs.forest import Forest
from gpuqs.model import Model

#: All CPU engines. Below: the compiled ones among them, and the GPU engines.
ON_CPU = [name for name, engine in ENGINES.items() if engine.device == "cpu"]
COMPILED = [name for name in ON_CPU if name != "reference"]
#: CPU engines that run trees of any shape.
ON_CPU_ANY_SHAPE = [name for name in ON_CPU if name != "qs_oblivious"]
ON_GPU = [name for name, engine in ENGINES.items() if engine.device == "cuda"]
needs_quickscorer = pytest.mark.skipif("qs" in LEFT_OUT, reason="gpuqs was built without QuickScorer")
DTYPES = [np.float64, np.float32]
#: Sizes of blocks that cut forests into many tree blocks and superblocks.
SMALL_BLOCKS: dict[str, dict[str, int]] = {
    "bitslice": {"max_predicates": 40, "one_superblock": 0, "max_nodes": 300, "together": 2},
    "walk": {"tree_block": 7, "document_block": 50},
}


def on_cpu(model: Model) -> dict[str, str | None]:
    """As `Model.engines`, but only CPU engines: their scores must match the source library bit for bit."""
    return {name: reason for name, reason in model.engines().items() if name in ON_CPU}


def able(model: Model) -> list[str]:
    """The CPU engines that can run the model."""
    return [name for name, reason in on_cpu(model).items() if reason is None]


def programs_in_blocks(forest: Forest, name: str, isa: str) -> list[CpuProgram]:
    """Return a compiled engine's exact programs, with default and small blocks; skip if it cannot run the forest."""
    engine = ENGINES[name]
    assert isinstance(engine, CpuEngine)
    reason = engine.why_not(forest)
    if reason is not None:
        pytest.skip(reason)
    machine = cpu_fallback.Machine(isa, cpu_fallback.compiles_programs(isa))
    sizes = [{}, SMALL_BLOCKS[name]] if name in SMALL_BLOCKS else [{}]
    return [engine.prepare(forest, "exact", machine=machine, params=params) for params in sizes]


def assert_reads_or_refuses(broken: Iterable[bytes], X: np.ndarray) -> None:
    """Each input loads and scores ``X`` without NaN or raises a `GpuqsError`; more than 100 of each must occur."""
    n_read = n_refused = 0
    for data in broken:
        try:
            model = gpuqs.load(data)
        except GpuqsError:
            n_refused += 1
            continue
        n_read += 1
        if model.n_features == X.shape[1]:
            assert not np.isnan(model.predict(X)).any()
    assert n_read > 100 and n_refused > 100


@dataclass(frozen=True)
class Expected:
    """Documents and the source library's answers for them; ``raw`` is None if it gives no raw scores."""

    X: np.ndarray
    raw: np.ndarray | None
    values: np.ndarray
    leaves: np.ndarray


def assert_agrees(model: Model, expected: Expected, engine: str) -> None:
    """Exit leaves are equal; raw scores and values match bit for bit (isolation forests' values only closely)."""
    np.testing.assert_array_equal(model.predict(expected.X, "leaf", engine=engine), expected.leaves)
    if expected.raw is not None:
        assert_same_bits(model.predict(expected.X, "raw", engine=engine), expected.raw)
    values = model.predict(expected.X, engine=engine)
    if model.forest.link == "isolation":
        np.testing.assert_allclose(values, expected.values, rtol=1e-14)
    else:
        assert_same_bits(values, expected.values)


def assert_same_bits(got: np.ndarray, want: np.ndarray) -> None:
    assert got.dtype == want.dtype
    bits = f"i{want.itemsize}"
    np.testing.assert_array_equal(np.ascontiguousarray(got).view(bits), np.ascontiguousarray(want).view(bits))


def assert_engine_agrees(model: Model, expected: Expected, engine: str) -> None:
    """The engine agrees, or it says that it cannot run the model and "auto" agrees."""
    reason = model.engines()[engine]
    if reason is None:
        assert_agrees(model, expected, engine)
        return
    assert f"{model.n_leaves} leaves" in reason or "a tree is not oblivious" in reason
    with pytest.raises(UnsupportedModelError, match="use engine='auto'"):
        model.predict(np.zeros((1, model.n_features)), engine=engine)
    assert_agrees(model, expected, "auto")
