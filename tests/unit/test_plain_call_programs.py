"""Which programs and threads answer plain calls, when others take their place, and how long they live."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
import threading
import warnings
import weakref
from itertools import product
from typing import Any

import numpy as np
import pytest
from forests import probing_documents, random_forest
from interpreter_lock import lets_others_run, needs_the_lock
from plain_models import asked_otherwise, calls_by, made

import gpuqs
from gpuqs import chooser, cpu_fallback, engines, plain_calls
from gpuqs.chooser import Chooser
from gpuqs.devices import HOST
from gpuqs.engines import ENGINES
from gpuqs.forest import Forest
from gpuqs.model import Model
from gpuqs.threads import WORK_EACH, threads_of_call, threads_worth
from gpuqs.tuning.plan import Way


@pytest.fixture
def threads_asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list of the thread counts that calls request when they ask how many they get."""
    asked: list[int] = []

    def threads(worth: int) -> int:
        asked.append(worth)
        return threads_of_call(worth)

    monkeypatch.setattr(plain_calls, "threads_of_call", threads)
    return asked


def test_work_is_for_threads(threads_asked: list[int], general: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chooser, "MIN_SHARE", 1)
    costs = {"walk": WORK_EACH / 10}
    monkeypatch.setattr(Chooser, "warm_cost", lambda _, name, n, machine: n * costs[name] if name in costs else None)
    monkeypatch.setattr(plain_calls, "MAX_SMALL", 30)
    model, X = Model(made()), np.random.default_rng(9).normal(size=(45, 8))
    expected = model.predict(X, engine="reference")
    for n in (1, 18, 20, 45):
        for _ in range(2):
            assert model.predict(X[:n]).tobytes() == expected[:n].tobytes()
        assert model.predict(X[:n], n_threads=1).tobytes() == expected[:n].tobytes()
    assert threads_asked == [2, 2, 4, 4] and general == [45]  # scored by the reference engine


def test_few_documents_are_not_shared_out() -> None:
    """However long they take: engines score dozens together. Trees of large forests may be shared out."""
    here = cpu_fallback.machine()
    forest = random_forest(np.random.default_rng(1), n_trees=6_000, max_leaves=60)
    choose = Model(forest)._calls.chooser
    for engine in ("walk", "rankwalk"):
        assert [choose.threads(Way(engine), n, here) > 1 for n in (60, 120, 20_000)] == [False, False, True]
    shares = max(forest.n_nodes // 65_000, 1)
    assert [ENGINES["bitslice"].tree_shares(forest, n) for n in (100, 200)] == [shares, 1]


def test_small_shares_are_for_one_thread() -> None:
    """If half of the documents take almost as long as all, one thread is used for short work, and two for long work."""
    steps = {1: 130.0, 2: 100.0}  # 300 documents in a word of 512, and half of them in one of 256
    assert threads_worth(lambda n: steps.get(n, 100.0)) == 1
    assert threads_worth(lambda n: 10 * steps.get(n, 100.0)) == 2
    assert threads_worth(lambda n: 130.0 / n) == 2 and threads_worth(lambda n: 1e5 / n) == 1024


def test_wide_rows_are_work() -> None:
    """A hundred trees are little work per row, but coding hundreds of columns is more."""
    model, here = Model(random_forest(np.random.default_rng(1), n_trees=100, n_features=700)), cpu_fallback.machine()
    few, many = (model._calls.chooser.threads(model._calls.chooser.way(n, HOST, here), n, here) for n in (10, 40_000))
    assert few == 1 and many >= 4


def test_batches_of_many_sizes(monkeypatch: pytest.MonkeyPatch, general: list[int]) -> None:
    """More batch sizes than programs are kept for."""
    monkeypatch.setattr(plain_calls, "MAX_SMALL", 5)
    model = Model(made())
    X = np.random.default_rng(8).normal(size=(600, 8))
    expected = model.predict(X)
    for n in (*range(6, 601), *range(6, 601, 7)):
        assert model.predict(X[:n]).tobytes() == expected[:n].tobytes()
    assert not general


def test_the_environment_counts_at_every_call(monkeypatch: pytest.MonkeyPatch, general: list[int]) -> None:
    model, X = Model(made()), np.random.default_rng(9).normal(size=(100, 8))
    expected = model.predict(X)
    for isa in cpu_fallback.available_isas():
        monkeypatch.setenv("GPUQS_ISA", isa)
        assert np.array_equal(model.predict(X), expected)
        assert (model.engine_for(100), "exact", (isa, cpu_fallback.compiles_programs())) in {
            key[:3] for key in model._programs._made
        }
    monkeypatch.setenv("GPUQS_ISA", "none")
    with pytest.raises(gpuqs.errors.DeviceError, match="none"):
        model.predict(X)
    assert not general


def test_what_else_changes_in_the_environment_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    model = Model(made())
    X = probing_documents(np.random.default_rng(7), model.forest, 3)
    program = plain_calls._bound(lambda n: (model._programs.get("walk", "exact", None), 1), 3)
    score = calls_by(lambda n: (asked.append(n), program)[1]).raw
    for name, value in (("GPUQS_OTHER", "1"), ("GPUQS_OTHER", "2"), ("ANOTHER", "1" * 5000)):
        monkeypatch.setenv(name, value)
        score(X)
    monkeypatch.delenv("GPUQS_OTHER")
    score(X)
    assert asked == [3]
    ours = ("GPUQS_MACHINE_CODE", "0"), ("GPUQS_ISA", "portable"), ("GPUQS_ISA", "other")
    for n, (name, value) in enumerate(ours, 2):
        monkeypatch.setenv(name, value)
        score(X)
        score(X)
        assert asked == [3] * n
    monkeypatch.delenv("GPUQS_ISA")
    score(X)
    assert asked == [3] * 5


def test_threads_and_forks_call_at_once() -> None:
    model, X = Model(made(n_trees=200)), np.random.default_rng(10).normal(size=(40, 8))
    expected = [asked_otherwise(model, X[:n]) for n in range(1, 41)]
    wrong: list[int] = []

    def call() -> None:
        for _ in range(20):
            wrong.extend(n for n in range(1, 41) if not np.array_equal(model.predict(X[:n]), expected[n - 1]))

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    if hasattr(os, "fork"):
        child = os.fork()
        if child == 0:
            os._exit(any(not np.array_equal(model.predict(X[:n]), expected[n - 1]) for n in (1, 40)))
        assert os.waitpid(child, 0)[1] == 0
    for thread in threads:
        thread.join()
    assert not wrong


def test_threads_call_while_costs_and_the_environment_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread discards cached choices while others use them."""
    model, X = Model(made(n_trees=60)), np.random.default_rng(12).normal(size=(40, 8))
    expected, isas = asked_otherwise(model, X), cpu_fallback.available_isas()
    wrong: list[int] = []
    monkeypatch.setenv("GPUQS_ISA", isas[0])  # restored after the test

    def call(first: int) -> None:
        for k in range(first, first + 300):
            if k % 3 == 0:
                cpu_fallback.costs_changed()
            elif k % 10 == 1:
                os.environ["GPUQS_ISA"] = isas[k // 10 % len(isas)]
            n = k % 40 + 1
            if not np.array_equal(model.predict(X[:n]), expected[:n]):
                wrong.append(n)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=call, args=(k * 7,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


def test_the_memory_of_a_call_serves_the_next() -> None:
    """Calls that need less or more memory than the ones before, and one whose documents exceed the kept memory."""
    rng = np.random.default_rng(11)
    models = [Model(made(n_features=n, n_trees=t)) for n, t in ((8, 1), (300, 50), (3000, 20), (8, 400))]
    for _ in range(3):
        for model in models:
            for n in (1, 256, 13):
                X = rng.normal(size=(n, model.n_features))
                assert np.array_equal(model.predict(X), model.predict(X, engine="reference"))


@pytest.mark.parametrize("link", ["identity", "sigmoid"])
def test_a_model_is_freed_at_once(link: str) -> None:
    model = Model(made(link=link))
    model.predict(np.zeros((2, 8)))
    freed = weakref.ref(model), weakref.ref(model.forest)
    gc.disable()  # memory must be freed without it
    try:
        del model
        assert [ref() for ref in freed] == [None, None]
    finally:
        gc.enable()


def test_a_program_that_costs_overtook_is_not_kept() -> None:
    """While one call gets a program, a calibration ends and another call uses it: that call's program is kept."""
    models = [Model(made()) for _ in range(2)]
    models[1] = Model(random_forest(np.random.default_rng(6), n_features=models[0].n_features))
    X = probing_documents(np.random.default_rng(7), models[0].forest, 3)
    bound = [plain_calls._bound(lambda n, m=model: (m._programs.get("walk", "exact", None), 1), 3) for model in models]
    asked: list[int] = []

    def program_of(n: int) -> Any:
        asked.append(n)
        if len(asked) > 1:
            return bound[1]
        cpu_fallback.costs_changed()
        scorer.raw(X)
        return bound[0]

    scorer = calls_by(program_of)
    raw = [model.predict(X, "raw", engine="walk") for model in models]
    assert not np.array_equal(*raw)
    np.testing.assert_array_equal(scorer.raw(X), raw[0])
    np.testing.assert_array_equal(scorer.raw(X), raw[1])
    assert asked == [3, 3]


@pytest.mark.parametrize("change", ["shape", "dtype"])
def test_an_array_that_is_changed_while_its_program_is_made(change: str) -> None:
    """Changed in place by other code: read with its old shape or type, rows would lie outside the array."""
    model, X = Model(made()), np.zeros((4, 8))
    program = plain_calls._bound(lambda n: (model._programs.get("walk", "exact", None), 1), 4)

    def program_of(n: int) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecated in newer NumPy
            setattr(X, change, {"shape": (1, 32), "dtype": np.int64}[change])
        return program

    assert calls_by(program_of).raw(X) is None


def test_the_machine_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may change the environment between two reads; "portable" must not get machine code then."""
    isa = cpu_fallback.isa

    def then_changed() -> str:
        name = isa()
        monkeypatch.setenv("GPUQS_ISA", cpu_fallback.available_isas()[0])
        return name

    monkeypatch.setenv("GPUQS_ISA", "portable")
    monkeypatch.setattr(cpu_fallback, "isa", then_changed)
    assert cpu_fallback.machine() == ("portable", False)


def slow_model(monkeypatch: pytest.MonkeyPatch) -> tuple[Model, np.ndarray]:
    """A model for which a few documents take longer than waking a thread."""
    slow = Way("walk", n_threads=1)
    monkeypatch.setattr(chooser.Chooser, "way", lambda *_: slow)
    model = Model(random_forest(np.random.default_rng(5), n_trees=1_500, max_leaves=60))
    return model, probing_documents(np.random.default_rng(6), model.forest, 256)


@needs_the_lock
@pytest.mark.parametrize("brief", [True, False])
def test_calls_hold_the_interpreters_lock_once_they_were_brief(brief: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain_calls, "BRIEF", np.inf if brief else plain_calls.BRIEF)
    model, X = slow_model(monkeypatch)
    expected = model.predict(X, n_threads=2)
    for _ in range(3):
        np.testing.assert_array_equal(model.predict(X), expected)
    assert lets_others_run(lambda: model.predict(X)) != brief


@needs_the_lock
def test_calls_that_took_long_give_the_lock_away_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of nodes: some documents leave it at once, others walk to its end."""
    monkeypatch.setattr(chooser.Chooser, "way", lambda *_: Way("walk", n_threads=1))
    monkeypatch.setattr(plain_calls, "BRIEF", 5e-6)  # long enough for slower machines
    depth = 9_000
    chain = Forest(
        n_features=1,
        node_offsets=np.array([0, depth]), leaf_offsets=np.array([0, depth + 1]),
        feature=np.zeros(depth, np.int32), threshold=np.arange(depth, dtype=np.float64),
        left=~np.arange(depth, dtype=np.int32),
        right=np.append(np.arange(1, depth, dtype=np.int32), np.int32(~depth)),
        routing=np.zeros(depth, np.uint8), leaf_value=np.arange(depth + 1.0)[:, None],
    )  # fmt: skip
    model, X = Model(chain), np.full((64, 1), -1.0)

    def keeps_the_lock() -> bool:
        for _ in range(20):  # on a busy machine a call takes long now and then
            for _ in range(1100):
                assert (model.predict(X) == 0).all()
            if not lets_others_run(lambda: model.predict(X)):
                return True
        return False

    assert keeps_the_lock()
    for _ in range(5):
        assert (model.predict(X + depth) == depth - 1).all()
    assert lets_others_run(lambda: model.predict(X + depth), attempts=500)  # all threads may be on one processor
    assert keeps_the_lock()


def test_a_thread_that_turns_to_other_work_holds_up_no_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """It scored last, so the next turn at the interpreter's lock is still its own while it waits."""
    monkeypatch.setattr(plain_calls, "BRIEF", 0.0)  # so that calls release the lock
    model, X = Model(made()), np.random.default_rng(9).normal(size=(3, 8))
    expected = model.predict(X, engine="reference")
    answers: list[np.ndarray] = []
    other = threading.Thread(target=lambda: answers.extend(model.predict(X) for _ in range(100)), daemon=True)
    model.predict(X)
    other.start()
    other.join(60)
    assert len(answers) == 100 and all(np.array_equal(answer, expected) for answer in answers)


def test_another_plan_answers_plain_calls_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, X = Model(made()), np.random.default_rng(9).normal(size=(3, 8))
    expected, asked = model.predict(X), []
    model.predict(X)  # the first call may be scored in its own way
    monkeypatch.setattr(Chooser, "way", lambda _, n, *others: asked.append(n) or Way("walk", n_threads=1))
    np.testing.assert_array_equal(model.predict(X), expected)
    assert not asked
    model._choose_by(None)
    for _ in range(2):
        np.testing.assert_array_equal(model.predict(X), expected)
    assert asked == [3]


@pytest.mark.parametrize("sum_dtype", ["float64", "float32"])
def test_answers_for_one_document_are_arrays_of_their_own(sum_dtype: str) -> None:
    """They are made some at a time."""
    model = Model(made(sum_dtype=sum_dtype))
    X = np.random.default_rng(9).normal(size=(40, 8))
    expected, given = model.predict(X, engine="reference"), [X[i : i + 1] for i in range(40)]
    answers: dict[int, list[np.ndarray]] = {thread: [] for thread in range(4)}

    def score(thread: int) -> None:
        for x in given:
            answers[thread].append(model.predict(x))

    threads = [threading.Thread(target=score, args=(thread,)) for thread in answers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for of_thread in answers.values():
        assert np.concatenate(of_thread).tobytes() == expected.tobytes()
    flat = [answer for of_thread in answers.values() for answer in of_thread]
    assert len({answer.ctypes.data for answer in flat}) == len({id(answer) for answer in flat}) == 160
    assert all(answer.flags.owndata and answer.flags.writeable and answer.shape == (1,) for answer in flat)


def test_an_environment_whose_strings_are_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    model, X = Model(made()), np.zeros((2, 8))
    libc = ctypes.CDLL(None)
    text = ctypes.create_string_buffer(b"GPUQS_ISA=portable", 64)
    monkeypatch.setenv("GPUQS_ISA", "portable")  # monkeypatch restores the old value
    assert libc.putenv(text) == 0
    model.predict(X)
    text.value = b"GPUQS_ISA=none"
    with pytest.raises(gpuqs.errors.DeviceError, match="none"):
        model.predict(X)


def test_an_environment_whose_changes_might_cancel() -> None:
    """Variables 64 places apart, set one after another, have addresses that differ by the same bits each time."""
    code = (
        "import os, numpy as np, gpuqs.errors; from plain_models import Model, made\n"
        "model, X, unnoticed = Model(made()), np.zeros((1, 8)), 0\n"
        "for n in range(500):\n"
        "    os.environ.clear()\n"
        "    os.environ.update({f'V{k}': 'z' for k in range(64)})\n"
        "    os.environ.update({'V0': f'aaaaaaaaaaaa{n:05}', 'LAST': f'cccccc{n:06}'})\n"
        "    model.predict(X), model.predict(X)\n"
        "    del os.environ['LAST']\n"
        "    os.environ.update({'V0': f'bbbbbbbbbbbb{n:05}', 'GPUQS_ISA': f'none{n:06}'})\n"
        "    try:\n"
        "        model.predict(X)\n"
        "        unnoticed += 1\n"
        "    except gpuqs.errors.DeviceError:\n"
        "        pass\n"
        "assert unnoticed == 0, unnoticed\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=100)


def test_an_environment_that_is_emptied() -> None:
    code = (
        "import ctypes, numpy as np; from plain_models import Model, cpu_fallback, made\n"
        "model, X = Model(made()), np.zeros((2, 8))\n"
        "before = [model.predict(X) for _ in range(2)][1]\n"
        "assert {key[2][0] for key in model._programs._made} == {'portable'}\n"
        "assert ctypes.CDLL(None).clearenv() == 0\n"
        "assert np.array_equal(model.predict(X), before)\n"
        "assert {key[2][0] for key in model._programs._made} == {'portable', cpu_fallback.available_isas()[0]}\n"
    )
    environment = {**os.environ, "GPUQS_ISA": "portable", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment, timeout=100)


@pytest.mark.parametrize(
    ("engine", "build"), [("rankwalk", "build_rankwalk"), ("bitslice", "build_bitslice"), ("bitslice", "gray_values")]
)
def test_programs_are_made_for_one_instruction_set(engine: str, build: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread may select another instruction set while they are built."""
    module, here = getattr(engines, engine), cpu_fallback.available_isas()
    X = probing_documents(np.random.default_rng(7), made(), 70)
    expected, built = Model(made()).predict(X, engine="reference"), getattr(module, build)
    for one, other in product(here, here):

        def meanwhile(*asked: Any, other: str = other) -> Any:
            os.environ["GPUQS_ISA"] = other
            return built(*asked)

        monkeypatch.setenv("GPUQS_ISA", one)
        monkeypatch.setattr(module, build, meanwhile)
        model = Model(made())
        model.predict(X, engine=engine)
        monkeypatch.setattr(module, build, built)
        for isa in (one, other):
            monkeypatch.setenv("GPUQS_ISA", isa)
            for n in (1, 5, 70):
                np.testing.assert_array_equal(model.predict(X[:n], engine=engine), expected[:n])


def test_what_interrupts_the_making_of_a_program_leaves_the_machine_to_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C may come at any step, and its exception may be kept along with all frames that it passed."""
    X, here = np.zeros((2, 8)), cpu_fallback.available_isas()
    steps = kept = 0

    def interrupt(frame: Any, event: str, argument: Any) -> Any:
        nonlocal steps
        if frame.f_globals["__name__"] not in ("contextlib", "gpuqs.programs", "gpuqs.cpu_fallback"):
            return interrupt
        steps += 1
        if steps == at:
            raise KeyboardInterrupt
        return interrupt

    for at in range(1, 10_000):
        model, steps = Model(made()), 0
        monkeypatch.setenv("GPUQS_ISA", here[0])
        traced = sys.gettrace()
        sys.settrace(interrupt)
        try:
            model.predict(X, engine="walk")
            break
        except KeyboardInterrupt as error:
            kept = error
        finally:
            sys.settrace(traced)
        monkeypatch.setenv("GPUQS_ISA", here[-1])
        assert cpu_fallback.isa() == here[-1], (at, kept)
    assert kept and at > 20
