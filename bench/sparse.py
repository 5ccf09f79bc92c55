"""scipy.sparse input: LightGBM, XGBoost and gpuqs on the same CSR, in turns; and a matrix with 1,000,000 columns.

    python bench/sparse.py                    # figures go to bench/results/
    python bench/sparse.py --quick            # a smoke run, nothing written

Scores are checked bit for bit before anything is timed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
import scipy.sparse
import xgboost
from interleave import by_turns, keep, processor
from models import documents, lambdamart, xgboost_ranker

import gpuqs

DENSITIES = (0.01, 0.1, 0.5)

#: Loads a model and a matrix, scores it, and prints the peak memory before and after, in MiB.
WIDE = """
import sys, scipy.sparse, gpuqs
def peak():
    return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
model, X = gpuqs.load(sys.argv[1]), scipy.sparse.load_npz(sys.argv[2])
before = peak()
model.predict(X, n_threads=1)
print(before, peak())
"""


def thinned(X: np.ndarray, density: float) -> Any:
    """CSR matrix with a random share of the entries."""
    stored = np.random.default_rng(0).random(X.shape) < density
    return scipy.sparse.csr_matrix(np.where(stored, X, 0).astype(np.float32))


def measure(
    X: np.ndarray, density: float, n_trees: int, n_leaves: int, rounds: int
) -> dict[str, Any]:
    S = thinned(X, density)
    by_column, dense = S.tocsc(), S.toarray()
    path = lambdamart(n_trees, n_leaves)
    booster, model = lightgbm.Booster(model_file=path), gpuqs.load(path)
    calls: dict[str, Callable[[], Any]] = {
        "LightGBM": lambda: booster.predict(S, raw_score=True, num_threads=1),
        "gpuqs, LightGBM's": lambda: model.predict(S, "raw", n_threads=1),
        "gpuqs, LightGBM's, CSC": lambda: model.predict(by_column, "raw", n_threads=1),
        "gpuqs, LightGBM's, dense": lambda: model.predict(dense, "raw", n_threads=1),
    }
    path = xgboost_ranker(n_trees, n_leaves)
    ranker, other = xgboost.Booster({"nthread": 1}, model_file=path), gpuqs.load(path)
    calls["XGBoost, in place"] = lambda: ranker.inplace_predict(S, predict_type="margin")
    calls["gpuqs, XGBoost's"] = lambda: other.predict(S, "raw", n_threads=1)
    pairs = [("LightGBM", "gpuqs, LightGBM's"), ("XGBoost, in place", "gpuqs, XGBoost's")]
    for theirs, ours in pairs:
        if not np.array_equal(calls[theirs](), calls[ours]()):
            raise SystemExit(f"{ours} differs from {theirs}")
    timings = by_turns(calls, rounds)
    each = {label: timing.median / S.shape[0] * 1e6 for label, timing in timings.items()}
    times = {theirs: each[theirs] / each[ours] for theirs, ours in pairs}
    print(f"\n{density:.0%} of {X.shape[1]} features, {S.shape[0]:,} documents, {n_trees:,} x {n_leaves}")
    for label, microseconds in each.items():
        print(f"  {label:26} {microseconds:10.3f} us per document")
    print("  times as fast: " + ", ".join(f"{factor:.1f} x {name}" for name, factor in times.items()))
    model_name = f"{n_trees:,} x {n_leaves}"
    return {"density": density, "model": model_name, "us_per_document": each, "times_as_fast": times}


def measure_wide(n_rows: int, n_columns: int, rounds: int) -> dict[str, Any]:
    """A forest that tests about 300 of the columns: time, and memory beyond that of model and matrix."""
    rng = np.random.default_rng(0)
    tested = np.sort(rng.choice(n_columns, 300, replace=False))
    S = scipy.sparse.random(n_rows, n_columns, 200 / n_columns, "csr", rng=rng, dtype=np.float32)
    hot = scipy.sparse.random(n_rows, 300, 0.2, "csr", rng=rng, dtype=np.float32)
    placed = scipy.sparse.csr_matrix((hot.data, tested[hot.indices], hot.indptr), shape=S.shape)
    S = (S + placed).tocsr()
    hot = S.tocsc()[:, tested].tocsr()  # some of the other entries fall in tested columns
    y = np.asarray(hot.sum(axis=1)).ravel() + rng.normal(size=n_rows)
    booster = lightgbm.train(
        {"verbosity": -1, "num_leaves": 64, "num_threads": 1, "feature_pre_filter": False},
        lightgbm.Dataset(hot, y),
        100,
    )
    text = booster.model_to_string()
    # The same trees on the wide matrix's columns.
    text = re.sub(
        r"^split_feature=(.*)$",
        lambda line: "split_feature=" + " ".join(str(tested[int(f)]) for f in line[1].split()),
        text,
        flags=re.MULTILINE,
    )
    names, infos = " ".join(f"Column_{i}" for i in range(n_columns)), " ".join(["[0:1]"] * n_columns)
    for field, value in (("max_feature_idx", n_columns - 1), ("feature_names", names), ("feature_infos", infos)):
        text = re.sub(rf"^{field}=.*$", f"{field}={value}", text, flags=re.MULTILINE)
    text = re.sub(r"^tree_sizes=.*\n", "", text, flags=re.MULTILINE)
    model = gpuqs.load(text.encode())
    if not np.array_equal(model.predict(S, "raw"), booster.predict(hot, raw_score=True)):
        raise SystemExit("the wide matrix is scored otherwise")
    timing = by_turns({"gpuqs": lambda: model.predict(S, "raw", n_threads=1)}, rounds)["gpuqs"]
    with tempfile.TemporaryDirectory() as folder:
        paths = Path(folder) / "model.gpuqs", Path(folder) / "matrix.npz"
        model.save(paths[0])
        scipy.sparse.save_npz(paths[1], S, compressed=False)
        run = subprocess.run([sys.executable, "-c", WIDE, *map(str, paths)], capture_output=True, text=True, check=True)
    before, after = map(float, run.stdout.split())
    each = timing.median / n_rows * 1e6
    print(f"\n{n_columns:,} columns, {len(model.forest.tested)} of them tested, {S.nnz / n_rows:.0f} entries per row:")
    print(f"  gpuqs {each:.3f} us per document; adds {after - before:.0f} MiB to the {before:.0f} of model and matrix")
    return {
        "columns": n_columns,
        "tested": len(model.forest.tested),
        "rows": n_rows,
        "entries_per_row": S.nnz / n_rows,
        "us_per_document": each,
        "peak_mib_before": before,
        "peak_mib_of_predict": after - before,
    }


def as_markdown(report: dict[str, Any]) -> str:
    lines = [f"# Sparse input, {report['processor']}", "", report["versions"], ""]
    lines += ["Microseconds a document, one thread.", ""]
    labels = list(report["results"][0]["us_per_document"])
    lines += ["| density | " + " | ".join(labels) + " | times as fast |", "|" + "---|" * (len(labels) + 2)]
    for row in report["results"]:
        figures = " | ".join(f"{row['us_per_document'][label]:.2f}" for label in labels)
        factors = ", ".join(f"{factor:.0f} x {name}" for name, factor in row["times_as_fast"].items())
        lines.append(f"| {row['density']:.0%} | {figures} | {factors} |")
    wide = report["wide"]
    lines += [
        "",
        f"{wide['columns']:,} columns of which {wide['tested']} are tested, {wide['rows']:,} rows: "
        f"{wide['us_per_document']:.2f} us a document, {wide['peak_mib_of_predict']:.0f} MiB beyond model and matrix.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few trees and rows, nothing written")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    n_rows, n_trees, n_leaves = (1_000, 50, 32) if args.quick else (10_000, 1_000, 64)
    X = documents(n_rows)
    report: dict[str, Any] = {
        "processor": processor(),
        "versions": f"gpuqs {gpuqs.__version__}, LightGBM {lightgbm.__version__}, XGBoost {xgboost.__version__}",
        "results": [measure(X, d, n_trees, n_leaves, args.rounds) for d in DENSITIES],
        "wide": measure_wide(n_rows, 100_000 if args.quick else 1_000_000, args.rounds),
    }
    if not args.quick:
        stem = keep("sparse", report)
        stem.with_suffix(".md").write_text(as_markdown(report))


if __name__ == "__main__":
    main()
