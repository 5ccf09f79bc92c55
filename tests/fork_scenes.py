"""Scenes with forks, each run in a separate process: python fork_scenes.py NAME CHILDREN

Every child scores with two threads and compares the bits with the parent's; one that takes too long is killed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import numpy as np
from forests import probing_documents, random_forest, repeated

from gpuqs.engines import ENGINES
from gpuqs.forks import lazy
from gpuqs.model import Model

#: Seconds after which a child counts as hung.
LIMIT = 60

FOREST = random_forest(np.random.default_rng(0), n_trees=40, max_leaves=32, n_thresholds=100)
X = probing_documents(np.random.default_rng(1), FOREST, 3000)
EXPECTED = Model(FOREST).predict(X, "raw", engine="reference")


def score(model: Model, engine: str = "auto", n: int = len(X)) -> None:
    got = model.predict(X[:n], "raw", engine=engine, n_threads=2)
    assert got.tobytes() == EXPECTED[:n].tobytes()


def score_all(model: Model) -> None:
    """Score few documents (threads share the trees) and many, on engines that need little preparation."""
    for engine in ("bitslice", "rankwalk", "walk"):
        for n in (5, len(X)):
            score(model, engine, n)


def fork(work: Callable[[], None]) -> int:
    child = os.fork()
    if child:
        return child
    signal.signal(signal.SIGALRM, signal.SIG_DFL)  # also ends a process that waits in compiled code
    signal.alarm(LIMIT)
    try:
        work()
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    os._exit(0)


def join(child: int) -> None:
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status == 0, "a child hung" if status == -signal.SIGALRM else f"a child ended with {status}"


# -- scenes -----------------------------------------------------------------------------------


def after_scoring(n: int) -> None:
    """The parent has sleeping threads; a child starts its own."""
    model = Model(FOREST)
    score_all(model)

    def work() -> None:
        score_all(model)
        assert sys.platform != "linux" or len(os.listdir("/proc/self/task")) == 2

    for _ in range(n):
        join(fork(work))


def first_use(n: int) -> None:
    """The child is forked while another thread of the parent prepares, compiles or first runs the model."""
    began = time.perf_counter()
    score(Model(FOREST))
    took = time.perf_counter() - began
    rng = np.random.default_rng(2)
    for _ in range(n):
        model = Model(FOREST)
        thread = threading.Thread(target=score, args=(model,))
        thread.start()
        time.sleep(rng.uniform(0, took))
        child = fork(lambda model=model: score(model))
        thread.join()
        join(child)


def generations(n: int) -> None:
    """Children of children of children."""
    model = Model(FOREST)

    def descend(depth: int) -> None:
        score(model)
        if depth:
            join(fork(lambda: descend(depth - 1)))
            score(model)

    for _ in range(n // 3):
        join(fork(lambda: descend(2)))


def amid_threads(n: int) -> None:
    """Parent and children score from several Python threads during the forks and after."""
    model, over = Model(FOREST), threading.Event()

    def keep_scoring() -> None:
        while not over.is_set():
            score(model, n=600)

    def score_from_threads() -> None:
        with ThreadPoolExecutor(3) as pool:
            for result in [pool.submit(score, model) for _ in range(3)]:
                result.result()

    with ThreadPoolExecutor(3) as pool:
        parents = [pool.submit(keep_scoring) for _ in range(3)]
        try:
            for _ in range(n):
                join(fork(score_from_threads))
        finally:
            over.set()
        for parent in parents:
            parent.result()


def other_library(n: int) -> None:
    """Only LightGBM has used threads in the parent."""
    import lightgbm

    rows = np.random.default_rng(3).standard_normal((500, 5))
    lightgbm.train({"num_threads": 2, "verbose": -1}, lightgbm.Dataset(rows, rows[:, 0]), 3)
    model = Model(FOREST)
    for _ in range(n):
        join(fork(lambda: score(model)))


def pools(n: int) -> None:
    """Pools of `multiprocessing` and `concurrent.futures`, made after the parent has scored."""
    context = multiprocessing.get_context("fork")
    score(PARENTS)
    for _ in range(n // 8):
        with context.Pool(4) as pool:
            pool.map_async(score_parents, range(8)).get(LIMIT)
        with ProcessPoolExecutor(4, context) as executor:
            assert list(executor.map(score_parents, range(8), timeout=LIMIT)) == [None] * 8


PARENTS = Model(FOREST)


def score_parents(_: int) -> None:
    score(PARENTS)


def while_preparing(n: int) -> None:
    """Fork while another thread is in the middle of building the program of the same model."""
    engine = type(ENGINES["bitslice"])
    prepare, model = engine.prepare, Model(FOREST)
    entered, go = threading.Event(), threading.Event()

    def slowly(*arguments: object, **options: object) -> object:
        entered.set()
        go.wait()
        return prepare(*arguments, **options)

    def work() -> None:
        engine.prepare = prepare
        score(model)

    engine.prepare = slowly
    thread = threading.Thread(target=score, args=(model,))
    thread.start()
    entered.wait()
    children = [fork(work) for _ in range(n)]
    go.set()
    thread.join()
    for child in children:
        join(child)


def within_preparing(n: int) -> None:
    """While a thread prepares a model it scores with it and forks, as a signal handler may."""
    engine = type(ENGINES["bitslice"])
    prepare, model = engine.prepare, Model(FOREST)
    children: list[int] = []

    def interrupt(number: int, frame: object) -> None:
        engine.prepare = prepare
        children.extend(fork(lambda: score(model, "bitslice")) for _ in range(n))
        score(model, "bitslice")
        children.extend(fork(lambda: score(model, "bitslice")) for _ in range(n))

    def interrupted(*arguments: object, **options: object) -> object:
        os.kill(os.getpid(), signal.SIGUSR1)
        return prepare(*arguments, **options)

    signal.signal(signal.SIGUSR1, interrupt)
    engine.prepare = interrupted
    score(model, "bitslice")
    assert len(children) == 2 * n
    score(model, "bitslice")
    for child in children:
        join(child)


def while_making_an_attribute(n: int) -> None:
    """Fork while another thread is in the middle of computing the same attribute."""
    entered, go = threading.Event(), threading.Event()

    class Made:
        def __init__(self, waits: bool) -> None:
            self.waits = waits

        @lazy
        def value(self) -> int:
            if self.waits:
                entered.set()
                go.wait()
            return 7

    def work() -> None:
        assert Made(False).value == 7

    made = Made(True)
    thread = threading.Thread(target=lambda: made.value)
    thread.start()
    entered.wait()
    children = [fork(work) for _ in range(n)]
    go.set()
    thread.join()
    assert made.value == 7
    for child in children:
        join(child)


def one_copy(n: int) -> None:
    """Children share their parent's layouts and machine code; they write to little memory of their own."""

    def own() -> int:
        with open("/proc/self/smaps_rollup") as rollup:
            return sum(int(line.split()[1]) for line in rollup if line.startswith("Private")) << 10

    if sys.platform != "linux":
        return
    model, before = Model(repeated(FOREST, 400)), own()
    expected = [model.warm_up(few).predict(X[:few], "raw", n_threads=2) for few in (1, 3000)]
    made = own() - before

    def work() -> None:
        for few, scores in zip((1, 3000), expected, strict=True):
            assert model.predict(X[:few], "raw", n_threads=2).tobytes() == scores.tobytes()
        assert own() < made / 3, f"{own():,} bytes of its own, where {made:,} were made"

    for _ in range(n):
        join(fork(work))


if __name__ == "__main__":
    globals()[sys.argv[1]](int(sys.argv[2]))
    print("finished")
