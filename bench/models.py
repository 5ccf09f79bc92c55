"""Models and documents for the benches, trained once and kept under bench/.cache."""

from __future__ import annotations

import os
import re
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import lightgbm
import numpy as np
from datasets import Shape, key, training
from interleave import progress

import gpuqs
from gpuqs.demo.mslr import mslr_like
from gpuqs.forest import Forest

#: Folder where models are kept; ``GPUQS_BENCH_CACHE`` overrides it.
CACHE = Path(os.environ.get("GPUQS_BENCH_CACHE") or Path(__file__).parent / ".cache")
TRAINING_SEED, DOCUMENTS_SEED = 11, 12


def documents(n: int) -> np.ndarray:
    """MSLR-like rows, float32 [n, 136], none of which the models were trained on."""
    X, _, _ = mslr_like(n // 100 + 2, DOCUMENTS_SEED)
    return np.ascontiguousarray(X[:n])


def lambdamart(n_trees: int, n_leaves: int) -> Path:
    """A LightGBM LambdaMART model with ``n_trees`` trees of ``n_leaves`` leaves, as a text file."""
    path = CACHE / f"lambdamart-{n_trees}x{n_leaves}.txt"
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
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
        CACHE.mkdir(parents=True, exist_ok=True)
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
    """A larger model made from a trained one: its trees repeated with other thresholds.

    Every copy of a tree gets thresholds that trained trees use for the same features, drawn at
    random, so that a large model has no more distinct tests than a trained one of its size could.
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


#: Trees that are trained and saved at a time.
PART = 500
#: Fields of a tree in LightGBM's text that scoring reads; the others would be two thirds of a large model's file.
_SCORED = (
    "num_leaves", "num_cat", "split_feature", "split_gain", "threshold", "decision_type", "left_child", "right_child",
    "leaf_value", "shrinkage",
)  # fmt: skip


def ranker(shape: Shape, n_trees: int, n_leaves: int, data: Path | None = None) -> Path:
    """The first trees of a LightGBM LambdaMART model of a shape, as a text file; trained as far as needed.

    Every `PART` trees continue from the previous ones with new documents, to prevent overfitting and so that
    late trees still have all their leaves. Interrupted training continues from the last part.
    """
    folder = CACHE / f"{key(shape, data)}-{n_leaves}"
    path = folder / f"{n_trees}.txt"
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        parts = [folder / f"part-{at:03}.txt" for at in range(-(-n_trees // PART))]
        missing = [at for at, part in enumerate(parts) if not part.exists()]
        bins = None
        for at in progress(missing, f"training {shape.name} to {n_trees:,} trees x {n_leaves}"):
            if bins is None:
                bins = _ranking_data(training(shape, -1, data, 7_000))
            _train_part(shape, n_leaves, bins, parts[: at + 1], data)
        _write(path, _joined(parts, n_trees))
    return path


def _ranking_data(part: tuple[np.ndarray, np.ndarray, np.ndarray], **options: Any) -> lightgbm.Dataset:
    X, y, sizes = part
    parameters = {"feature_pre_filter": False, "num_threads": 1, "verbosity": -1}
    return lightgbm.Dataset(X, y, group=sizes, params=parameters, **options).construct()


def _train_part(shape: Shape, n_leaves: int, bins: lightgbm.Dataset, parts: list[Path], data: Path | None) -> None:
    """Train the last of the parts; thresholds of all parts come from the same bins, at most 255 per feature."""
    *before, last = parts
    parameters = {
        "objective": "lambdarank",
        "num_leaves": n_leaves,
        "learning_rate": 0.02,
        "min_data_in_leaf": 5,
        "feature_fraction": 20 / shape.n_features,
        "seed": len(parts),
        "num_threads": 1,
        "verbosity": -1,
    }
    part = training(shape, len(before), data)
    scores = sum(_loaded_part(path).predict(part[0], "raw", n_threads=1) for path in before) if before else None
    documents = _ranking_data(part, reference=bins, init_score=scores)
    _write(last, lightgbm.train(parameters, documents, PART).model_to_string())


@lru_cache(maxsize=64)
def _loaded_part(path: Path) -> gpuqs.Model:
    return gpuqs.load(path)


def _joined(parts: list[Path], n_trees: int) -> str:
    """The model with the first ``n_trees`` trees of all parts, reduced to the fields that scoring reads."""
    head = ""
    trees: list[str] = []
    for part in parts:
        head, _, rest = part.read_text().partition("Tree=")
        trees += re.split(r"^Tree=", rest.partition("end of trees")[0], flags=re.MULTILINE)
    head = re.sub(r"^tree_sizes=.*\n", "", head, flags=re.MULTILINE)
    kept = re.compile(rf"^(?:{'|'.join(_SCORED)})=.*$", re.MULTILINE)
    texts = (f"Tree={t}\n" + "\n".join(kept.findall(tree)) + "\n\n\n" for t, tree in enumerate(trees[:n_trees]))
    return head + "".join(texts) + "end of trees\n\nparameters:\nend of parameters\n"


def oblivious(shape: Shape, n_trees: int, n_leaves: int, data: Path | None = None) -> Forest:
    """The first trees of a CatBoost model of a shape: oblivious, of log2(n_leaves) levels; trained as far as needed."""
    name = f"{key(shape, data)}-oblivious-{n_leaves}"
    known = sorted(int(path.stem) for path in (CACHE / name).glob("[0-9]*.json"))
    enough = [size for size in known if size >= n_trees]
    path = CACHE / name / f"{enough[0] if enough else n_trees}.json"
    if not enough:
        _train_oblivious(shape, n_trees, n_leaves, data, path, known[-1:])
    return _loaded(path).select(slice(0, n_trees))


def _train_oblivious(
    shape: Shape, n_trees: int, n_leaves: int, data: Path | None, path: Path, known: list[int]
) -> None:
    """Train up to a number of trees, starting from the largest saved model; interrupted training has snapshots."""
    import catboost

    path.parent.mkdir(parents=True, exist_ok=True)
    X, y, _ = training(shape, 0, data)
    before = catboost.CatBoostRegressor().load_model(path.with_name(f"{known[0]}.json"), "json") if known else None
    model = catboost.CatBoostRegressor(
        iterations=n_trees - (known[0] if known else 0),
        depth=n_leaves.bit_length() - 1,
        learning_rate=0.01,
        rsm=20 / shape.n_features,
        border_count=64,
        boost_from_average=False,
        thread_count=1,
        verbose=False,
        train_dir=str(path.parent),
        save_snapshot=True,
        snapshot_file=f"{n_trees}.snapshot",
        snapshot_interval=20,
        random_seed=len(known),
    )
    model.fit(X, y, init_model=before)
    made = path.with_suffix(".part")
    model.save_model(made, format="json")
    made.replace(path)


@cache
def _loaded(path: Path) -> Forest:
    return gpuqs.load(path).forest


def _write(path: Path, text: str) -> None:
    """Write a file atomically."""
    made = path.with_suffix(".writing")
    made.write_text(text)
    made.replace(path)
