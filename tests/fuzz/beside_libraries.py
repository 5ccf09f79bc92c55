"""Damaged models that their own library accepts, too, must get its raw scores (for ONNX, its values).

    python -m fuzz.beside_libraries [FORMAT ...] [--inputs 1000] [--seed 1]

Libraries crash, hang and ask for all memory on damaged files, so they score each input in a separate child process.
Scores are compared on documents around the thresholds. An input that a library refuses is not a finding, whatever
gpuqs does with it: libraries differ in what else a file must hold.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import random
import re
import resource
import signal
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
from fuzz.checks import MAX_NODES, documents
from fuzz.seeds import format_of

import gpuqs
from gpuqs.errors import GpuqsError
from gpuqs.forest import Forest

#: Seconds and additional bytes of memory that a library may use.
SECONDS, BYTES = 5, 4 << 30
#: Largest relative difference allowed from CatBoost's scores.
CATBOOST = 1e-12


def _lightgbm(data: bytes, X: np.ndarray) -> np.ndarray:
    import lightgbm

    return lightgbm.Booster(model_str=data.decode()).predict(X, raw_score=True, num_threads=1)


def _xgboost(data: bytes, X: np.ndarray) -> np.ndarray:
    import xgboost

    booster = xgboost.Booster({"nthread": 1})
    booster.load_model(bytearray(data))
    kinds = booster.feature_types
    matrix = xgboost.DMatrix(X, feature_types=kinds, enable_categorical=True, nthread=1)
    return booster.predict(matrix, output_margin=True, validate_features=False)


def _catboost(data: bytes, X: np.ndarray) -> np.ndarray:
    import catboost

    model = catboost.CatBoost()
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        model.load_model(file.name, format="json" if data.lstrip()[:1] == b"{" else "cbm")
    return model.predict(X, prediction_type="RawFormulaVal", thread_count=1)


def _onnxruntime(data: bytes, X: np.ndarray) -> np.ndarray:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: X})[-1]


LIBRARIES: dict[str, Callable[[bytes, np.ndarray], np.ndarray]] = {
    "LightGBM text": _lightgbm,
    "XGBoost JSON": _xgboost,
    "XGBoost UBJSON": _xgboost,
    "CatBoost JSON": _catboost,
    "CatBoost binary": _catboost,
    "ONNX": _onnxruntime,
}


def outcome(name: str, data: bytes, rng: random.Random) -> str:
    """The outcome of one input: "refused", "not compared", "refused by the library", "same" or "differs"."""
    try:
        model = gpuqs.load(data)
    except GpuqsError:
        return "refused"
    forest = model.forest
    if name == "CatBoost JSON" and _read_otherwise(data):
        return "not compared"
    if forest.n_nodes > MAX_NODES or forest.n_features > 1_000:
        return "not compared"
    X = _that_it_takes(name, data, documents(forest, rng), forest, rng)
    theirs = scored_apart(LIBRARIES[name], data, X)
    if theirs is None:
        return "refused by the library"
    with np.errstate(all="ignore"):
        ours = model.predict(X, "value" if name == "ONNX" else "raw", n_threads=1)
        if name == "ONNX":  # ONNX returns two columns for one score, and rounds float64 scores
            theirs, ours = theirs.reshape(len(X), -1), ours.reshape(len(X), -1).astype(np.float32)
            theirs = theirs[:, -ours.shape[1] :]
        if theirs.size != ours.size:  # with a wrong num_class, LightGBM returns uninitialized memory
            return "not compared"
        return "same" if _alike(name, ours, theirs.reshape(ours.shape)) else "differs"


def _that_it_takes(name: str, data: bytes, X: np.ndarray, forest: Forest, rng: random.Random) -> np.ndarray:
    """The documents in the form that the library accepts."""
    if name.startswith("XGBoost"):  # XGBoost refuses infinite values
        X = np.nan_to_num(X.astype(np.float32), nan=np.nan, posinf=1e30, neginf=-1e30)
        for column in forest.tested_as_categories:
            X[:, column] = np.abs(np.where(X[:, column] < 1e3, X[:, column], 3)).round()
    elif name.startswith("CatBoost") and forest.schema.has_categories:
        categories = forest.schema.categories
        X = X[:, : len(categories)].astype(object)
        for column, known in enumerate(categories):
            if known is not None:  # strings, most of which `fuzz.seeds` trained with
                X[:, column] = [str(rng.randrange(42)) for _ in X]
    elif name == "ONNX":  # in the type of the graph's input
        import onnx

        graph = onnx.ModelProto.FromString(data).graph
        dtype = onnx.helper.tensor_dtype_to_np_dtype(graph.input[0].type.tensor_type.elem_type)
        with np.errstate(all="ignore"):
            X = (X if dtype.kind == "f" else np.nan_to_num(X).clip(-(2**31), 2**31 - 1)).astype(dtype)
    return X


def _alike(name: str, ours: np.ndarray, theirs: np.ndarray) -> bool:
    same = (ours == theirs) | ((ours != ours) & (theirs != theirs))
    if name.startswith("CatBoost"):  # CatBoost rounds the scale otherwise (README) and applies it after the sum
        same |= np.abs(ours - theirs) <= CATBOOST * np.abs(theirs) + np.finfo(float).tiny
        same |= np.isinf(ours) & (np.abs(theirs) > np.finfo(float).max / 1e3)
    return bool(same.all())


def _read_otherwise(data: bytes) -> bool:
    """Whether CatBoost's JSON reader reads as 0 what other parts of CatBoost wrote (README).

    This concerns the single bias of releases before 0.24, and integers beyond 2^53.
    """
    bias = json.loads(data).get("scale_and_bias", [1, []])[1]
    return not isinstance(bias, list) or re.search(rb"(?<![.\d])\d{16,}(?![.\deE])", data) is not None


def scored_apart(score: Callable[[bytes, np.ndarray], np.ndarray], data: bytes, X: np.ndarray) -> np.ndarray | None:
    """A library's scores from a child process; None if it raises, crashes, hangs or uses too much memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])  # AddressSanitizer has reserved terabytes
    most = pages * resource.getpagesize() + BYTES
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reader)
            nothing = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nothing, 1)
            os.dup2(nothing, 2)
            signal.alarm(SECONDS)
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
            with os.fdopen(writer, "wb") as answer:
                pickle.dump(np.asarray(score(data, X)), answer)
        finally:
            os._exit(0)  # skip the parent's cleanup
    os.close(writer)
    with os.fdopen(reader, "rb") as answer:
        told = answer.read()
    os.waitpid(child, 0)
    try:
        scores: np.ndarray = pickle.loads(told)
    except (EOFError, pickle.UnpicklingError):
        return None
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description="Damaged models: does gpuqs score them as their library does?")
    parser.add_argument("format", nargs="*", choices=[[], *LIBRARIES], help="the formats to run; all by default")
    parser.add_argument("--inputs", type=int, default=1000, help="of each format")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # a child would wait for threads that its parent had
    found = False
    for name in options.format or LIBRARIES:
        form, rng, outcomes = format_of(name), random.Random(options.seed), Counter[str]()
        for _ in range(options.inputs):
            data = form.damaged(rng)
            try:
                became = outcome(name, data, rng)
            except Exception as error:
                became = f"raises {type(error).__name__}"
            outcomes[became] += 1
            if became == "differs" or became.startswith("raises"):
                path = Path(f"{became} {name} {outcomes[became]}.bin".replace(" ", "-").lower())
                path.write_bytes(data)
                print(f"{name}: {path}", file=sys.stderr)
                found = True
        print(f"{name}: {', '.join(f'{n:,} {became}' for became, n in sorted(outcomes.items()))}", flush=True)
    sys.exit(found)


if __name__ == "__main__":
    main()
