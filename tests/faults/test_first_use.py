"""Many threads use one model for the first time at once: every engine, encoded documents, ranges of trees.

`make sanitize` runs this under ThreadSanitizer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
from agreement import on_cpu
from forests import probing_documents, random_forest

from gpuqs.model import Model

FOREST = random_forest(np.random.default_rng(5), n_trees=30, max_leaves=30, n_features=9, n_thresholds=80)
X = probing_documents(np.random.default_rng(6), FOREST, 1300, np.float32)
#: Python threads; each lets the model use up to two threads of its own.
N_THREADS = 6
ROUNDS = 4

Work = Callable[[Model], np.ndarray]


def coded(model: Model, trees: slice | None) -> np.ndarray:
    return model.predict(model.encode(X, n_threads=2), "raw", trees=trees)


def works() -> list[Work]:
    """The work items of threads; each first uses another part of the model."""
    whole = Model(FOREST)
    engines = [name for name, reason in on_cpu(whole).items() if reason is None and name != "reference"]
    found: list[Work] = []
    for engine in engines:
        for n, n_threads, output, precision in (
            (1300, 2, "raw", "exact"),
            (5, 2, "leaf", "exact"),
            (600, 1, "raw", "fast"),
        ):
            options = {"n_threads": n_threads, "precision": precision, "engine": engine}
            found.append(lambda model, n=n, output=output, options=options: model.predict(X[:n], output, **options))
    found += [partial(coded, trees=trees) for trees in (None, slice(0, 7), slice(7, None))]
    found.append(lambda model: model.predict(X, "raw", trees=slice(3, 20)))
    return found


@pytest.mark.parametrize("machine_code", ["1", "0"])
def test_many_threads_use_a_model_first(machine_code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUQS_MACHINE_CODE", machine_code)
    todo = works()
    expected = [work(Model(FOREST)).tobytes() for work in todo]
    for round in range(ROUNDS):
        model, barrier = Model(FOREST), threading.Barrier(N_THREADS)

        def run(thread: int, model: Model = model, barrier: threading.Barrier = barrier, round: int = round) -> None:
            barrier.wait()
            # Pairs of threads begin with the same work.
            first = (thread // 2 + round) * len(todo) // 4
            for at in range(len(todo)):
                at = (first + at) % len(todo)
                assert todo[at](model).tobytes() == expected[at]

        with ThreadPoolExecutor(N_THREADS) as pool:
            for done in [pool.submit(run, thread) for thread in range(N_THREADS)]:
                done.result()
