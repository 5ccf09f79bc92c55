"""Callers with other rounding, flushed denormals or raising NumPy get the same bits; later callers are unaffected."""

from __future__ import annotations

import ctypes
import platform
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forests import probing_documents, random_forest

import gpuqs
from gpuqs.cpu_fallback import lists
from gpuqs.forest import Forest
from gpuqs.model import Model
from gpuqs.readers import open_documents
from gpuqs.verify import verify

HERE = Path(__file__).parent
C = ctypes.CDLL(None)
#: At least the bytes of a `fenv_t`; the mode's offset in it, and its bits for up, toward zero, flushed denormals.
ENVIRONMENT = 512
MODES: dict[str, tuple[int, dict[str, int]]] = {
    "x86_64": (28, {"up": 0x4000, "toward zero": 0x6000, "flushed": 0x8040}),
    "aarch64": (0, {"up": 1 << 22, "toward zero": 3 << 22, "flushed": 1 << 24}),
}
AT, BITS = MODES.get(platform.machine(), (0, {}))

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or not BITS, reason="the floating-point environment is laid out otherwise here"
)


@contextmanager
def mode(name: str) -> Iterator[None]:
    """This thread's floating-point mode, set as a library does that is built with -ffast-math, or `fesetround`."""
    before, changed = ctypes.create_string_buffer(ENVIRONMENT), ctypes.create_string_buffer(ENVIRONMENT)
    C.fegetenv(before)
    C.fegetenv(changed)
    word = int.from_bytes(changed.raw[AT : AT + 4], "little") | BITS[name]
    changed[AT : AT + 4] = word.to_bytes(4, "little")
    C.fesetenv(changed)
    try:
        assert is_on(name)
        yield
        assert is_on(name), "the caller's mode was not given back"
    finally:
        C.fesetenv(before)


def is_on(name: str) -> bool:
    """Whether the mode is on, by the results of additions: 1 + 2^-60, 2^-1074 + 0, and -1 - 2^-60."""
    one, small, least = np.ones(1), np.full(1, 2.0**-60), np.full(1, 2.0**-1073)
    return {"up": (one + small)[0] > 1, "toward zero": (one - small)[0] < 1, "flushed": (least * one)[0] == 0}[name]


def with_denormals() -> Forest:
    """A forest with thresholds and leaf values below the smallest normal number."""
    types = {"input_dtype": "float32", "sum_dtype": "float32"}
    made = random_forest(np.random.default_rng(5), n_trees=40, max_leaves=20, n_thresholds=100, **types)
    threshold = made.threshold.copy()
    threshold[::2] = (threshold[::2] * np.float32(1e-40)).astype(np.float32)
    return replace(made, threshold=threshold, leaf_value=made.leaf_value * 1e-40, base_score=made.base_score * 1e-40)


FOREST = with_denormals()
with np.errstate(over="ignore"):
    X = probing_documents(np.random.default_rng(6), FOREST, 20_000).astype(np.float32)
CALLS: list[dict[str, Any]] = [
    {"X": X[:1]},
    {"X": X[:300], "output": "raw"},
    {"X": X, "n_threads": 1},
    {"X": X, "n_threads": 3, "precision": "fast"},
    {"X": X, "trees": slice(3, 30), "n_threads": 2},
    {"X": X[:5000], "engine": "walk"},
    {"X": X[:500], "engine": "reference", "output": "leaf"},
    {"X": X.astype(np.float64)[:900]},
]


def answers(model: Model) -> list[bytes]:
    encoded = model.predict(model.encode(X[:700]), "raw")
    return [model.predict(**call).tobytes() for call in CALLS] + [encoded.tobytes()]


def plain_rows() -> np.ndarray:
    """Rows [2000, 8] whose first column is denormal."""
    rows = np.random.default_rng(8).normal(size=(2000, 8))
    rows[:, 0] *= 1e-39
    return rows.astype(np.float32)


@pytest.mark.parametrize("name", BITS)
def test_scores_have_the_same_bits(name: str) -> None:
    model, used = Model(FOREST), Model(FOREST)
    want = answers(used)
    with mode(name):
        first, later = answers(model), answers(used)
    assert first == want and later == want
    assert answers(model) == want  # what was built in that mode is as usual


@pytest.mark.parametrize("name", BITS)
@pytest.mark.parametrize("library", ["lightgbm", "xgboost", "sklearn"])
def test_models_are_read_as_ever(name: str, library: str, tmp_path: Path) -> None:
    module = pytest.importorskip(library)
    rows = plain_rows()
    y = rows[:, 0] * 1e38 + rows[:, 1]
    if library == "lightgbm":
        source = module.train({"verbosity": -1}, module.Dataset(rows, y), 20).model_to_string().encode()
    elif library == "xgboost":
        source = bytes(module.train({}, module.DMatrix(rows, y), 20).save_raw("json"))
    else:
        from sklearn.ensemble import HistGradientBoostingRegressor

        source = HistGradientBoostingRegressor(max_iter=20).fit(rows, y)
    before, here, there = gpuqs.from_model(source), tmp_path / "here", tmp_path / "there"
    before.save(here, ready=True)
    with mode(name):
        gpuqs.from_model(source).save(there, ready=True)
        loaded = gpuqs.load(there)
    assert here.read_bytes() == there.read_bytes()
    assert loaded.predict(rows).tobytes() == before.predict(rows).tobytes()


@pytest.mark.parametrize("name", BITS)
def test_lists_with_categories_are_read_as_ever(name: str) -> None:
    catboost = pytest.importorskip("catboost")
    rows = plain_rows()[:400].astype(object)
    rows[:, 3] = np.random.default_rng(9).integers(0, 30, 400).astype(str)
    y = rows[:, 0].astype(float) * 1e38 + (rows[:, 3] > "2")
    quiet = {"iterations": 20, "verbose": 0, "allow_writing_files": False, "thread_count": 1}
    booster = catboost.CatBoostRegressor(**quiet).fit(rows.tolist(), y, cat_features=[3])
    rows[:, 1:3] *= 1 / 3  # float64, which float32 does not hold
    model, expected = gpuqs.from_model(booster), booster.predict(rows.tolist())
    assert model.forest.ctrs is not None and (model.predict(rows) == expected).all()
    is_category = (np.arange(8) == 3).astype(np.uint8)
    read = lists.rows_of_values(rows.tolist(), is_category, True)
    with mode(name):
        assert lists.rows_of_values(rows.tolist(), is_category, True).tobytes() == read.tobytes()
        for given in (rows.tolist(), rows, rows.tolist()[:1]):
            assert (model.predict(given) == expected[: len(given)]).all()


@pytest.mark.parametrize("name", BITS)
def test_threads_do_not_inherit_it(name: str) -> None:
    """Pool threads are started by the first call that needs them, in whatever mode, and serve all later calls."""
    script = (
        f"import sys; sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent)!r}]\n"
        "import threading; from test_float_mode import FOREST, Model, X, mode\n"
        "import numpy as np; model = Model(FOREST); want = model.predict(X, n_threads=1).tobytes()\n"
        "program = model._programs.get('walk', 'exact', None)\n"
        "def score():\n"
        f"    with mode({name!r}):\n"
        "        program.scorer.score(program.bound, X, np.empty((len(X), 1), np.float32), 4)\n"
        "first = threading.Thread(target=score); first.start(); first.join()\n"
        "for _ in range(5): assert model.predict(X, n_threads=4).tobytes() == want\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)


@pytest.mark.parametrize("name", BITS)
def test_tables_are_read_as_ever(name: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    path = tmp_path / "rows.csv"
    np.savetxt(path, plain_rows(), delimiter=",", fmt="%.9g", header=",".join(f"f{i}" for i in range(8)), comments="")
    forest = replace(FOREST, schema=replace(FOREST.schema, names=tuple(f"f{i}" for i in range(8))))

    def values() -> bytes:
        return b"".join(chunk.values.tobytes() for chunk in open_documents(path, forest))

    want = values()
    with mode(name):
        assert values() == want


@pytest.mark.parametrize("name", BITS)
def test_probabilities_of_wrapped_classifiers(name: str) -> None:
    ensemble = pytest.importorskip("sklearn.ensemble")
    from gpuqs.sklearn import wrap

    rows = plain_rows()
    classes = np.digitize(rows[:, 1], [-0.5, 0.5])
    for kind in ("HistGradientBoostingClassifier", "IsolationForest"):
        for labels in (classes, classes > 0):
            wrapped = wrap(getattr(ensemble, kind)(random_state=1).fit(rows, labels))
            calls = ("predict_proba",) if hasattr(wrapped, "predict_proba") else ("score_samples", "decision_function")
            for call in calls:
                want = getattr(wrapped, call)(rows).tobytes()
                with mode(name):
                    assert getattr(wrapped, call)(rows).tobytes() == want


def test_numpy_that_raises(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    xgb = pytest.importorskip("xgboost")
    small = plain_rows().astype(np.float64)
    small[::7] = 1e-50
    y = small[:, :2] * 1e-3
    booster = xgb.train(
        {"multi_strategy": "multi_output_tree", "tree_method": "hist"}, xgb.DMatrix(small, y), 3
    )
    path = tmp_path / "model.json"
    booster.save_model(path)
    expected = gpuqs.load(path).predict(small)
    with np.errstate(all="raise"):
        model = gpuqs.load(path)
        for rows in (small, pd.DataFrame(small), pd.DataFrame(small).astype("Float64"), small.tolist()):
            np.testing.assert_array_equal(model.predict(rows), expected)
        model.save(tmp_path / "saved", ready=True)
        certificate = verify(path, small[:100])
    assert certificate.ok
    softmax = random_forest(np.random.default_rng(1), n_outputs=3, link="softmax", source="scikit-learn 1.6")
    documents = probing_documents(np.random.default_rng(2), softmax, 100)
    for times in np.geomspace(10, 1e4, 40):  # exponentials that become denormal, alone or after the division
        far = Model(replace(softmax, leaf_value=softmax.leaf_value * times))
        with np.errstate(all="raise"):
            np.testing.assert_array_equal(far.predict(documents), far.predict(documents, engine=far.engine_for(100)))


@pytest.mark.skipif(platform.machine() != "x86_64", reason="FE_UPWARD has another number here")
@pytest.mark.parametrize("rounding", [0, 0x800, 0xC00], ids=["nearest", "up", "toward zero"])
def test_what_is_made_on_import(rounding: int) -> None:
    """The table of powers for CatBoost's exponential, whatever the mode of the first importer."""
    script = (
        f"import sys; sys.path[:0] = [{str(HERE.parent)!r}]\n"
        "import ctypes, numpy as np; C = ctypes.CDLL('libm.so.6')\n"
        f"assert C.fesetround({rounding}) == 0\n"
        "import gpuqs.cpu_fallback\n"
        "C.fesetround(0)\n"
        "from dataclasses import replace; from forests import random_forest; from gpuqs.model import Model\n"
        "forest = replace(random_forest(np.random.default_rng(5), n_trees=20), source='CatBoost', link='exp')\n"
        "X = np.random.default_rng(6).normal(size=(3000, forest.n_features))\n"
        "print(Model(forest).predict(X).tobytes().hex())\n"
    )
    asked = [sys.executable, "-c", script]
    done = subprocess.run(asked, check=True, timeout=120, capture_output=True, text=True)
    forest = replace(random_forest(np.random.default_rng(5), n_trees=20), source="CatBoost", link="exp")
    rows = np.random.default_rng(6).normal(size=(3000, forest.n_features))
    assert Model(forest).predict(rows).tobytes().hex() == done.stdout.strip()
