"""How long importing and loading take, and how much memory: files of trees of 64 leaves in every format.

    python bench/loading.py [--trees 1000 10000]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from interleave import processor, results_at
from model_files import FILES

import gpuqs

LEAVES, ROUNDS = 64, 3

CHILD = """
import sys, time
from gpuqs.formats import read_model, readers

def kilobytes(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name))

list(readers())
before, start, began = kilobytes("VmRSS"), time.perf_counter(), time.process_time()
read_model(sys.argv[1], mmap=len(sys.argv) > 2)
print(time.perf_counter() - start, time.process_time() - began, kilobytes("VmHWM") - before)
"""


def seconds(code: str) -> float:
    """Least processor time of five runs of a fresh interpreter."""
    least = float("inf")
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        least = min(least, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return least


def loading(path: Path, *options: str) -> dict[str, Any]:
    """Median time and peak memory of fresh processes that load a file."""
    runs = []
    for _ in range(ROUNDS):
        command = [sys.executable, "-c", CHILD, str(path), *options]
        runs.append(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    took, of_processor, peak = np.median(np.array(runs, float), axis=0).tolist()
    size = path.stat().st_size
    return {
        "file_bytes": size,
        "seconds": round(took, 3),
        "processor_seconds": round(of_processor, 3),
        "peak_over_file": round(peak * 1024 / size, 2),
    }


def every_format(folder: Path, sizes: list[int]) -> dict[str, dict[str, Any]]:
    """What loading takes in each format and size; gpuqs's own is saved from LightGBM's."""
    found = {}
    path = folder / "model"
    for n_trees in sizes:
        for name, make in FILES.items():
            path.write_bytes(make(LEAVES, n_trees))
            found[f"{name}, {n_trees:,} trees"] = loading(path)
            if name == "LightGBM text":
                gpuqs.load(path).save(path)
                found[f"gpuqs, {n_trees:,} trees"] = loading(path)
                found[f"gpuqs mapped, {n_trees:,} trees"] = loading(path, "mmap")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trees", type=int, nargs="+", default=[1_000, 10_000])
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        loads = every_format(Path(folder), asked.trees)
    bare = seconds("pass")
    report = {
        "processor": processor(),
        "leaves": LEAVES,
        "loading": loads,
        "import_seconds": seconds("import gpuqs") - bare,
        "import_model_seconds": seconds("import gpuqs.model") - bare,
        "import_numpy_seconds": seconds("import numpy") - bare,
    }
    print(json.dumps(report, indent=1))
    results_at("loading").with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
