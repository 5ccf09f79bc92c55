"""How long importing and loading take, and how much memory: a 20,000-tree LightGBM file of some 145 MB.

    python bench/loading.py
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time

from engines import RESULTS
from interleave import processor
from models import enlarged, lambdamart

CHILD = """
import resource, sys, time, gpuqs
from gpuqs.formats import read_model
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
start = time.perf_counter()
forest = read_model(sys.argv[1])
print(time.perf_counter() - start, before, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, forest.n_trees)
"""


def seconds(code: str) -> float:
    """Least of five runs of a fresh interpreter."""
    least = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        least = min(least, time.perf_counter() - start)
    return least


def main() -> None:
    path = enlarged(lambdamart(1_000, 64), 20_000)
    size = os.path.getsize(path)
    run = subprocess.run([sys.executable, "-c", CHILD, str(path)], check=True, capture_output=True, text=True)
    load, before, peak, trees = run.stdout.split()
    bare = seconds("pass")
    report = {
        "processor": processor(),
        "file_bytes": size,
        "trees": int(trees),
        "load_seconds": float(load),
        "peak_bytes": int(peak) * 1024,
        "peak_over_file": int(peak) * 1024 / size,
        "rss_before_bytes": int(before) * 1024,
        "import_seconds": seconds("import gpuqs") - bare,
        "import_model_seconds": seconds("import gpuqs.model") - bare,
        "import_numpy_seconds": seconds("import numpy") - bare,
    }
    print(json.dumps(report, indent=1))
    RESULTS.mkdir(exist_ok=True)
    stem = re.sub(r"[^a-z0-9]+", "-", processor().lower()).strip("-")
    (RESULTS / f"loading-{stem}.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
