"""Plants a fault in a copy of gpuqs, and requires that tests fail.

A fault that does not compile, or keeps Python from importing gpuqs, proves nothing: it counts as not caught.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.resources import as_file
from pathlib import Path
from pkgutil import iter_modules

TESTS = Path(__file__).parents[1]

#: Editable installs find gpuqs by an import hook, which is removed so that the copy is found.
SITE = "import sys\nsys.meta_path[:] = [f for f in sys.meta_path if 'ScikitBuild' not in type(f).__name__]\n"
#: Signs that a fault was not tested at all.
NOT_TESTED = (
    "TimeoutExpired",
    "the C++ compiler failed",
    "SyntaxError",
    "ImportError",
    "NameError",
    "IndentationError",
    "error: not found",
)
SECONDS = 900


@dataclass(frozen=True)
class Fault:
    """A string of one file, what replaces it, and the tests that must catch the fault."""

    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


@dataclass(frozen=True)
class Outcome:
    """Whether tests caught a fault, and how."""

    caught: bool
    by: str
    output: str


@contextmanager
def copied_package() -> Iterator[Path]:
    """A folder with all of gpuqs: Python, compiled modules, device code."""
    import gpuqs
    from gpuqs import cpu_fallback
    from gpuqs.devices import sources

    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder, "gpuqs")
        leave_out = shutil.ignore_patterns("__pycache__")
        shutil.copytree(Path(gpuqs.__file__).parent, here, ignore=leave_out)
        (here / "cpu_fallback").mkdir(exist_ok=True)
        modules = [import_module(f"gpuqs.cpu_fallback.{m.name}") for m in iter_modules(cpu_fallback.__path__)]
        for module in (cpu_fallback, *modules):
            shutil.copy(module.__file__, here / "cpu_fallback")
        with as_file(sources.source_folder()) as cuda:
            shutil.copytree(cuda.resolve(), here / "cuda", dirs_exist_ok=True)
        Path(folder, "sitecustomize.py").write_text(SITE)
        yield here


def run_tests(package: Path, tests: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    """Run tests with the copy of gpuqs in a process of its own."""
    environment = dict(os.environ, PYTHONPATH=str(package.parent), PYTHONDONTWRITEBYTECODE="1")
    run = f"import gpuqs, pytest, sys; assert gpuqs.__file__.startswith({str(package)!r}), gpuqs.__file__; "
    options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--tb=short", "-rf"]
    command = [sys.executable, "-c", run + "sys.exit(pytest.main(sys.argv[1:]))", *options, *tests]
    return subprocess.run(command, env=environment, cwd=TESTS, capture_output=True, text=True, timeout=SECONDS)


def try_fault(fault: Fault) -> Outcome:
    """Plant a fault in a copy and run its tests."""
    with copied_package() as package:
        path = package / fault.file
        text = path.read_text()
        if text.count(fault.old) != 1:
            return Outcome(False, f"the text to replace is there {text.count(fault.old)} times", "")
        path.write_text(text.replace(fault.old, fault.new))
        try:
            done = run_tests(package, fault.tests)
        except subprocess.TimeoutExpired as never:
            return Outcome(False, f"no end within {SECONDS} s", str(never.stdout))
    return judge(done)


def judge(done: subprocess.CompletedProcess[str]) -> Outcome:
    """Caught: a test failed, or the process crashed, with code that could run at all."""
    output = done.stdout + done.stderr
    failed = re.search(r"^FAILED \S*?([\w/]+\.py::\S+?)(?:\[.*?)?(?: - (.*))?$", output, re.MULTILINE)
    if any(sign in output for sign in NOT_TESTED):
        return Outcome(False, "not tested: it does not compile or import", output)
    if done.returncode and failed is not None:
        return Outcome(True, failed[1], output)
    if done.returncode < 0:
        return Outcome(True, f"the process ends by signal {-done.returncode}", output)
    return Outcome(False, f"tests ended with {done.returncode}", output)
