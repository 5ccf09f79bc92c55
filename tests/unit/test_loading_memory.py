"""What loading takes at its peak, as a multiple of the file; and no file that takes time without end."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forests import random_forest

from gpuqs.formats import native

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the system tells no peak of memory")

#: Peak of a process's memory while it reads a file, above what it began with, over the file's size.
PEAK = """
import os, sys
from gpuqs.errors import ModelFormatError
from gpuqs.formats import read_model, readers

def kilobytes(name):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name))

list(readers())
before = kilobytes("VmRSS")
try:
    trees = read_model(sys.argv[1]).n_trees
except ModelFormatError:
    trees = -1
print(trees, (kilobytes("VmHWM") - before) * 1024 / os.path.getsize(sys.argv[1]))
"""
#: Trees that are trained; the files repeat them.
TRAINED = 5


def peak(path: Path) -> tuple[int, float]:
    """The number of trees (-1 where the file is refused), and the peak over the file's size."""
    run = subprocess.run(
        [sys.executable, "-c", PEAK, str(path)], check=True, capture_output=True, text=True, timeout=120
    )
    trees, times = run.stdout.split()
    return int(trees), float(times)


@cache
def rows() -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(3).normal(size=(2000, 20)).astype(np.float32)
    return X, X[:, 0] + np.sin(3 * X[:, 1]) + X[:, 2] * X[:, 3]


def lightgbm_text(n_leaves: int, n_trees: int) -> bytes:
    lgb = pytest.importorskip("lightgbm")
    params = {"num_leaves": n_leaves, "verbose": -1, "num_threads": 1}
    text = lgb.train(params, lgb.Dataset(*rows()), TRAINED).model_to_string()
    head, _, rest = text.partition("Tree=")
    trees = [tree.partition("\n")[2] for tree in re.split(r"^Tree=", rest.partition("end of trees")[0], flags=re.M)]
    head = re.sub(r"^tree_sizes=.*\n", "", head, flags=re.M)
    body = "".join(f"Tree={i}\n{trees[i % TRAINED]}" for i in range(n_trees))
    return f"{head}{body}end of trees\n".encode()


def xgboost_booster(n_leaves: int, n_trees: int) -> Any:
    xgb = pytest.importorskip("xgboost")
    params = {"tree_method": "hist", "grow_policy": "lossguide", "max_leaves": n_leaves, "max_depth": 0, "nthread": 1}
    model = json.loads(xgb.train(params, xgb.DMatrix(*rows()), TRAINED).save_raw("json"))
    gbtree = model["learner"]["gradient_booster"]["model"]
    gbtree["trees"] = [gbtree["trees"][i % TRAINED] | {"id": i} for i in range(n_trees)]
    gbtree["tree_info"], gbtree["iteration_indptr"] = [0] * n_trees, list(range(n_trees + 1))
    gbtree["gbtree_model_param"]["num_trees"] = str(n_trees)
    booster = xgb.Booster()
    booster.load_model(bytearray(json.dumps(model).encode()))
    return booster


def xgboost_json(n_leaves: int, n_trees: int) -> bytes:
    return bytes(xgboost_booster(n_leaves, n_trees).save_raw("json"))


def xgboost_ubjson(n_leaves: int, n_trees: int) -> bytes:
    return bytes(xgboost_booster(n_leaves, n_trees).save_raw("ubj"))


def treelite_json(n_leaves: int, n_trees: int) -> bytes:
    treelite = pytest.importorskip("treelite")
    text = bytes(xgboost_booster(n_leaves, n_trees).save_raw("json")).decode()
    return treelite.frontend.from_xgboost_json(text).dump_as_json(pretty_print=False).encode()


def catboost_json(n_leaves: int, n_trees: int, folder: Path, **params: Any) -> bytes:
    """As CatBoost writes it: a value a line, indented."""
    catboost = pytest.importorskip("catboost")
    model = catboost.CatBoostRegressor(
        iterations=TRAINED, verbose=False, thread_count=1, allow_writing_files=False, **params
    )
    model.fit(*rows()).save_model(str(folder / "small.json"), format="json")
    document = json.loads((folder / "small.json").read_bytes())
    key = "trees" if "trees" in document else "oblivious_trees"
    document[key] = [document[key][i % TRAINED] for i in range(n_trees)]
    return json.dumps(document, indent=2).encode()


def catboost_symmetric(n_leaves: int, n_trees: int, folder: Path) -> bytes:
    return catboost_json(n_leaves, n_trees, folder, depth=int(np.log2(n_leaves)))


def catboost_nested(n_leaves: int, n_trees: int, folder: Path) -> bytes:
    return catboost_json(n_leaves, n_trees, folder, grow_policy="Lossguide", max_leaves=n_leaves)


#: Format -> what makes a file of it, and the number of trees for some 10 MB of 2 and of 64 leaves each.
FILES: dict[str, tuple[Callable[..., bytes], int, int]] = {
    "LightGBM": (lightgbm_text, 28_000, 1_800),
    "XGBoost JSON": (xgboost_json, 20_000, 1_400),
    "XGBoost UBJSON": (xgboost_ubjson, 13_000, 2_000),
    "CatBoost symmetric": (catboost_symmetric, 28_000, 3_200),
    "CatBoost nested": (catboost_nested, 28_000, 450),
    "Treelite": (treelite_json, 25_000, 600),
}


@pytest.mark.parametrize("n_leaves", [2, 64])
@pytest.mark.parametrize("name", FILES)
def test_loading_takes_at_most_six_times_the_file(tmp_path: Path, name: str, n_leaves: int) -> None:
    make, of_two, of_many = FILES[name]
    n_trees = of_two if n_leaves == 2 else of_many
    path = tmp_path / "model"
    path.write_bytes(make(n_leaves, n_trees, *([tmp_path] if name.startswith("CatBoost") else [])))
    assert 6e6 < path.stat().st_size < 20e6, "the file is too small or too large to tell"
    trees, times = peak(path)
    assert trees == n_trees
    assert times <= 6, f"{times:.1f} times the file"


#: Most memory that a hostile file may make its reader take: what Python's lists and dicts take for their brackets.
HOSTILE_TIMES = 64
SIZE = 2 << 20
IN_JSON = b'{"learner":{"a":[%s0]}}'
IN_UBJSON = b"{U\x07learner["
HOSTILE = {
    "JSON, empty arrays": IN_JSON % (b"[]," * (SIZE // 3)),
    "JSON, empty objects": IN_JSON % (b"{}," * (SIZE // 3)),
    "JSON, nested arrays": IN_JSON % ((b"[" * 400 + b"]" * 400 + b",") * (SIZE // 801)),
    "JSON, small objects": IN_JSON % (b'{"a":1},' * (SIZE // 8)),
    "JSON, trees that are none": IN_JSON % (b'{"left_children":[1]},' * (SIZE // 22)),
    "JSON, splits that are none": b'{"trees":[%s0]}' % (b'{"split_type":[]},' * (SIZE // 18)),
    "JSON, nodes that are none": b'{"task_type":[%s0]}' % (b'{"nodes":[0]},' * (SIZE // 14)),
    "UBJSON, empty arrays": IN_UBJSON + b"[]" * (SIZE // 2) + b"]}",
    "UBJSON, empty objects": IN_UBJSON + b"{}" * (SIZE // 2) + b"]}",
    "UBJSON, nested arrays": IN_UBJSON + (b"[" * 60 + b"]" * 60) * (SIZE // 120) + b"]}",
    "UBJSON, typed arrays of none": IN_UBJSON + b"[$D#U\0" * (SIZE // 6) + b"]}",
    "UBJSON, typed arrays of one": IN_UBJSON + b"[$U#U\x01\x07" * (SIZE // 7) + b"]}",
    "UBJSON, constants": IN_UBJSON + b"Z" * SIZE + b"]}",
    "LightGBM, lines": b"tree\nversion=v4\nTree=0\n" + b"a=1\n" * (SIZE // 4) + b"end of trees\n",
    "LightGBM, spaces": b"tree\nmax_feature_idx=%d\nfeature_names=" % SIZE + b" " * SIZE + b"\nTree=0\nend of trees\n",
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_takes_a_bounded_multiple_of_its_size(tmp_path: Path, case: str) -> None:
    path = tmp_path / "model"
    path.write_bytes(HOSTILE[case])
    trees, times = peak(path)
    assert trees == -1
    assert times <= HOSTILE_TIMES, f"{times:.1f} times the file"


def within(seconds: float, code: str) -> None:
    """Run code that takes a second or two, and took minutes where time grew out of all proportion."""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=seconds)


def test_no_ops_are_skipped_at_once() -> None:
    within(60, "from gpuqs.cpu_fallback.ubjson import decode; assert decode(b'[' + b'N' * (256 << 20) + b']') == []")


def test_duplicates_among_many_columns_are_found_at_once(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "rows.csv"
    names = [f"c{i}" for i in range(150_000)]
    path.write_text(",".join([*names, "c7", "c7"]) + "\n")
    native.write(random_forest(np.random.default_rng(1)), tmp_path / "model")
    code = f"""
import gpuqs
from gpuqs.readers import open_documents
try:
    open_documents({str(path)!r}, gpuqs.load({str(tmp_path / "model")!r}).forest)
except gpuqs.errors.InputError as error:
    assert "several columns are named 'c7'" in str(error), error
else:
    raise AssertionError("not refused")
"""
    within(60, code)
