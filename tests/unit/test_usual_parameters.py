"""Parameters that engines choose by the size of a batch where no plan says otherwise."""

from __future__ import annotations

from inspect import signature
from typing import Any

import numpy as np
import pytest
from forests import random_forest

from gpuqs import cpu_fallback
from gpuqs.cpu_fallback import Machine
from gpuqs.devices import HOST
from gpuqs.engines import ENGINES
from gpuqs.engines.bitslice import CACHED_NODES, LARGE_BATCH, LARGE_L2, Bitslice
from gpuqs.forest import Forest
from gpuqs.model import Model
from gpuqs.tuning.loops import candidates
from gpuqs.tuning.machine import Hierarchy
from gpuqs.tuning.nearby import best_near
from gpuqs.tuning.plan import Candidate, Tuned, Way

WIDE = Machine("avx512", True)
CACHES = (48 << 10, LARGE_L2, 32 << 20)
SMALLER = (("max_nodes", CACHED_NODES),)


def forest_of(n_trees: int = 600, max_leaves: int = 64, shape: str = "complete") -> Forest:
    return random_forest(np.random.default_rng(5), n_trees=n_trees, max_leaves=max_leaves, shape=shape)


@pytest.fixture(scope="module")
def large() -> Forest:
    forest = forest_of()
    assert forest.n_nodes > CACHED_NODES and forest.n_leaves == 64
    return forest


def test_superblocks_of_large_batches_fit_a_large_cache(large: Forest) -> None:
    usual = ENGINES["bitslice"].usual
    assert usual(large, LARGE_BATCH, WIDE, lambda: CACHES) == SMALLER
    assert usual(large, LARGE_BATCH - 1, WIDE, lambda: CACHES) == ()
    assert usual(large, LARGE_BATCH, WIDE, lambda: (CACHES[0], LARGE_L2 - 1, CACHES[2])) == ()
    for machine in (Machine("avx512", False), Machine("avx2", True), Machine("portable", False)):
        assert usual(large, LARGE_BATCH, machine, lambda: CACHES) == ()
    for other in (forest_of(n_trees=100), forest_of(n_trees=300, max_leaves=128), forest_of(shape="oblivious")):
        assert usual(other, LARGE_BATCH, WIDE, lambda: CACHES) == ()
    assert all(ENGINES[name].usual(large, 10**6, WIDE, lambda: CACHES) == () for name in ENGINES if name != "bitslice")


def test_calls_use_them_unless_a_plan_says_otherwise(large: Forest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuqs.chooser.cache_sizes", lambda: CACHES)
    model, here, usual = Model(large), cpu_fallback.machine(), Bitslice.usual
    chooser = model._calls.chooser
    assert chooser.way(10**6, HOST, WIDE) == Way("bitslice", SMALLER)
    assert chooser.way(LARGE_BATCH - 1, HOST, WIDE) == Way("bitslice")
    # From here on this machine counts as one of those, whatever it is.
    monkeypatch.setattr(Bitslice, "usual", lambda self, forest, n, machine, sizes: usual(self, forest, n, WIDE, sizes))
    documents = np.random.default_rng(2).normal(size=(LARGE_BATCH, large.n_features))
    expected = model.predict(documents, engine="reference")
    asked: list[Any] = []
    get = model._programs.get

    def noted(*args: Any, **words: Any) -> Any:
        asked.append(signature(get).bind(*args, **words).arguments["params"])
        return get(*args, **words)

    monkeypatch.setattr(model._programs, "get", noted)
    encoded = model.encode(documents)
    for X in (encoded, documents):
        for words in ({"engine": "bitslice"}, {}):
            assert model.predict(X, **words).tobytes() == expected.tobytes()
    assert asked == [*[SMALLER] * 4, chooser.way(LARGE_BATCH, HOST, here).params]
    plan = model.tune(documents, 0.2, batch_sizes=[LARGE_BATCH])
    tried = {Way(one.engine, one.params) for one in plan.sizes[0].candidates}
    assert chooser.usual(LARGE_BATCH, HOST, here) in tried
    assert model.predict(documents).tobytes() == expected.tobytes()


@pytest.mark.parametrize("most", [0, 3, 48])
def test_the_default_is_a_candidate_whatever_its_parameters(
    most: int, large: Forest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuqs.tuning.loops._MAX_CANDIDATES", most)
    default = Candidate("bitslice", SMALLER, 32)
    memory = Hierarchy(CACHES, (4.0, 20.0, 100.0))
    listed = candidates(large, 10_000, 192, memory, lambda name, n: float(n), default, ["bitslice", "walk"])
    assert default.way in {one.way for one in listed}


def test_sizes_near_a_tuned_one_know_the_default_by_its_parameters() -> None:
    def near(usual: Way, *listed: Candidate) -> Candidate | None:
        return best_near(Tuned(LARGE_BATCH, 0, 0, listed), LARGE_BATCH + 1, lambda candidate: 1.0, usual, 1)

    plain, smaller = (Candidate("bitslice", params, 1, 1.0, us) for params, us in (((), 10.0), (SMALLER, 9.5)))
    other = Candidate("rankwalk", (), 1, 1.0, 9.2)
    assert near(Way("bitslice", SMALLER), other, plain, smaller) == smaller
    assert near(Way("bitslice"), other, plain, smaller) == plain
    assert near(Way("bitslice", SMALLER), other, plain) == plain
    assert near(Way("walk"), other, plain) is None
