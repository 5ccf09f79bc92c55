from __future__ import annotations

import io
import resource
from pathlib import Path

import numpy as np
import pytest
from agreement import on_cpu
from rich.console import Console

import gpuqs
from gpuqs.demo import bundled_model, mslr_feature_names, mslr_like, run_demo, save_demo
from gpuqs.demo.run import bundled_model_bytes, run_engines
from gpuqs.errors import InputError
from gpuqs.ranking import ndcg
from gpuqs.readers import open_documents


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuqs.demo.run._SECONDS_PER_ENGINE", 0.0)


def run(**options: int) -> tuple[bool, str]:
    text = io.StringIO()
    good = run_demo(Console(file=text, width=200), **options)
    return good, text.getvalue()


def test_the_set_looks_like_mslr() -> None:
    X, y, qid = mslr_like(80, 5)
    assert X.shape == (len(y), 136) and X.dtype == np.float32 and X.flags.c_contiguous
    assert np.isfinite(X).all()
    np.testing.assert_allclose(np.bincount(y) / len(y), [0.52, 0.32, 0.13, 0.02, 0.01], atol=1e-3)
    sizes = np.bincount(qid)[1:]
    assert len(sizes) == 80 and (np.diff(qid) >= 0).all()
    assert 5 <= sizes.min() < 60 and 200 < sizes.max() <= 600 and 95 < sizes.mean() < 145


def test_features_are_of_mslrs_kinds() -> None:
    X, _, qid = mslr_like(80, 5)
    names = mslr_feature_names()
    assert len(set(names)) == len(names) == 136
    column = dict(zip(names, X.T, strict=True))
    anchor_lengths = column["stream length, anchor"]
    assert 0.7 < (anchor_lengths == 0).mean() < 0.8  # most pages have no anchor text
    assert np.quantile(anchor_lengths, 0.999) > 20 * anchor_lengths.mean() > 0  # a heavy tail
    assert (anchor_lengths == np.floor(anchor_lengths)).all()
    ratio = column["covered query term ratio, body"]
    assert ratio.min() == 0 and ratio.max() == 1
    assert set(np.unique(column["boolean model, title"])) == {0, 1}
    assert set(np.unique(column["covered query terms, title"])) == set(range(7))
    assert column["language model, Dirichlet, body"].min() < 0
    idf = column["inverse document frequency, body"]
    assert (idf[1:] == idf[:-1])[qid[1:] == qid[:-1]].all()  # a feature of the query


def test_the_same_seed_gives_the_same_set() -> None:
    first, again, other = mslr_like(3, 7), mslr_like(3, 7), mslr_like(3, 8)
    for one, same in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, same)
    assert first[0].shape != other[0].shape or (first[0] != other[0]).any()


def test_at_least_one_query() -> None:
    with pytest.raises(ValueError, match="n_queries must be at least 1"):
        mslr_like(0)


def test_the_bundled_model_ranks_well() -> None:
    X, y, qid = mslr_like(40, 11)
    model = bundled_model()
    assert (model.n_features, model.n_trees, model.n_leaves) == (136, 300, 64)
    random = ndcg(y, np.random.default_rng(0).random(len(y)), qid)
    assert ndcg(y, model.predict(X), qid) > 0.5 > 0.25 > random


def test_the_bundled_model_is_lightgbms() -> None:
    import lightgbm

    X, _, _ = mslr_like(5, 12)
    booster = lightgbm.Booster(model_str=bundled_model_bytes().decode())
    np.testing.assert_array_equal(bundled_model().predict(X), booster.predict(X))


def test_every_engine_is_in_the_table() -> None:
    good, text = run(n_queries=2)
    assert good
    engines = [name for name, reason in on_cpu(bundled_model()).items() if reason is None]
    assert {"reference", "rankwalk", "bitslice"} <= set(engines)
    for engine in engines:
        row = next(line for line in text.splitlines() if line.startswith(f"│ {engine} "))
        assert row.rstrip().endswith(" 0 │")
    assert "gpuqs demo --save" in text


def test_a_wrong_engine_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    predict = gpuqs.Model.predict

    def wrong(self: gpuqs.Model, X: np.ndarray, **options: object) -> np.ndarray:
        scores = predict(self, X, **options)  # type: ignore[arg-type]
        if options["engine"] == "rankwalk":
            scores[-1] = np.nextafter(scores[-1], np.inf)
        return scores

    monkeypatch.setattr(gpuqs.Model, "predict", wrong)
    X, y, qid = mslr_like(1)
    differing = [r.engine for r in run_engines(bundled_model(), X, y, qid) if r.difference != 0]
    assert differing == ["rankwalk"]
    good, text = run(n_queries=1)
    assert not good
    assert "Scores differ from reference: rankwalk" in text


@pytest.mark.parametrize("name", ["model.txt", "documents.svm"])
def test_a_file_that_is_there_is_kept(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(InputError, match=f"{name} exists already"):
        save_demo(tmp_path, n_queries=1)
    assert (tmp_path / name).read_text() == "mine" and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize(("room", "name"), [(1000, "model.txt"), (3 << 20, "documents.svm")])
def test_no_room_for_a_file(tmp_path: Path, room: int, name: str) -> None:
    """A file that does not fit must not be left behind in part, nor the other file."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, before[1]))
    try:
        with pytest.raises(OSError, match=name):
            save_demo(tmp_path / "demo")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list((tmp_path / "demo").iterdir())


def test_saved_documents_score_as_those_in_memory(tmp_path: Path) -> None:
    model_path, documents = save_demo(tmp_path / "new" / "folder", n_queries=2, seed=3)
    X, y, qid = mslr_like(2, 3)
    model = gpuqs.load(model_path)
    chunks = list(open_documents(documents, model.forest))
    np.testing.assert_array_equal(np.concatenate([c.values for c in chunks]), X)
    np.testing.assert_array_equal(np.concatenate([c.labels for c in chunks]), y)
    np.testing.assert_array_equal(np.concatenate([c.queries for c in chunks]), qid)
    np.testing.assert_array_equal(model.predict(chunks[0].values), model.predict(X)[: len(chunks[0].values)])
