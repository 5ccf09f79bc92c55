"""Time and memory of importing and loading: files with trees of 64 leaves in every format, compared with the library
that wrote them; and the time from a load until the first document and first batch are scored, compared with LightGBM.

    python bench/loading.py [--trees 1000 10000] [--start MODEL.txt ...]
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
from interleave import keep, processor
from model_files import FILES

import gpuqs

LEAVES, ROUNDS = 64, 3
#: Documents of the first batch.
BATCH = 2_000

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


#: Measures a library that reads its own file, warm like gpuqs's readers: it has read a file before.
OWN_CHILD = """
import sys, time
library, path = sys.argv[1:]
if library == "LightGBM":
    import lightgbm
    load = lambda: lightgbm.Booster(model_file=path)
elif library == "XGBoost":
    import xgboost
    load = lambda: xgboost.Booster(model_file=path)
else:
    import catboost
    format = "json" if open(path, "rb").read(1) == b"{" else "cbm"
    load = lambda: catboost.CatBoost().load_model(path, format=format)
load()
start = time.perf_counter()
load()
print(time.perf_counter() - start)
"""
#: The libraries whose files these are.
LIBRARIES = ("LightGBM", "XGBoost", "CatBoost")


#: Times since the beginning of a load: loaded, one document scored, a batch scored, the batch scored again. A model's
#: first call may calibrate costs on the machine, once; this is turned off here.
START = """
import os, sys, time
import numpy as np
name, path, n = sys.argv[1], sys.argv[2], int(sys.argv[3])
if name == "LightGBM":
    import lightgbm
    X = np.random.default_rng(0).normal(size=(n, lightgbm.Booster(model_file=path).num_feature())).astype(np.float32)
    load = lambda: lightgbm.Booster(model_file=path)
    score = lambda model, rows: model.predict(rows, raw_score=True, num_threads=1)
else:
    os.environ["GPUQS_CALIBRATE"] = "0"
    import gpuqs
    X = np.random.default_rng(0).normal(size=(n, gpuqs.load(path).n_features)).astype(np.float32)
    load = lambda: gpuqs.load(path, mmap=name == "gpuqs mapped")
    score = lambda model, rows: model.predict(rows, "raw", n_threads=1)
clocks = [(time.perf_counter(), time.process_time())]
def tick():
    clocks.append((time.perf_counter(), time.process_time()))
model = load()
tick()
one = score(model, X[:1])
tick()
batch = score(model, X)
tick()
again = score(model, X)
tick()
assert one[0] == batch[0] and (batch == again).all()
(wall, processor), *rest = clocks
for now, of_processor in rest[:3]:
    print(now - wall, of_processor - processor)
print(rest[3][0] - rest[2][0], rest[3][1] - rest[2][1])
print(batch.sum().hex(), 0)
"""


#: Private bytes that a process needs for a model that it has loaded and scored with, and those of a child that is
#: then forked and scores.
FORKED = """
import os, sys
import numpy as np
os.environ["GPUQS_CALIBRATE"] = "0"
import gpuqs.model
path, n = sys.argv[1], int(sys.argv[2])

def own():
    with open("/proc/self/smaps_rollup") as rollup:
        return 1024 * sum(int(line.split()[1]) for line in rollup if line.startswith("Private"))

X = np.random.default_rng(0).normal(size=(n, gpuqs.load(path).n_features)).astype(np.float32)
before = own()
model = gpuqs.load(path)
for rows in (X[:1], X):
    model.warm_up(len(rows)).predict(rows, "raw", n_threads=1)
print(own() - before, flush=True)
if not os.fork():
    for rows in (X[:1], X):
        model.predict(rows, "raw", n_threads=1)
    print(own(), flush=True)
    os._exit(0)
os.wait()
"""


def starts(folder: Path, text: Path) -> dict[str, Any]:
    """Median times from load to first scores in fresh processes, in turns: LightGBM's text and gpuqs's files."""
    saved, ready = folder / "model.gpuqs", folder / "ready.gpuqs"
    gpuqs.load(text).save(saved)
    gpuqs.load(text).save(ready, ready=True)
    ways = {"LightGBM": ("LightGBM", text), "gpuqs, text": ("gpuqs", text), "gpuqs, own file": ("gpuqs", saved)}
    ways |= {"gpuqs, ready": ("gpuqs", ready), "gpuqs, ready, mapped": ("gpuqs mapped", ready)}
    runs: dict[str, list[list[list[float]]]] = {name: [] for name in ways}
    sums = set()
    for _ in range(ROUNDS):
        for name, (library, path) in ways.items():
            command = [sys.executable, "-c", START, library, str(path), str(BATCH)]
            lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
            sums.add(lines[-1])
            runs[name].append([[float(word) for word in line.split()] for line in lines[:-1]])
    if len(sums) != 1:
        raise SystemExit(f"scores of {text} differ: sums {sums}")
    what = "loaded", "first_score", "first_batch", "batch_again"
    found = {}
    for name, of_way in runs.items():
        seconds, of_processor = np.moveaxis(np.median(np.array(of_way), axis=0), 1, 0).round(4).tolist()
        found[name] = dict(zip(what, seconds, strict=True))
        found[name]["processor_seconds"] = dict(zip(what, of_processor, strict=True))
        found[name]["file_bytes"] = ways[name][1].stat().st_size
    found["gpuqs, ready"] |= forked(ready)
    return found


def forked(path: Path) -> dict[str, int]:
    """Memory of a process that loads a model and scores, and of its child."""
    command = [sys.executable, "-c", FORKED, str(path), str(BATCH)]
    parent, child = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return {"own_bytes": int(parent), "child_own_bytes": int(child)}


def seconds(code: str) -> float:
    """Smallest processor time of five runs of a fresh interpreter."""
    least = float("inf")
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", code], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        least = min(least, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return least


def loading(path: Path, *options: str, library: str = "") -> dict[str, Any]:
    """Median time and peak memory of fresh processes that load a file, in turns with the library that wrote it."""

    def told(*command: str) -> list[str]:
        command = sys.executable, "-c", *command
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()

    runs, own = [], []
    for _ in range(ROUNDS):
        runs.append(told(CHILD, str(path), *options))
        if library:
            own.append(float(told(OWN_CHILD, library, str(path))[-1]))
    took, of_processor, peak = np.median(np.array(runs, float), axis=0).tolist()
    size = path.stat().st_size
    found = {
        "file_bytes": size,
        "seconds": round(took, 4),
        "processor_seconds": round(of_processor, 4),
        "peak_over_file": round(peak * 1024 / size, 2),
    }
    return found | ({"library_seconds": round(float(np.median(own)), 4)} if own else {})


def every_format(folder: Path, sizes: list[int]) -> dict[str, dict[str, Any]]:
    """Cost of loading for each format and size; gpuqs's own file is saved from LightGBM's."""
    found = {}
    path, saved = folder / "model", folder / "model.gpuqs"
    for n_trees in sizes:
        for name, make in FILES.items():
            path.write_bytes(make(LEAVES, n_trees))
            library = name.partition(" ")[0]
            found[f"{name}, {n_trees:,} trees"] = loading(path, library=library if library in LIBRARIES else "")
            if name == "LightGBM text":
                gpuqs.load(path).save(saved)
                found[f"gpuqs, {n_trees:,} trees"] = loading(saved)
                found[f"gpuqs mapped, {n_trees:,} trees"] = loading(saved, "mmap")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--trees", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--start", type=Path, nargs="+", default=[], help="LightGBM's texts to load and score first")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        loads = every_format(Path(folder), asked.trees)
        first = {path.name: starts(Path(folder), path) for path in asked.start}
    bare = seconds("pass")
    report = {
        "processor": processor(),
        "leaves": LEAVES,
        "loading": loads,
        "batch": BATCH,
        "starting": first,
        "import_seconds": seconds("import gpuqs") - bare,
        "import_model_seconds": seconds("import gpuqs.model") - bare,
        "import_numpy_seconds": seconds("import numpy") - bare,
    }
    print(json.dumps(report, indent=1))
    keep("loading", report)


if __name__ == "__main__":
    main()
