"""Models and documents for the benches, trained once and kept under bench/.cache."""

from __future__ import annotations

import re
from pathlib import Path

import lightgbm
import numpy as np

from gpuqs.demo.mslr import mslr_like

CACHE = Path(__file__).parent / ".cache"
TRAINING_SEED, DOCUMENTS_SEED = 11, 12


def documents(n: int) -> np.ndarray:
    """MSLR-like rows, float32 [n, 136], none of which the models were trained on."""
    X, _, _ = mslr_like(n // 100 + 2, DOCUMENTS_SEED)
    return np.ascontiguousarray(X[:n])


def lambdamart(n_trees: int, n_leaves: int) -> Path:
    """A LightGBM LambdaMART model of so many trees and leaves, as a text file."""
    path = CACHE / f"lambdamart-{n_trees}x{n_leaves}.txt"
    if not path.exists():
        CACHE.mkdir(exist_ok=True)
        X, y, qid = mslr_like(200, TRAINING_SEED)
        parameters = {
            "objective": "lambdarank",
            "num_leaves": n_leaves,
            "learning_rate": 0.03,
            "min_data_in_leaf": 20,
            "feature_fraction": 0.5,
            "verbosity": -1,
        }
        data = lightgbm.Dataset(X, y, group=np.bincount(qid)[1:])
        lightgbm.train(parameters, data, n_trees).save_model(path)
    return path


def xgboost_ranker(n_trees: int, n_leaves: int) -> Path:
    """An XGBoost model grown leaf by leaf to the same size, as a UBJSON file."""
    import xgboost

    path = CACHE / f"xgboost-{n_trees}x{n_leaves}.ubj"
    if not path.exists():
        CACHE.mkdir(exist_ok=True)
        X, y, qid = mslr_like(200, TRAINING_SEED)
        parameters = {
            "objective": "rank:ndcg",
            "tree_method": "hist",
            "grow_policy": "lossguide",
            "max_leaves": n_leaves,
            "max_depth": 0,
            "learning_rate": 0.03,
            "colsample_bytree": 0.5,
        }
        xgboost.train(parameters, xgboost.DMatrix(X, y, qid=qid), n_trees).save_model(path)
    return path


def enlarged(path: Path, n_trees: int, seed: int = 0) -> Path:
    """A larger model made of a trained one: its trees over and over, thresholds moved a little.

    Every copy of a tree gets thresholds that trained trees use for the same features, drawn at
    random, so that a large model has no more distinct tests than a trained one of its size may.
    """
    big = path.with_name(path.stem.partition("-")[0] + f"-{n_trees}-from-{path.stem}.txt")
    if big.exists():
        return big
    rng = np.random.default_rng(seed)
    head, _, rest = path.read_text().partition("Tree=")
    body = rest.partition("end of trees")[0]
    trees = [text.partition("\n")[2] for text in re.split(r"^Tree=", body, flags=re.MULTILINE)]
    fields = [dict(line.partition("=")[::2] for line in text.splitlines() if line) for text in trees]
    thresholds: dict[str, list[str]] = {}
    for tree in fields:
        for feature, threshold in zip(tree["split_feature"].split(), tree["threshold"].split(), strict=True):
            thresholds.setdefault(feature, []).append(threshold)
    head = re.sub(r"^tree_sizes=.*\n", "", head, flags=re.MULTILINE)
    with big.open("w") as out:
        out.write(head)
        for t in range(n_trees):
            tree = dict(fields[t % len(fields)])
            if t >= len(fields):
                drawn = (thresholds[f][rng.integers(len(thresholds[f]))] for f in tree["split_feature"].split())
                tree["threshold"] = " ".join(drawn)
            out.write(f"Tree={t}\n" + "".join(f"{k}={v}\n" for k, v in tree.items()) + "\n\n")
        out.write("end of trees\n\nparameters:\nend of parameters\n")
    return big
