"""bench/libraries.py: every peer agrees with the library that trained the model, or says why it is left out."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from catboost import CatBoostRegressor
from sklearn.ensemble import RandomForestRegressor

import gpuqs

BENCH = Path(__file__).parents[2] / "bench"
if str(BENCH) not in sys.path:
    sys.path.append(str(BENCH))

import energy  # noqa: E402
import libraries  # noqa: E402
from pages import front  # noqa: E402
from peers import base, compiled, ydf  # noqa: E402
from peers.base import Contender, OfThreads, Peer, Source  # noqa: E402
from peers.registry import PEERS  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.normal(size=(300, 6)).astype(np.float32)
Y = X[:, 0] * X[:, 1] + np.sin(3 * X[:, 2])
ROW_180 = X[180]
EFFORT = libraries.Effort(sizes=(1, 30), rounds=3, budget=0.01, longest=1.0)


def lightgbm_source(folder: Path) -> Source:
    """A ranker as in the bench, so that converters see its objective."""
    data = lgb.Dataset(X, (Y > 0).astype(int), group=[30] * 10)
    parameters = {"objective": "lambdarank", "num_leaves": 6, "verbose": -1, "num_threads": 1}
    booster = lgb.train(parameters, data, 5)
    booster.save_model(folder / "model.txt")
    return Source("a LightGBM ranker", "LightGBM", booster, folder / "model.txt", X, gpuqs.from_model(booster))


def xgboost_source(folder: Path) -> Source:
    qid, grade = np.repeat(np.arange(10), 30), (Y > 0).astype(int)
    booster = xgb.train({"objective": "rank:ndcg", "nthread": 1}, xgb.DMatrix(X, grade, qid=qid), 5)
    booster.save_model(folder / "model.ubj")
    return Source("an XGBoost ranker", "XGBoost", booster, folder / "model.ubj", X, gpuqs.from_model(booster))


def catboost_source(folder: Path) -> Source:
    booster = CatBoostRegressor(iterations=5, depth=3, allow_writing_files=False, verbose=0, thread_count=1).fit(X, Y)
    return Source("a CatBoost model", "CatBoost", booster, None, X, gpuqs.from_model(booster))


def sklearn_source(folder: Path) -> Source:
    forest = RandomForestRegressor(5, random_state=0).fit(X, Y)
    return Source("a scikit-learn forest", "scikit-learn", forest, None, X, gpuqs.from_model(forest))


MAKE = {"LightGBM": lightgbm_source, "XGBoost": xgboost_source, "CatBoost": catboost_source,
        "scikit-learn": sklearn_source}  # fmt: skip
#: What each peer reads besides models of its own library, as listed on the page of benches.
READS = {
    "LightGBM": set(), "XGBoost": set(), "CatBoost": set(), "scikit-learn": set(), "ONNX Runtime": {*MAKE},
    "lleaves": {"LightGBM"}, "Treelite": {*MAKE} - {"CatBoost"}, "TL2cgen": {*MAKE} - {"CatBoost"}, "YDF": {*MAKE},
    "oneDAL": {*MAKE},
}  # fmt: skip


@pytest.fixture
def source(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Source:
    monkeypatch.setattr(compiled, "CACHE", tmp_path)  # what peers compile is not kept
    return MAKE[request.param](tmp_path)


every_source = pytest.mark.parametrize("source", MAKE, indirect=True)


@every_source
def test_each_peer_agrees_or_is_absent_or_refuses(source: Source) -> None:
    built, reasons = libraries.build(source, list(PEERS))
    contenders = libraries.contenders_of(source, built, 1)
    for name, peer in PEERS.items():
        if source.library in READS[name] | {name}:
            assert reasons.get(name) == peer.absent(), "built where it is installed"
        else:
            refused = "own models alone" in reasons[name] or "does not convert" in reasons[name]
            assert refused or reasons[name] == peer.absent() is not None
    expected = libraries.scores_of(contenders[source.library], X)
    found = libraries.agreement(source, contenders, expected)
    assert [label for label, each in found.items() if not each["agrees"]] == []
    assert found["gpuqs"]["same_bits"] and source.library in found
    assert ("gpuqs, encoded" in found) == (source.library == "CatBoost"), "beside CatBoost's Pool"


def fake(name: str, score: Any, refuses: Any = lambda source: None) -> Peer:
    def build(source: Source) -> OfThreads:
        return lambda n: {name: Contender(lambda X: score(source.model.predict(X, "raw")))}

    return Peer(name, "numpy", "numpy", "rows", "none", refuses, build)


@pytest.mark.parametrize("source", ["LightGBM"], indirect=True)
def test_a_run_tells_who_is_left_out_and_why(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(source: Source) -> OfThreads:
        raise ValueError("no such trees")

    peers = {
        "LightGBM": PEERS["LightGBM"],
        "right": fake("right", lambda scores: scores.astype(np.float32)),
        "wrong": fake("wrong", lambda scores: scores + 1),
        "absent": replace(fake("absent", None), package="a_package_that_is_not_there"),
        "choosy": fake("choosy", None, refuses=lambda source: "too many trees"),
        "broken": replace(fake("broken", None), build=cannot),
    }
    monkeypatch.setattr(libraries, "PEERS", peers)
    monkeypatch.setattr(libraries.cpu_fallback, "effective_threads", lambda n: 2)
    result = libraries.measure(source, list(peers), EFFORT, None)
    assert result["not_held"]["choosy"] == "too many trees"
    assert result["not_held"]["broken"] == "building failed: ValueError: no such trees"
    assert "`a_package_that_is_not_there` cannot be imported" in result["not_held"]["absent"]
    assert not result["agreement"]["wrong"]["agrees"]
    assert [(cell["documents"], cell["threads"]) for cell in result["cells"]] == [(1, 1), (30, 1), (1, 2), (30, 2)]
    timed = [set(cell["us_per_document"]) for cell in result["cells"]]
    assert timed[1:] == [{"LightGBM", "right", "gpuqs", "gpuqs, fast"}] * 3
    assert timed[0] == timed[1] | {"LightGBM, one row in C"}
    assert "right" in libraries.table(result) and "too many trees" in libraries.table(result)
    told = libraries.availability(["right", "absent"])
    assert told["right"]["version"] == np.__version__ and told["absent"]["version"] is None


@pytest.mark.parametrize("source", ["LightGBM"], indirect=True)
@pytest.mark.parametrize("label", ["gpuqs", "gpuqs, encoded"])
def test_one_wrong_bit_of_ours_ends_the_run(source: Source, label: str) -> None:
    built, _ = libraries.build(source, ["LightGBM"])
    contenders = libraries.contenders_of(source, built, 1)
    expected = libraries.scores_of(contenders["LightGBM"], X)
    contenders[label] = Contender(lambda X: np.nextafter(source.model.predict(X, "raw"), np.inf))
    with pytest.raises(SystemExit, match=f"{label} differs from the model's library"):
        libraries.agreement(source, contenders, expected)


def planted(source: Source, monkeypatch: pytest.MonkeyPatch, fault: Any) -> None:
    """Replace gpuqs's scores by ``fault(rows, threads, precision, scores)``."""
    right = source.model.predict

    def predict(X: Any, output: str = "value", **options: Any) -> np.ndarray:
        return fault(X, options.get("n_threads"), options.get("precision"), right(X, output, **options))

    monkeypatch.setattr(source.model, "predict", predict)
    monkeypatch.setattr(libraries.cpu_fallback, "effective_threads", lambda n: 2)
    monkeypatch.setattr(libraries, "PEERS", {"LightGBM": PEERS["LightGBM"]})


@pytest.mark.parametrize("source", ["LightGBM"], indirect=True)
@pytest.mark.parametrize(
    "fault",
    [
        lambda X, n_threads, precision, scores: scores + (len(X) == 1 and precision == "exact") * 1e-12,
        lambda X, n_threads, precision, scores: scores + (len(X) == 1 and precision == "fast") * 1.0,
        lambda X, n_threads, precision, scores: scores * (np.nan if len(X) == 1 and precision == "fast" else 1.0),
        lambda X, n_threads, precision, scores: scores[:-1] if len(X) == 30 else scores,
        lambda X, n_threads, precision, scores: scores + (len(X) == 30 and n_threads is None) * 1e-12,
        lambda X, n_threads, precision, scores: scores + (len(X) == 30 and bool((X[0] == ROW_180).all())) * 1e-12,
    ],
    ids=["one document", "fast", "NaN", "too few", "all threads", "a later batch"],
)
def test_a_fault_in_some_batches_alone_ends_the_run(
    source: Source, fault: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted(source, monkeypatch, fault)
    monkeypatch.setattr(libraries, "seconds_of", lambda contender, X, longest: 1e-5)  # ten or more calls
    with pytest.raises(SystemExit, match=r"documents a call: gpuqs(, fast)? differs"):
        libraries.measure(source, ["LightGBM"], EFFORT, None)


@pytest.mark.parametrize("source", ["LightGBM"], indirect=True)
def test_of_large_batches_the_last_is_compared(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    last = X[240:]
    planted(source, monkeypatch, lambda rows, n, p, scores: scores + (np.array_equal(rows, last) and p == "exact"))
    monkeypatch.setattr(libraries, "FEW", 10)
    monkeypatch.setattr(libraries, "seconds_of", lambda contender, X, longest: 1e-5)
    with pytest.raises(SystemExit, match="60 documents a call: gpuqs differs"):
        libraries.measure(source, ["LightGBM"], replace(EFFORT, sizes=(60,)), None)


@pytest.mark.parametrize("source", ["LightGBM"], indirect=True)
def test_a_peer_is_not_timed_where_its_scores_are_wrong(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = fake("wrong", lambda scores: scores + (len(scores) == 30))
    monkeypatch.setattr(libraries, "PEERS", {"LightGBM": PEERS["LightGBM"], "wrong": wrong})
    monkeypatch.setattr(libraries.cpu_fallback, "effective_threads", lambda n: 1)
    result = libraries.measure(source, ["wrong"], EFFORT, None)
    assert result["agreement"]["wrong"]["agrees"], "300 documents are scored rightly"
    assert ["wrong" in cell["us_per_document"] for cell in result["cells"]] == [True, False]
    told = "wrong with 30 documents per call (1 thread)"
    assert front.left_out(result)[told] == "not timed because scores differ by up to 1"


@pytest.mark.parametrize(
    ("once", "n", "calls", "documents"),
    [
        (0.001, 10, 20, 10),  # 20 calls fill the time
        (0.001, 1_000, 2, 1_000),  # one group holds all documents
        (1e-6, 1, 50, 1),
        (1.0, 1_000, 1, 1_000),  # longer than its share of the time, but still one call
        (4.0, 1_000, 1, 500),  # too long: fewer documents
        (40.0, 1_000, 1, 100),
        (4.0, 50, 1, 50),  # but not fewer than few
    ],
)
def test_calls_fill_their_time(
    monkeypatch: pytest.MonkeyPatch, once: float, n: int, calls: int, documents: int
) -> None:
    monkeypatch.setattr(libraries, "seconds_of", lambda contender, X, longest: once)
    rows = np.arange(2_000.0)[:, None]
    taken: list[np.ndarray] = []
    made = libraries.calls_of(Contender(lambda X: taken.append(X)), rows, n, longest=2.0, together=0.02)
    made()
    assert (len(made.batches), made.documents, made.scored) == (calls, documents, calls * documents)
    np.testing.assert_array_equal(np.concatenate(taken), rows[: calls * documents])


def test_large_forests_are_not_converted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    source = lightgbm_source(tmp_path)
    n_nodes = source.model.forest.n_nodes
    assert base.larger_than(source.model.forest, n_nodes, "slow") is None
    told = base.larger_than(source.model.forest, n_nodes - 1, "compiling would take hours")
    assert told == f"not tried beyond {n_nodes - 1} nodes: compiling would take hours (this forest has {n_nodes})"


def test_ydf_splits_where_the_forest_does() -> None:
    threshold = np.array([1.0, 0.1, -0.1, 1 + 1e-12, 0.0, 3e38])
    least = ydf.least_right(threshold)
    assert least.dtype == np.float32
    assert (least > threshold).all() and (np.nextafter(least, np.float32(-np.inf)) <= threshold).all()


def test_compiled_models_are_kept_by_content(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(compiled, "CACHE", tmp_path / "cache")
    assert compiled.kept(b"a", ".so") == compiled.kept(b"a", ".so") != compiled.kept(b"b", ".so")


# -- energy ------------------------------------------------------------------------------------------


def counters(folder: Path, readings: dict[str, int]) -> Path:
    for name, microjoules in readings.items():
        (folder / name).mkdir()
        (folder / name / "energy_uj").write_text(f"{microjoules}\n")
        (folder / name / "max_energy_range_uj").write_text("999\n")
    return folder


def test_energy_is_that_of_the_packages(tmp_path: Path) -> None:
    powercap = counters(tmp_path, {"intel-rapl:0": 100, "intel-rapl:0:0": 50, "intel-rapl:1": 990, "intel-rapl": 0})
    zones = energy.packages(powercap)
    assert [zone.file.parent.name for zone in zones] == ["intel-rapl:0", "intel-rapl:1"]

    def call() -> None:
        (powercap / "intel-rapl:0" / "energy_uj").write_text("130")
        (powercap / "intel-rapl:1" / "energy_uj").write_text("5")  # the counter wrapped around

    assert energy.microjoules(call, zones, seconds=0) == 30 + 15


def test_energy_that_cannot_be_read_has_a_reason(tmp_path: Path) -> None:
    with pytest.raises(energy.NoEnergy, match="has no RAPL counters"):
        energy.packages(tmp_path)
    (counters(tmp_path, {"intel-rapl:0": 1}) / "intel-rapl:0" / "energy_uj").unlink()
    with pytest.raises(energy.NoEnergy, match="energy_uj cannot be read: No such file"):
        energy.packages(tmp_path)
