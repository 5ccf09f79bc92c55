"""Small valid files of every format that gpuqs reads, and how each is damaged."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from fuzz.damage import (
    MAX_BYTES,
    Mutate,
    Rng,
    damage_json,
    damage_native,
    damage_onnx,
    damage_text,
    damage_ubjson,
    damage_words,
)

_QUICKRANK = b"""<ranker><info><type>LAMBDAMART</type><trees>2</trees></info><ensemble>
<tree id="1" weight="0.1"><split><feature>3</feature><threshold>1.5</threshold>
<split pos="left"><feature>1</feature><threshold>-8.02</threshold>
<split pos="left"><output>0.34</output></split><split pos="right"><output>-0.66</output></split></split>
<split pos="right"><output>0.96</output></split></split></tree>
<tree id="2" weight="1.0"><split><output>0.5</output></split></tree></ensemble></ranker>
"""
_JFORESTS = b"""<Ensemble><Tree leaves="4" weight="0.5"><SplitFeatures>2 0 5</SplitFeatures>
<LeftChildren>1 -1 -3</LeftChildren><RightChildren>2 -2 -4</RightChildren><Thresholds>14 7 8</Thresholds>
<OriginalThresholds>0.1 -1.5E-5 1e39</OriginalThresholds><LeafOutputs>1.25 -2.0 7 0.1</LeafOutputs></Tree>
<Tree leaves="1" weight="1.0"><SplitFeatures></SplitFeatures><LeftChildren/><RightChildren/><OriginalThresholds/>
<LeafOutputs>0.125</LeafOutputs></Tree></Ensemble>
"""
_LETOR = [
    b"2 qid:1 1:0.5 3:1e-3 7:-2 # doc 1\n0 qid:1 2:3 11:4e38\n1 qid:2 0:1\n",
    b"1 0:0.1 1:0.2\n-1 5:nan 6:inf\r\n\n# a comment\n0.5 11:5e-324\n",
    b"3:1.5 4:2\n1:0.30000000000000004 2:123456789012345678901234567890\n",
]
_TOKENS = [
    b"<",
    b">",
    b"</",
    b"/>",
    b"&amp;",
    b"&#0;",
    b"&#x41;",
    b"<!--",
    b"-->",
    b"<![CDATA[",
    b"]]>",
    b"<a>",
    b"</a>",
]
_TOKENS += [
    b'<?xml version="1.0" encoding="UTF-16"?>',
    b"<!DOCTYPE a [<!ENTITY b 'c'>]>",
    b"&b;",
    b"NaN",
    b"inf",
    b"-",
    b"\xc3",
]
_QUICKRANK_TOKENS = [
    b"<split>",
    b"</split>",
    b'<split pos="left">',
    b'<split pos="right">',
    b"<output>1</output>",
    b"<feature>",
]
_QUICKRANK_TOKENS += [
    b"<split><feature>1</feature><threshold>1</threshold>",
    b"<ensemble>",
    b"<tree>",
    b'<tree weight="1">',
    *_TOKENS,
]
_JFORESTS_TOKENS = [
    b"<Tree>",
    b"</Tree>",
    b"<SplitFeatures>",
    b"</SplitFeatures>",
    b"<LeafTargetDistributions/>",
    b" 1",
    *_TOKENS,
]
_LIGHTGBM_TOKENS = [
    b"nan",
    b"inf",
    b"-inf",
    b"1e400",
    b" ",
    b"=",
    b"\n",
    b"\nTree=0",
    b"\nend of trees\n",
    b"\r",
    b"\0",
    b"\xff",
]
_LIGHTGBM_TOKENS += [
    b'\npandas_categorical:[["a"],[1,2]]',
    b"null",
    b"[",
    b"[[",
    b"1e-35",
    b"0x1p3",
    b"num_cat=1",
    b"is_linear=1",
]
_LETOR_TOKENS = [
    b"qid:",
    b"qid:1",
    b":",
    b"1:",
    b":1",
    b" ",
    b"\t",
    b"\n",
    b"\r\n",
    b"#",
    b"\0",
    b"1e400",
    b"nan",
    b"0x1p3",
    b"1:2:3",
]
_LETOR_TOKENS += [
    b"12:1",
    b"4294967296:1",
    b"-1:1",
    b"+1:1",
    b"1e1:1",
    b"qid:9223372036854775808",
    b"\xef\xbb\xbf",
    b"1_0",
    b"1,5",
]


@dataclass(frozen=True)
class Format:
    """A format to fuzz: valid inputs, how they are damaged, and whether they are models or documents."""

    seeds: list[bytes]
    mutate: Mutate
    documents: bool = False

    def damaged(self, rng: Rng) -> bytes:
        """One of the valid inputs, damaged."""
        return self.mutate(rng, rng.choice(self.seeds), self.seeds)[:MAX_BYTES]


def format_of(name: str) -> Format:
    """A format by its name, one of `FORMATS`; trains its seeds."""
    return Format(seeds_of(name), *_DAMAGES[name])


@cache
def seeds_of(name: str) -> list[bytes]:
    """Valid inputs of a format, one of `FORMATS`; they are trained, not stored."""
    return _SEEDS[name]()


def _rows() -> tuple[np.ndarray, np.ndarray]:
    """Rows with numbers, codes of categories (columns 1 and 4) and missing values; and classes 0 to 2."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(300, 6))
    X[:, 1], X[:, 4] = rng.integers(0, 40, 300), rng.integers(0, 5, 300)
    target = (X[:, 0] + (X[:, 1] % 3) + X[:, 4] > 2).astype(int) + (X[:, 2] > 1)
    X[rng.random(X.shape) < 0.1] = np.nan
    X[:, [1, 4]] = np.nan_to_num(X[:, [1, 4]])
    return X, target


@cache
def _lightgbm() -> list[bytes]:
    import lightgbm
    import pandas

    X, target = _rows()
    common = {"verbose": -1, "num_threads": 1, "num_leaves": 6, "min_data_in_leaf": 5, "seed": 1}
    common |= {"min_data_per_group": 5, "cat_smooth": 1, "max_cat_to_onehot": 2}
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    frame["b"] = pandas.Categorical.from_codes(X[:, 1].astype(int), [f"c{i}" for i in range(40)])
    frame["e"] = pandas.Categorical.from_codes(X[:, 4].astype(int), [1, 2, 3, 5, 8])
    seeds = []
    for data, options, categorical in (
        (X, {"objective": "regression"}, []),
        (X, {"objective": "binary", "zero_as_missing": True}, [1, 4]),
        (X, {"objective": "multiclass", "num_class": 3}, [1]),
        (frame, {"objective": "binary"}, "auto"),
        (X, {"objective": "regression", "linear_tree": True}, []),
        (X, {"boosting": "rf", "bagging_freq": 1, "bagging_fraction": 0.7}, []),
    ):
        dataset = lightgbm.Dataset(
            data,
            target if "num_class" in options else target > 0,
            categorical_feature=categorical,
            params={"linear_tree": "linear_tree" in options},
        )
        text = lightgbm.train({**common, **options}, dataset, 3).model_to_string()
        # Without its parameters and tree_sizes, so that trees can be damaged one by one.
        text = re.sub(r"\nparameters:.*?end of parameters\n", "\n", text, flags=re.DOTALL)
        seeds.append(re.sub(r"tree_sizes=.*\n", "", text).encode())
    return [*seeds, text.encode()]


@cache
def _xgboost() -> list[Any]:
    import pandas
    import xgboost

    X, target = _rows()
    kinds = ["c" if i in (1, 4) else "q" for i in range(6)]
    codes = xgboost.DMatrix(X, target, feature_types=kinds, enable_categorical=True)
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    frame["b"] = pandas.Categorical.from_codes(X[:, 1].astype(int), [f"c{i}" for i in range(40)])
    frame["e"] = pandas.Categorical.from_codes(X[:, 4].astype(int), [1, 2, 3, 5, 8])
    named = xgboost.DMatrix(frame, target, enable_categorical=True)
    classes = {"objective": "multi:softprob", "num_class": 3}
    boosters = []
    for data, options in (
        (xgboost.DMatrix(X, target > 0), {"objective": "binary:logistic"}),
        (codes, {"max_cat_to_onehot": 1}),
        (named, {"max_cat_to_onehot": 4}),
        (xgboost.DMatrix(X, target), classes),
        (xgboost.DMatrix(X, target), {**classes, "multi_strategy": "multi_output_tree"}),
        (xgboost.DMatrix(X, target), {"booster": "dart", "rate_drop": 0.5}),
        (xgboost.DMatrix(X, target), {"objective": "count:poisson", "num_parallel_tree": 2}),
    ):
        boosters.append(xgboost.train({"nthread": 1, "max_depth": 2, "seed": 1, **options}, data, 2))
    return boosters


@cache
def _catboost(form: str) -> list[bytes]:
    import catboost

    X, target = _rows()
    table = [[str(int(v)) if i in (1, 4) else v for i, v in enumerate(row)] for row in X.tolist()]
    mixed = catboost.Pool(table, target > 0, cat_features=[1, 4])
    plain = catboost.Pool(X, target)
    common = {"iterations": 2, "depth": 2, "verbose": False, "thread_count": 1, "random_seed": 1}
    common |= {"border_count": 8, "allow_writing_files": False}
    seeds = []
    for pool, options in (
        (catboost.Pool(X, target > 0), {"loss_function": "Logloss"}),
        (mixed, {"loss_function": "Logloss", "one_hot_max_size": 64}),
        (plain, {"loss_function": "MultiClass"}),
        (plain, {"loss_function": "RMSE", "grow_policy": "Lossguide"}),
        (mixed, {"loss_function": "RMSE", "grow_policy": "Depthwise", "one_hot_max_size": 64}),
        (mixed, {"loss_function": "Logloss", "one_hot_max_size": 10, "iterations": 6}),
        (mixed, {"loss_function": "RMSE", "simple_ctr": ["Counter", "BinarizedTargetMeanValue"], "iterations": 6}),
        (mixed, {"loss_function": "RMSE", "simple_ctr": ["Buckets"], "grow_policy": "Lossguide", "iterations": 4}),
    ):
        model = catboost.CatBoost({**common, **options}).fit(pool)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model"
            model.save_model(str(path), format=form, pool=pool if form == "json" else None)
            data = path.read_bytes()
        if form == "json":
            document = json.loads(data)
            kept = ["cat_feature_params"] if "ctrs" in document["features_info"] else []
            params = document["model_info"]["params"]
            loss = {"loss_function": {"type": options["loss_function"]}}
            document["model_info"]["params"] = loss | {name: params[name] for name in kept}
            data = json.dumps(document).encode()
        seeds.append(data)
    return seeds


def _sklearn() -> list[Any]:
    from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier, RandomForestRegressor

    X, target = np.nan_to_num(_rows()[0]).astype(np.float32), _rows()[1]
    common = {"n_estimators": 2, "max_depth": 2, "random_state": 1}
    return [
        RandomForestRegressor(**common).fit(X, target),
        RandomForestClassifier(**common).fit(X, target),
        GradientBoostingRegressor(**common).fit(X, target),
        RandomForestRegressor(**common).fit(X, np.stack([target, -target], axis=1)),
    ]


def _treelite() -> list[bytes]:
    import treelite

    boosters = _xgboost()
    models = [treelite.frontend.from_xgboost(booster) for booster in boosters[:2] + boosters[3:6]]
    models += [treelite.sklearn.import_model(estimator) for estimator in _sklearn()]
    return [model.dump_as_json(pretty_print=False).encode() for model in models]


def _onnx() -> list[bytes]:
    from skl2onnx import to_onnx

    seeds = []
    for estimator in _sklearn()[:3]:
        for dtype in (np.float32, np.float64):
            options = {"zipmap": False} if hasattr(estimator, "classes_") else None
            model = to_onnx(estimator, np.zeros((1, 6), dtype), options=options)
            seeds.append(model.SerializeToString())
    return seeds


def _native() -> list[bytes]:
    import gpuqs

    models = [*_lightgbm(), *(bytes(b.save_raw("ubj")) for b in _xgboost()), *_catboost("cbm")]
    seeds = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.gpuqs"
        for model in models:
            loaded = gpuqs.load(model)
            loaded.tune(np.zeros((20, loaded.n_features), np.int64), 0)
            loaded.save(path)
            seeds.append(path.read_bytes())
    return seeds


_SEEDS: dict[str, Callable[[], list[bytes]]] = {
    "LightGBM text": _lightgbm,
    "XGBoost JSON": lambda: [bytes(booster.save_raw("json")) for booster in _xgboost()],
    "XGBoost UBJSON": lambda: [bytes(booster.save_raw("ubj")) for booster in _xgboost()],
    "CatBoost JSON": lambda: _catboost("json"),
    "CatBoost binary": lambda: _catboost("cbm"),
    "QuickRank XML": lambda: [_QUICKRANK],
    "Jforests XML": lambda: [_JFORESTS],
    "Treelite JSON": _treelite,
    "ONNX": _onnx,
    "gpuqs": _native,
    "svmlight": lambda: _LETOR,
}
_XML = re.compile(rb"<[^>]*>")
#: How each format is damaged, and whether it holds documents.
_DAMAGES: dict[str, tuple[Any, ...]] = {
    "LightGBM text": (partial(damage_text, _LIGHTGBM_TOKENS, b"\n", re.compile(rb"^\w{1,40}=", re.MULTILINE)),),
    "XGBoost JSON": (damage_json,),
    "XGBoost UBJSON": (damage_ubjson,),
    "CatBoost JSON": (damage_json,),
    "CatBoost binary": (damage_words,),
    "QuickRank XML": (partial(damage_text, _QUICKRANK_TOKENS, b"\n", _XML),),
    "Jforests XML": (partial(damage_text, _JFORESTS_TOKENS, b"><", _XML),),
    "Treelite JSON": (damage_json,),
    "ONNX": (damage_onnx,),
    "gpuqs": (damage_native,),
    "svmlight": (partial(damage_text, _LETOR_TOKENS, b" ", re.compile(rb"[^ \n]+")), True),
}
#: Names of all formats, then of the model formats.
FORMATS = tuple(_SEEDS)
MODELS = tuple(name for name in FORMATS if name != "svmlight")
