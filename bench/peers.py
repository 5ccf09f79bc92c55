"""Other fast scorers on the same model and rows, by turns: LightGBM, YDF (its QuickScorer), lleaves, gpuqs.

    python bench/peers.py            # 1,000 trees x 64 leaves; figures go to bench/results/
    python bench/peers.py --large    # and 20,000 x 64, without lleaves, which takes hours to compile it
    python bench/peers.py --quick    # a smoke run, nothing written

Peers that are not installed are left out, and said to be. All take float32 NumPy rows through their
Python API, on one thread; YDF takes them column by column, as it wants them.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
from interleave import by_turns, processor, results_at
from models import CACHE, documents, enlarged, lambdamart

import gpuqs
from gpuqs.forest import Forest
from gpuqs.layout.columns import round_down

Call = Callable[[np.ndarray], np.ndarray]


def ydf_model(forest: Forest) -> Call:
    """The forest as a YDF model: right iff x > t becomes positive iff x >= the float32 above t."""
    import ydf

    names = [f"f{i}" for i in range(forest.n_features)]
    few = {name: np.arange(20, dtype=np.float32) + i for i, name in enumerate(names)}
    learner = ydf.GradientBoostedTreesLearner(
        label="y", task=ydf.Task.REGRESSION, num_trees=1, validation_ratio=0.0, min_examples=1
    )
    model = learner.train(few | {"y": np.arange(20, dtype=np.float32)}, verbose=0)
    model.set_initial_predictions([0.0])
    column = dict(zip(model.input_feature_names(), model.input_features_col_idxs(), strict=True))
    column_of = [column[name] for name in names]

    above = np.nextafter(round_down(forest.threshold), np.float32(np.inf))

    def node(tree: int, at: int) -> Any:
        if at < 0:
            value = float(forest.leaf_value[forest.leaf_offsets[tree] + ~at, 0])
            return ydf.tree.Leaf(value=ydf.tree.RegressionValue(num_examples=1.0, value=value))
        number = forest.node_offsets[tree] + at
        return ydf.tree.NonLeaf(
            value=ydf.tree.RegressionValue(num_examples=1.0, value=0.0),
            condition=ydf.tree.NumericalHigherThanCondition(
                missing=False, score=0.0, attribute=column_of[forest.feature[number]], threshold=float(above[number])
            ),
            pos_child=node(tree, int(forest.right[number])),
            neg_child=node(tree, int(forest.left[number])),
        )

    for tree in range(forest.n_trees):
        model.add_tree(ydf.tree.Tree(root=node(tree, 0)))
    model.remove_tree(0)
    model.force_engine(model.list_compatible_engines()[0])
    print(f"YDF's engine: {model.list_compatible_engines()[0]}")
    return lambda X: model.predict(dict(zip(names, X.T, strict=True)), num_threads=1)


def lleaves_model(path: Path) -> Call:
    """The model compiled by lleaves; kept under bench/.cache, since that takes minutes."""
    import lleaves

    model = lleaves.Model(model_file=str(path))
    model.compile(cache=str(CACHE / f"{path.stem}.lleaves"))
    return lambda X: model.predict(X, n_jobs=1)


def contenders(path: Path, large: bool) -> dict[str, Call]:
    booster, model = lightgbm.Booster(model_file=path), gpuqs.load(path)
    calls: dict[str, Call] = {"LightGBM": lambda X: booster.predict(X, raw_score=True, num_threads=1)}
    peers: dict[str, Callable[[], Call]] = {"ydf": lambda: ydf_model(model.forest)}
    if not large:
        peers["lleaves"] = lambda: lleaves_model(path)
    for name, make in peers.items():
        if importlib.util.find_spec(name) is None:
            print(f"{name} is not installed: left out")
        else:
            calls[name] = make()
    calls["gpuqs"] = lambda X: model.predict(X, "raw", n_threads=1)
    calls["gpuqs, fast"] = lambda X: model.predict(X, "raw", n_threads=1, precision="fast")
    return calls


def measure(name: str, path: Path, X: np.ndarray, sizes: tuple[int, ...], rounds: int, large: bool) -> dict[str, Any]:
    calls = contenders(path, large)
    expected = calls["LightGBM"](X)
    for label, call in calls.items():
        worst = float(np.abs(call(X).ravel() - expected).max())
        print(f"{name}: largest difference of {label} from LightGBM {worst:.2g}")
        if worst > (0 if label == "gpuqs" else 1e-3):
            raise SystemExit(f"{label} scores something else")
    result: dict[str, Any] = {"model": name, "us_per_document": {}}
    for n in sizes:
        # Small batches one after another, so that a call is timed with its own data in the caches.
        batches = [np.ascontiguousarray(X[at : at + n]) for at in range(0, min(len(X), 50 * n) - n + 1, n)]
        each_batch = {label: lambda c=call, b=batches: [c(rows) for rows in b] for label, call in calls.items()}
        timings = by_turns(each_batch, rounds)
        each = {label: timing.median / n / len(batches) * 1e6 for label, timing in timings.items()}
        result["us_per_document"][str(n)] = each
        print(f"\n{name}, {n:,} documents, us a document")
        for label, microseconds in each.items():
            print(f"  {label:14} {microseconds:10.3f}   gpuqs is {microseconds / each['gpuqs']:.1f} times as fast")
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="50 trees, nothing written")
    parser.add_argument("--large", action="store_true", help="also 20,000 x 64")
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    if args.quick:
        measure("50 x 32", lambdamart(50, 32), documents(1_000), (1, 1_000), 3, False)
        return
    X = documents(10_000)
    results = [
        measure(f"1,000 x {n}", lambdamart(1_000, n), X, (1, 10, 100, 10_000), args.rounds, False) for n in (64, 32)
    ]
    if args.large:
        big = enlarged(lambdamart(1_000, 64), 20_000)
        results.append(measure("20,000 x 64", big, X[:2_048], (2_048,), args.rounds, True))
    report = {"processor": processor(), "results": results}
    results_at("peers").with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
