"""Forked children score with threads and get the parent's bits, whatever the parent's threads were doing."""

from __future__ import annotations

import gc
import importlib
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from forests import random_forest

import gpuqs
from gpuqs import forks

SCENES = Path(__file__).parents[1] / "fork_scenes.py"

#: Children of each scene: more than a thousand in all.
CHILDREN = {
    "after_scoring": 350,
    "first_use": 250,
    "generations": 150,
    "amid_threads": 150,
    "other_library": 50,
    "pools": 80,
    "while_preparing": 5,
    "within_preparing": 3,
    "while_making_an_attribute": 5,
    "one_copy": 3,
}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("scene", CHILDREN)
def test_children_score(scene: str) -> None:
    command = [sys.executable, "-W", "ignore:This process:DeprecationWarning", str(SCENES), scene, str(CHILDREN[scene])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "finished\n", "")


@pytest.mark.skipif(find_spec("cupy") is not None, reason="CuPy is installed: once it is imported there is no lock")
def test_explaining_without_cupy_takes_no_lock_that_a_child_would_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing module is searched for each time; `import` would hold a module lock during the search."""
    held: list[bool] = []

    class Watcher:
        @staticmethod
        def find_spec(name: str, path: object = None, target: object = None) -> None:
            if name == "cupy":
                held.append(name in importlib._bootstrap._module_locks)  # type: ignore[attr-defined]

    model = gpuqs.Model(random_forest(np.random.default_rng(1)))
    monkeypatch.setattr(sys, "meta_path", [Watcher, *sys.meta_path])
    model.explain(10)
    assert held and not any(held)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_of_a_parent_that_loads_collects_garbage() -> None:
    code = """
import gc, os, threading, warnings
from gpuqs.forks import no_collection

begun, forked = threading.Event(), threading.Event()

def load():
    with no_collection():
        begun.set()
        forked.wait()

thread = threading.Thread(target=load)
thread.start()
begun.wait()
assert not gc.isenabled()
warnings.simplefilter("ignore")
child = os.fork()
if child == 0:
    os._exit(gc.isenabled())
forked.set()
thread.join()
assert gc.isenabled()
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_a_load_that_begins_while_another_ends_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    ending, beginning = forks.no_collection(), forks.no_collection()

    class Collector:
        isenabled, disable = staticmethod(gc.isenabled), staticmethod(gc.disable)

        @staticmethod
        def enable() -> None:
            gc.enable()
            monkeypatch.setattr(forks, "gc", gc)
            beginning.__enter__()  # another thread begins before the ending one is recorded

    monkeypatch.setattr(forks, "gc", Collector)
    ending.__enter__()
    ending.__exit__(None, None, None)
    assert not gc.isenabled()
    forks._renew()  # as in a child forked at this point
    assert gc.isenabled()
    beginning.__exit__(None, None, None)


def test_nothing_compiled_is_made_by_its_first_caller() -> None:
    """C++ initializes function-local statics under a lock: a child forked meanwhile would wait forever."""
    folder = Path(__file__).parents[2] / "cpu_fallback"
    sources = [path for path in folder.rglob("*") if path.suffix in (".cpp", ".hpp", ".inl")]
    made = re.compile(r"^\s+static (?!constexpr|std::atomic)[^(;]*[={]", re.MULTILINE)
    assert made.search("  static const Table made = make();") and not made.search("  static const T& f(int x) {")
    assert len(sources) > 50 and [path.name for path in sources if made.search(path.read_text())] == []
