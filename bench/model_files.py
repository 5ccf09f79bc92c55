"""Files of any number of trees in every format, as the libraries write them: a few trained trees over and over."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

#: Trees that are trained; the files repeat them.
TRAINED: Final = 5


@cache
def _rows() -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(3).normal(size=(2000, 20)).astype(np.float32)
    return X, X[:, 0] + np.sin(3 * X[:, 1]) + X[:, 2] * X[:, 3]


def _lightgbm_text(n_leaves: int, n_trees: int) -> bytes:
    import lightgbm as lgb

    params = {"num_leaves": n_leaves, "verbose": -1, "num_threads": 1}
    text = lgb.train(params, lgb.Dataset(*_rows()), TRAINED).model_to_string()
    head, _, rest = text.partition("Tree=")
    trees = [tree.partition("\n")[2] for tree in re.split(r"^Tree=", rest.partition("end of trees")[0], flags=re.M)]
    head = re.sub(r"^tree_sizes=.*\n", "", head, flags=re.M)
    body = "".join(f"Tree={i}\n{trees[i % TRAINED]}" for i in range(n_trees))
    return f"{head}{body}end of trees\n\nparameters:\nend of parameters\n".encode()


def _xgboost_booster(n_leaves: int, n_trees: int) -> Any:
    import xgboost as xgb

    params = {"tree_method": "hist", "grow_policy": "lossguide", "max_leaves": n_leaves, "max_depth": 0, "nthread": 1}
    model = json.loads(xgb.train(params, xgb.DMatrix(*_rows()), TRAINED).save_raw("json"))
    gbtree = model["learner"]["gradient_booster"]["model"]
    gbtree["trees"] = [gbtree["trees"][i % TRAINED] | {"id": i} for i in range(n_trees)]
    gbtree["tree_info"], gbtree["iteration_indptr"] = [0] * n_trees, list(range(n_trees + 1))
    gbtree["gbtree_model_param"]["num_trees"] = str(n_trees)
    booster = xgb.Booster()
    booster.load_model(bytearray(json.dumps(model).encode()))
    return booster


def _xgboost_json(n_leaves: int, n_trees: int) -> bytes:
    return bytes(_xgboost_booster(n_leaves, n_trees).save_raw("json"))


def _xgboost_ubjson(n_leaves: int, n_trees: int) -> bytes:
    return bytes(_xgboost_booster(n_leaves, n_trees).save_raw("ubj"))


def _treelite_json(n_leaves: int, n_trees: int) -> bytes:
    import treelite

    text = bytes(_xgboost_booster(n_leaves, n_trees).save_raw("json")).decode()
    return treelite.frontend.from_xgboost_json(text).dump_as_json(pretty_print=False).encode()


def _catboost_json(n_leaves: int, n_trees: int, **params: Any) -> bytes:
    """As CatBoost writes it: a value a line, indented."""
    import catboost

    model = catboost.CatBoostRegressor(
        iterations=TRAINED, verbose=False, thread_count=1, allow_writing_files=False, **params
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "small.json"
        model.fit(*_rows()).save_model(str(path), format="json")
        document = json.loads(path.read_bytes())
    key = "trees" if "trees" in document else "oblivious_trees"
    document[key] = [document[key][i % TRAINED] for i in range(n_trees)]
    return json.dumps(document, indent=2).encode()


def _catboost_symmetric(n_leaves: int, n_trees: int) -> bytes:
    return _catboost_json(n_leaves, n_trees, depth=int(np.log2(n_leaves)))


def _catboost_nested(n_leaves: int, n_trees: int) -> bytes:
    return _catboost_json(n_leaves, n_trees, grow_policy="Lossguide", max_leaves=n_leaves)


#: Format -> what makes a file of it, given the leaves of a tree and the trees.
FILES: Final[dict[str, Callable[[int, int], bytes]]] = {
    "LightGBM text": _lightgbm_text,
    "XGBoost JSON": _xgboost_json,
    "XGBoost UBJSON": _xgboost_ubjson,
    "CatBoost JSON": _catboost_symmetric,
    "CatBoost JSON, nested": _catboost_nested,
    "Treelite JSON": _treelite_json,
}
