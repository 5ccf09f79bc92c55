"""Run a script in a separate process with one of this folder's shared libraries preloaded."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
#: Time limit of one process in seconds.
SECONDS = 300


def compile_library(source: str, folder: Path) -> Path:
    """Build the library from ``source`` in ``folder``; skip the test if that fails."""
    if sys.platform != "linux" or platform.libc_ver()[0] != "glibc":
        pytest.skip("calls are replaced on Linux with glibc only")
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C++ compiler, which makes the library that replaces calls")
    library = folder / f"{source}.so"
    options = ["-std=c++17", "-O1", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared"]
    subprocess.run([compiler, *options, "-o", library, HERE / source, "-ldl"], check=True)
    return library


def preloaded(library: Path, script: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a script of this folder in a process with the library preloaded."""
    own = {
        "LD_PRELOAD": str(library),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "OPENBLAS_NUM_THREADS": "1",
        **environment,
    }
    # Do not run in the checkout: its gpuqs has no compiled modules.
    command = [sys.executable, "-X", "faulthandler", str(HERE / script), *arguments]
    return subprocess.run(
        command, env=os.environ | own, cwd=HERE, capture_output=True, text=True, errors="replace", timeout=SECONDS
    )


def run_preloaded(library: Path, script: str, *arguments: str, **environment: str) -> str:
    """Return what the script prints; fail the test if the script fails."""
    run = preloaded(library, script, *arguments, **environment)
    assert run.returncode == 0, f"exit status {run.returncode}\n{run.stdout[-2000:]}\n{run.stderr[-6000:]}"
    return run.stdout
