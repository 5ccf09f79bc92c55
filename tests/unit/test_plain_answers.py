"""Arrays that plain calls return: some for a single document are made in advance, but are the caller's all the same."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import numpy as np
import pytest
from plain_models import made

from gpuqs.model import Model

N_THREADS, N_CALLS = 40, 100  # more threads than have arrays of their own, more calls than arrays are made at once


@pytest.mark.parametrize("fields", [{}, {"sum_dtype": "float32", "input_dtype": "float32"}], ids=["float64", "float32"])
def test_answers_of_many_threads_are_arrays_of_their_own(fields: dict[str, Any]) -> None:
    model, dtype = Model(made(**fields)), np.dtype(fields.get("sum_dtype", "float64"))
    documents = np.random.default_rng(3).normal(size=(N_THREADS * N_CALLS, model.n_features)).astype(np.float32)
    expected, start = model.predict(documents), Barrier(N_THREADS)
    assert len(np.unique(expected)) > N_CALLS

    def call(first: int) -> list[np.ndarray]:
        start.wait()
        return [model.predict(documents[at : at + 1]) for at in range(first, first + N_CALLS)]

    with ThreadPoolExecutor(N_THREADS) as pool:
        answers = [one for of_thread in pool.map(call, range(0, len(documents), N_CALLS)) for one in of_thread]
    assert b"".join(one.tobytes() for one in answers) == expected.astype(dtype).tobytes()
    assert len({one.ctypes.data for one in answers}) == len(answers)
    assert all(one.shape == (1,) and one.dtype == dtype and one.flags.owndata and one.flags.carray for one in answers)


def test_nobody_else_refers_to_an_answer() -> None:
    model = Model(made())
    answer, ordinary = model.predict(np.zeros((1, model.n_features))), np.zeros(1)
    assert sys.getrefcount(answer) == sys.getrefcount(ordinary)
    answer.resize(3)  # NumPy refuses this if there are other references
    assert answer[1:].tolist() == [0, 0]
