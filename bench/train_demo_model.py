"""Train the LambdaMART model that `gpuqs demo` scores with, and put it into the package.

    python bench/train_demo_model.py

Needs LightGBM; takes about a minute. The file is an ordinary LightGBM model, gzipped, without the
fields that only training and plotting use.
"""

from __future__ import annotations

import argparse
import gzip
import re
from pathlib import Path

import lightgbm
import numpy as np

from gpuqs.demo.mslr import mslr_like
from gpuqs.ranking import ndcg

MODEL = Path(__file__).parents[1] / "gpuqs" / "demo" / "model.txt.gz"
#: Far from the seeds that the demo and the tests draw from.
TRAINING_SEED = 1_000_001
VALIDATION_SEED = 1_000_002
_LEFT_OUT = ("split_gain", "leaf_weight", "leaf_count", "internal_value", "internal_weight", "internal_count")


def train(n_queries: int, n_trees: int, n_leaves: int, n_threads: int) -> lightgbm.Booster:
    """Train LambdaMART on ``n_queries`` made-up queries."""
    X, y, qid = mslr_like(n_queries, TRAINING_SEED)
    parameters = {
        "objective": "lambdarank",
        "num_leaves": n_leaves,
        "learning_rate": 0.05,
        "min_data_in_leaf": 50,
        "lambdarank_truncation_level": 30,
        "deterministic": True,
        "force_row_wise": True,
        "seed": 1,
        "num_threads": n_threads,
        "verbosity": -1,
    }
    return lightgbm.train(parameters, lightgbm.Dataset(X, y, group=np.bincount(qid)[1:]), n_trees)


def slim(text: str) -> str:
    """The model's text without the fields that prediction does not read."""
    head, first, rest = text.partition("Tree=")
    body, end, tail = rest.partition("end of trees")
    trees = [first + tree for tree in re.split(r"^Tree=", body, flags=re.MULTILINE)]
    kept = [
        "".join(line for line in tree.splitlines(keepends=True) if line.partition("=")[0] not in _LEFT_OUT)
        for tree in trees
    ]
    sizes = " ".join(str(len(tree)) for tree in kept)
    head = re.sub(r"^tree_sizes=.*$", f"tree_sizes={sizes}", head, flags=re.MULTILINE)
    rest = tail[: tail.index("\nparameters:")].partition("\nfeature_importances:")[0]
    # Without a section of parameters, a file would look truncated.
    return "".join([head, *kept, end, rest, "\nparameters:\nend of parameters\n"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--queries", type=int, default=400)
    parser.add_argument("--trees", type=int, default=300)
    parser.add_argument("--leaves", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    booster = train(options.queries, options.trees, options.leaves, options.threads)
    text = slim(booster.model_to_string())
    X, y, qid = mslr_like(100, VALIDATION_SEED)
    scores = booster.predict(X, raw_score=True)
    if not np.array_equal(scores, lightgbm.Booster(model_str=text).predict(X, raw_score=True)):
        raise SystemExit("the slimmed model does not score as the trained one")
    MODEL.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    shuffled = np.random.default_rng(0).permutation(len(y)).astype(float)
    print(
        f"{MODEL}: {MODEL.stat().st_size / 1e3:.0f} kB, {booster.num_trees()} trees x {options.leaves} leaves"
    )
    print(f"NDCG@10 {ndcg(y, scores, qid):.4f} on fresh queries (random order: {ndcg(y, shuffled, qid):.4f})")


if __name__ == "__main__":
    main()
