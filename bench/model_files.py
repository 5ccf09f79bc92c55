"""Files with any number of trees in every format, as the libraries write them: a few trees, repeated."""

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


def _lightgbm_text(n_leaves: int, n_trees: int, n_categorical: int = 0, **more: Any) -> bytes:
    import lightgbm as lgb

    X, y = _rows()
    X = X.copy()
    X[:, :n_categorical] = np.floor(8 * np.maximum(X[:, :n_categorical] + 4, 0))
    params = {"num_leaves": n_leaves, "verbose": -1, "num_threads": 1, **more}
    data = lgb.Dataset(X, y, categorical_feature=[*range(n_categorical)])
    text = lgb.train(params, data, TRAINED).model_to_string()
    head, _, rest = text.partition("Tree=")
    trees = [tree.partition("\n")[2] for tree in re.split(r"^Tree=", rest.partition("end of trees")[0], flags=re.M)]
    head = re.sub(r"^tree_sizes=.*\n", "", head, flags=re.M)
    body = "".join(f"Tree={i}\n{trees[i % TRAINED]}" for i in range(n_trees))
    return f"{head}{body}end of trees\n\nparameters:\nend of parameters\n".encode()


def _lightgbm_categories(n_leaves: int, n_trees: int) -> bytes:
    return _lightgbm_text(n_leaves, n_trees, n_categorical=4, min_data_per_group=5)


def _lightgbm_linear(n_leaves: int, n_trees: int) -> bytes:
    return _lightgbm_text(n_leaves, n_trees, linear_tree=True, min_data_in_leaf=25)


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
    """JSON as CatBoost writes it: indented, one value per line."""
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


def _catboost_binary(document: bytes) -> bytes:
    """Let CatBoost convert a JSON model to its binary format."""
    import catboost

    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("small.json", "small.cbm")]
        paths[0].write_bytes(document)
        catboost.CatBoost().load_model(str(paths[0]), format="json").save_model(str(paths[1]))
        return paths[1].read_bytes()


def _catboost_symmetric(n_leaves: int, n_trees: int) -> bytes:
    return _catboost_json(n_leaves, n_trees, depth=int(np.log2(n_leaves)))


def _catboost_nested(n_leaves: int, n_trees: int) -> bytes:
    return _catboost_json(n_leaves, n_trees, grow_policy="Lossguide", max_leaves=n_leaves)


def _catboost_symmetric_binary(n_leaves: int, n_trees: int) -> bytes:
    return _catboost_binary(_catboost_symmetric(n_leaves, n_trees))


def _catboost_nested_binary(n_leaves: int, n_trees: int) -> bytes:
    return _catboost_binary(_catboost_nested(n_leaves, n_trees))


def _balanced(n_leaves: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, thresholds and leaf values of a balanced tree, with nodes and leaves in heap order."""
    rng = np.random.default_rng(n_leaves)
    features = rng.integers(1, 137, n_leaves - 1)
    return features, rng.normal(size=n_leaves - 1).astype(np.float32), rng.normal(size=n_leaves)


def _quickrank_xml(n_leaves: int, n_trees: int) -> bytes:
    features, thresholds, values = _balanced(n_leaves)

    def split(node: int, position: str, tabs: str) -> str:
        if node >= n_leaves - 1:
            inside = f"{tabs}\t<output>{values[node - n_leaves + 1]}</output>\n"
        else:
            inside = f"{tabs}\t<feature>{features[node]}</feature>\n{tabs}\t<threshold>{thresholds[node]}</threshold>\n"
            inside += split(2 * node + 1, ' pos="left"', tabs + "\t") + split(2 * node + 2, ' pos="right"', tabs + "\t")
        return f"{tabs}<split{position}>\n{inside}{tabs}</split>\n"

    tree = split(0, "", "\t\t\t")
    trees = "".join(f'\t\t<tree id="{i + 1}" weight="0.1">\n{tree}\t\t</tree>\n' for i in range(n_trees))
    head = f"<info>\n\t\t<type>LAMBDAMART</type>\n\t\t<trees>{n_trees}</trees>\n\t</info>"
    return f'<?xml version="1.0"?>\n<ranker>\n\t{head}\n\t<ensemble>\n{trees}\t</ensemble>\n</ranker>\n'.encode()


def _jforests_xml(n_leaves: int, n_trees: int) -> bytes:
    features, thresholds, values = _balanced(n_leaves)

    def children(first: int) -> str:
        heap = range(first, 2 * n_leaves - 1, 2)
        return " ".join(str(c if c < n_leaves - 1 else -(c - n_leaves + 1) - 1) for c in heap)

    lists = {
        "SplitFeatures": " ".join(map(str, features)),
        "LeftChildren": children(1),
        "RightChildren": children(2),
        "Thresholds": " ".join("7" for _ in features),
        "OriginalThresholds": " ".join(map(str, thresholds)),
        "LeafOutputs": " ".join(map(str, values)),
    }
    body = "".join(f"\t\t<{name}>{words}</{name}>\n" for name, words in lists.items())
    tree = f'\t<Tree leaves="{n_leaves}" weight="0.1">\n{body}\t</Tree>\n'
    return f"<Ensemble>\n{tree * n_trees}</Ensemble>\n".encode()


def _onnx(n_leaves: int, n_trees: int) -> bytes:
    from onnx import TensorProto, helper

    features, thresholds, values = _balanced(n_leaves)
    n_nodes = 2 * n_leaves - 1
    inner = np.arange(n_nodes) < n_leaves - 1
    children = np.arange(n_nodes) * 2
    tree = {
        "nodes_nodeids": np.arange(n_nodes),
        "nodes_featureids": np.append(features, np.zeros(n_leaves, int)),
        "nodes_values": np.append(thresholds, np.zeros(n_leaves, np.float32)),
        "nodes_truenodeids": np.where(inner, children + 1, 0),
        "nodes_falsenodeids": np.where(inner, children + 2, 0),
        "target_nodeids": np.arange(n_leaves - 1, n_nodes),
        "target_ids": np.zeros(n_leaves, int),
        "target_weights": values.astype(np.float32),
    }
    fields = {name: np.tile(array, n_trees).tolist() for name, array in tree.items()}
    fields["nodes_treeids"] = np.repeat(np.arange(n_trees), n_nodes).tolist()
    fields["target_treeids"] = np.repeat(np.arange(n_trees), n_leaves).tolist()
    fields["nodes_modes"] = np.where(inner, "BRANCH_LEQ", "LEAF").tolist() * n_trees
    node = helper.make_node(
        "TreeEnsembleRegressor", ["X"], ["Y"], domain="ai.onnx.ml", n_targets=1, post_transform="NONE", **fields
    )
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, n]) for name, n in (("X", 137), ("Y", 1))]
    versions = [helper.make_opsetid("ai.onnx.ml", 3), helper.make_opsetid("", 17)]
    graph = helper.make_graph([node], "trees", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=versions).SerializeToString()


#: Format -> function that makes a file, given the leaves per tree and the number of trees.
FILES: Final[dict[str, Callable[[int, int], bytes]]] = {
    "LightGBM text": _lightgbm_text,
    "LightGBM text, categories": _lightgbm_categories,
    "LightGBM text, linear leaves": _lightgbm_linear,
    "XGBoost JSON": _xgboost_json,
    "XGBoost UBJSON": _xgboost_ubjson,
    "CatBoost JSON": _catboost_symmetric,
    "CatBoost JSON, nested": _catboost_nested,
    "CatBoost binary": _catboost_symmetric_binary,
    "CatBoost binary, nested": _catboost_nested_binary,
    "Treelite JSON": _treelite_json,
    "QuickRank XML": _quickrank_xml,
    "Jforests XML": _jforests_xml,
    "ONNX": _onnx,
}
