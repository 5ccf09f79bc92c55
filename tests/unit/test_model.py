"""Model: what `predict` returns, accepts and refuses; threads; pickling."""

from __future__ import annotations

import pickle
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from agreement import able, on_cpu
from forests import probing_documents, random_forest
from interpreter_lock import lets_others_run, needs_the_lock

import gpuqs
from gpuqs import chunks, cpu_fallback
from gpuqs.arrays import coded_rows
from gpuqs.chooser import Chooser
from gpuqs.engines import ENGINES, LEFT_OUT
from gpuqs.errors import DeviceError, GpuqsError, InputError, UnsupportedModelError
from gpuqs.model import Model
from gpuqs.schema import Schema
from gpuqs.scoring import Scoring


def make(**fields: object) -> Model:
    return Model(random_forest(np.random.default_rng(0), n_trees=20, n_thresholds=100, **fields))


MODEL = make()
X = probing_documents(np.random.default_rng(1), MODEL.forest, 200)
EXPECTED = MODEL.predict(X, "raw", engine="reference")


def test_what_a_model_says_of_itself() -> None:
    model = make(schema=Schema(tuple("abcdefgh")), source="LightGBM 4", objective="lambdarank", n_outputs=2)
    assert (model.n_features, model.n_trees, model.n_outputs) == (8, 20, 2)
    assert model.n_leaves == model.forest.n_leaves
    assert model.feature_names == tuple("abcdefgh")
    for part in ("LightGBM 4", "lambdarank", "20 trees", "8 features", "2 outputs"):
        assert part in repr(model)


# -- outputs ----------------------------------------------------------------------------------

OUTPUTS = [
    ({}, "float64", 1),
    ({"sum_dtype": "float32"}, "float32", 1),
    ({"n_outputs": 3}, "float64", 3),
    ({"n_outputs": 3, "vector_leaves": True, "sum_dtype": "float32"}, "float32", 3),
]


@pytest.mark.parametrize(("fields", "dtype", "width"), OUTPUTS)
@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_shapes_and_types(fields: dict[str, Any], dtype: str, width: int, precision: str) -> None:
    model = make(**fields)
    for n in (0, 1, 3, 200):
        for output in ("value", "raw"):
            got = model.predict(X[:n], output, precision=precision)
            assert got.dtype == dtype
            assert got.shape == ((n,) if width == 1 else (n, width))
        leaves = model.predict(X[:n], "leaf", precision=precision)
        assert (leaves.dtype, leaves.shape) == (np.int32, (n, 20))


LINKED = [
    ({"link": "identity"}, 20),
    ({"link": "sigmoid", "link_scale": 0.5}, 20),
    ({"link": "exp"}, 20),
    ({"link": "softmax", "n_outputs": 4}, 5),
    ({"link": "ova_sigmoid", "n_outputs": 4}, 5),
    ({"link": "softmax", "n_outputs": 4, "vector_leaves": True}, 20),
]


@pytest.mark.parametrize("sum_dtype", ["float64", "float32"])
@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize(("fields", "trees_per_output"), LINKED, ids=str)
def test_values_are_the_links_of_raw_scores_or_of_their_averages(
    fields: dict[str, Any], trees_per_output: int, average: bool, sum_dtype: str
) -> None:
    model = make(average=average, sum_dtype=sum_dtype, **fields)
    raw = model.predict(X, "raw")
    if average:
        raw = raw / raw.dtype.type(trees_per_output)
    scale = raw.dtype.type(fields.get("link_scale", 1))
    shifted = np.exp(raw - raw.max(axis=1, keepdims=True)) if raw.ndim == 2 else raw
    expected = {
        "identity": lambda: raw,
        "sigmoid": lambda: 1 / (1 + np.exp(-scale * raw)),
        "ova_sigmoid": lambda: 1 / (1 + np.exp(-scale * raw)),
        "exp": lambda: np.exp(raw),
        "softmax": lambda: shifted / shifted.sum(axis=1, keepdims=True),
    }[fields["link"]]()
    for precision in ("exact", "fast"):
        values = model.predict(X, precision=precision)
        assert values.dtype == sum_dtype
        np.testing.assert_allclose(values, expected, rtol=1e-5 if precision == "fast" else 1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "fields", [{}, {"n_outputs": 3, "sum_dtype": "float32"}, {"n_outputs": 3, "vector_leaves": True}], ids=str
)
def test_values_of_each_tree_add_up(fields: dict[str, Any]) -> None:
    rng = np.random.default_rng(5)
    model = make(tree_weight=rng.normal(size=20), **fields)
    forest = model.forest
    for engine in able(model):
        each = model.predict(X, "per_tree", engine=engine)
        assert each.dtype == forest.sum_dtype
        assert each.shape == ((200, 20, 3) if forest.vector_leaves else (200, 20))
        sums = np.tile(forest.base_score.astype(forest.sum_dtype), (200, 1))
        for tree in range(20):
            if forest.vector_leaves:
                sums += each[:, tree]
            else:
                sums[:, forest.tree_output[tree]] += each[:, tree]
        np.testing.assert_array_equal(sums.reshape(model.predict(X, "raw").shape), model.predict(X, "raw"))
    np.testing.assert_array_equal(model.predict(X, "per_tree", trees=slice(3, 9)), each[:, 3:9])
    with pytest.raises(ValueError, match="precision='exact'"):
        model.predict(X, "per_tree", precision="fast")


def test_classes() -> None:
    binary = make(link="sigmoid")
    np.testing.assert_array_equal(binary.predict(X, "class"), (binary.predict(X) > 0.5).astype(int))
    named = make(link="sigmoid", classes=("no", "yes"))
    assert set(named.predict(X, "class")) == {"no", "yes"}
    np.testing.assert_array_equal(named.predict(X, "class") == "yes", binary.predict(X, "class") == 1)
    several = make(link="softmax", n_outputs=3, classes=(7, 5, 9), average=True)
    likeliest = several.predict(X).argmax(axis=1)
    np.testing.assert_array_equal(several.predict(X, "class"), np.array([7, 5, 9])[likeliest])
    labels = make(link="sigmoid", n_outputs=3)
    np.testing.assert_array_equal(labels.predict(X, "class"), labels.predict(X) > 0.5)
    out = np.empty(200, int)
    assert several.predict(X, "class", out=out) is out
    assert several.predict(X[:0], "class").shape == (0,)
    raw = several.predict(X, "raw")
    by_raw = make(link="softmax", n_outputs=3, average=True, class_rule="raw")
    np.testing.assert_array_equal(by_raw.predict(X, "class"), raw.argmax(axis=1))
    for rule, at_zero in (("value", 0), ("raw", 0), ("raw_or_zero", 1)):
        one_leaf = random_forest(np.random.default_rng(0), max_leaves=1, n_trees=0, link="sigmoid", class_rule=rule)
        for base, number in ((0.0, at_zero), (1e-300, int(rule != "value")), (-1e-300, 0), (1.0, 1)):
            got = Model(replace(one_leaf, base_score=np.array([base]))).predict(X[:1], "class")
            assert got.tolist() == [number]
    with pytest.raises(ValueError, match="for classifiers; this model's scores are of objective 'lambdarank'"):
        make(objective="lambdarank").predict(X, "class")


@pytest.mark.parametrize("numbers", ["of nodes", "shuffled", "far apart"])
@pytest.mark.parametrize("fields", [{}, {"n_outputs": 3, "vector_leaves": True, "sum_dtype": "float32"}], ids=str)
def test_values_of_each_tree_are_those_of_the_leaves_numbers(fields: dict[str, Any], numbers: str) -> None:
    """For any leaf numbering of a library, and for more documents and trees than are looked up at a time."""
    rng = np.random.default_rng(6)
    forest = make(tree_weight=rng.choice([0.1, 1.0], 20), **fields).forest
    ids = [
        rng.permutation({"of nodes": 2 * n - 1, "shuffled": n, "far apart": 1 << 20}[numbers])[:n]
        for n in np.diff(forest.leaf_offsets).tolist()
    ]
    model = Model(replace(forest, leaf_id=np.concatenate(ids).astype(np.int32)))
    X = rng.normal(size=(2000, forest.n_features))
    leaf, each = model.predict(X, "leaf"), model.predict(X, "per_tree")
    for tree, of_tree in enumerate(ids):
        place = {number: forest.leaf_offsets[tree] + i for i, number in enumerate(of_tree.tolist())}
        found = forest.weighted_leaves()[[place[number] for number in leaf[:, tree].tolist()]]
        np.testing.assert_array_equal(each[:, tree].reshape(found.shape), found)


def test_no_trees_have_no_values() -> None:
    model = Model(random_forest(np.random.default_rng(0), n_trees=0))
    assert model.predict(np.zeros((3, model.n_features)), "per_tree").shape == (3, 0)


@pytest.mark.parametrize("base_first", [True, False])
@pytest.mark.parametrize("fields", [{}, {"n_outputs": 3, "sum_dtype": "float32"}], ids=str)
def test_base_margins_take_the_place_of_the_base_score(fields: dict[str, Any], base_first: bool) -> None:
    model = make(base_first=base_first, **fields)
    forest = model.forest
    margin = np.random.default_rng(6).normal(size=(200, forest.n_outputs)).astype(forest.sum_dtype)
    each = model.predict(X, "per_tree")
    expected = margin.copy() if base_first else np.zeros_like(margin)
    for tree in range(20):
        expected[:, forest.tree_output[tree]] += each[:, tree]
    expected = expected if base_first else expected + margin
    shaped = expected.reshape(model.predict(X, "raw").shape)
    for engine in able(model):
        got = model.predict(X, "raw", base_margin=margin, engine=engine)
        np.testing.assert_array_equal(got, shaped)
    fast = model.predict(X, "raw", base_margin=margin, precision="fast")
    np.testing.assert_allclose(fast, shaped, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(model.predict(X, "raw", base_margin=margin.ravel().tolist()), shaped)
    with pytest.raises(InputError, match=r"base_margin has shape \(3,\), not \(200, "):
        model.predict(X, base_margin=margin[:3, 0])
    for wrong in (margin[:3], margin[0, 0], np.array(["x"] * 200), margin.astype(complex)):
        with pytest.raises(InputError, match="base_margin"):
            model.predict(X, base_margin=wrong)


def test_leaves_are_the_source_librarys_numbers() -> None:
    ids = np.random.default_rng(2).permutation(10_000)
    forest = random_forest(np.random.default_rng(0), max_leaves=16, shape="complete")
    position = Model(forest).predict(X, "leaf")
    numbered = Model(
        random_forest(
            np.random.default_rng(0),
            max_leaves=16,
            shape="complete",
            leaf_id=ids[: len(forest.leaf_value)].astype(np.int32),
        )
    )
    expected = ids[position + forest.leaf_offsets[:-1]]
    for engine in able(numbered):
        np.testing.assert_array_equal(numbered.predict(X, "leaf", engine=engine), expected)


def test_a_forest_without_trees_scores_its_base() -> None:
    model = Model(random_forest(np.random.default_rng(0), n_trees=0, n_outputs=2))
    for engine, reason in on_cpu(model).items():
        if reason is None:
            got = model.predict(X, "raw", engine=engine)
            np.testing.assert_array_equal(got, np.tile(model.forest.base_score, (len(X), 1)))
            assert model.predict(X, "leaf", engine=engine).shape == (len(X), 0)


# -- options ----------------------------------------------------------------------------------


def test_out_is_filled_and_given_back(isa: str) -> None:
    for output, dtype, shape in (
        ("raw", np.float64, (200,)),
        ("value", np.float64, (200,)),
        ("leaf", np.int32, (200, 20)),
    ):
        for engine, reason in on_cpu(MODEL).items():
            for precision in ("exact", "fast"):
                if reason is not None:
                    continue
                out = np.full(shape, 77, dtype)
                got = MODEL.predict(X, output, out=out, engine=engine, precision=precision)
                assert got is out
                np.testing.assert_array_equal(out, MODEL.predict(X, output, engine=engine, precision=precision))


def test_out_may_be_part_of_a_larger_array() -> None:
    large = np.full(300, 77.0)
    MODEL.predict(X, "raw", out=large[50:250])
    np.testing.assert_array_equal(large[50:250], EXPECTED)
    assert (large[:50] == 77).all() and (large[250:] == 77).all()


def read_only(n: int) -> np.ndarray:
    out = np.zeros(n)
    out.flags.writeable = False
    return out


@pytest.mark.parametrize(
    "out",
    [
        np.zeros(199),
        np.zeros((200, 1)),
        np.zeros(200, np.float32),
        np.zeros(200, np.int64),
        np.zeros(400)[::2],
        np.zeros(200)[::-1],
        np.zeros(200, ">f8"),
        np.zeros(1601, np.uint8)[1:].view(np.float64),
        read_only(200),
        [0.0] * 200,
    ],
)
def test_an_out_that_does_not_fit_is_refused(out: Any) -> None:
    with pytest.raises(InputError, match=r"out must be a .*C-contiguous float64 array of shape \(200,\)"):
        MODEL.predict(X, out=out)


def test_out_of_several_outputs() -> None:
    model = make(n_outputs=3)
    with pytest.raises(InputError, match=r"shape \(200, 3\)"):
        model.predict(X, out=np.zeros((3, 200)).T)
    with pytest.raises(InputError, match=r"int32 array of shape \(200, 20\)"):
        model.predict(X, "leaf", out=np.zeros((200, 20)))
    out = np.zeros((200, 3))
    assert model.predict(X, "raw", out=out) is out
    np.testing.assert_array_equal(out, model.predict(X, "raw", engine="reference"))


@pytest.mark.parametrize("n_threads", [1, 2, 3, 64])
def test_any_number_of_threads(n_threads: int) -> None:
    for engine, reason in on_cpu(MODEL).items():
        if reason is None:
            got = MODEL.predict(X, "raw", engine=engine, n_threads=n_threads)
            np.testing.assert_array_equal(got, EXPECTED)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"engine": "quickscorer"}, "engine must be 'auto' or one of .*bitslice.*'quickscorer'"),
        ({"engine": None}, "engine must be a name, such as 'auto', not None"),
        ({"engine": []}, "engine must be a name, such as 'auto', not "),
        ({"engine": 5, "n_threads": 1}, "engine must be a name, such as 'auto', not 5"),
        ({"precision": "double"}, "precision must be 'exact' or 'fast', not 'double'"),
        ({"output": "proba"}, "output must be one of .* 'per_tree', not 'proba'"),
    ],
)
@pytest.mark.parametrize("n", [0, 200])
def test_wrong_options(options: dict[str, Any], problem: str, n: int) -> None:
    with pytest.raises(ValueError, match=problem):
        MODEL.predict(X[:n], **options)


def test_engines_that_cannot_run_the_model_say_why() -> None:
    model = make(max_leaves=200, shape="chain")
    reasons = model.engines()
    assert list(reasons) == list(ENGINES)
    for engine in ("rankwalk", *({"qs", "vqs", "bwqs"} - LEFT_OUT.keys())):
        assert "200 leaves" in str(reasons[engine])
        with pytest.raises(UnsupportedModelError, match=f"engine '{engine}' cannot run this model: .*200 leaves"):
            model.predict(X, engine=engine)
    assert reasons["walk"] is None and reasons["reference"] is None
    expected = model.predict(X, "raw", engine="reference")
    for n in (1, 5, 200):
        np.testing.assert_array_equal(model.predict(X[:n], "raw"), expected[:n])


def test_auto_is_one_of_the_engines_that_can() -> None:
    for fields in ({}, {"max_leaves": 100}, {"max_leaves": 5000, "shape": "complete"}):
        model = make(**fields)
        for n in (0, 1, 2, 10, 63, 64, 100_000):
            assert model.engines()[model.engine_for(n)] is None
            assert model.engine_for(n) != "reference"


def test_an_instruction_set_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUQS_ISA", "mmx")
    with pytest.raises(DeviceError, match=r"GPUQS_ISA=mmx is not one .*portable"):
        MODEL.predict(X)


def test_errors_are_of_the_family_and_of_pythons_own() -> None:
    with pytest.raises(GpuqsError):
        MODEL.predict(X[:, :2])
    with pytest.raises(ValueError):
        MODEL.predict(X[:, :2])


# -- chunks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n_outputs", [1, 3])
def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch, n_outputs: int) -> None:
    model = make(n_outputs=n_outputs, link="sigmoid")
    documents = probing_documents(np.random.default_rng(3), model.forest, 5000)
    whole = {output: model.predict(documents, output) for output in ("value", "raw", "leaf")}
    monkeypatch.setattr(chunks, "CHUNK_WORK", 1)
    chunked = make(n_outputs=n_outputs, link="sigmoid")
    for output, expected in whole.items():
        for source in (documents, documents.astype(">f8")):
            np.testing.assert_array_equal(chunked.predict(source, output), expected)


def test_chunks_of_deep_trees_are_smaller() -> None:
    """Smaller chunks keep signals checked equally often; only chunks that are copied are limited in bytes."""
    documents = coded_rows(np.zeros((10**7, 8)))
    ordinary, deep = (random_forest(np.random.default_rng(0), n_trees=60, max_leaves=n) for n in (64, 20_000))
    for threads in (1, 3):
        assert chunks.rows_for_cpu(documents, ordinary, n_threads=threads) == threads * (10**8 // 132) // 1024 * 1024
        copied = documents._replace(copied=True)
        assert chunks.rows_for_cpu(copied, ordinary, n_threads=threads) == (16 << 20) // 64
        rows = chunks.rows_for_cpu(documents, deep, n_threads=threads)
        assert rows * min(int(deep.tree_depth.sum()), deep.n_nodes // 256) <= 10**8 * threads


@pytest.mark.parametrize("output", ["value", "leaf"])
def test_chunks_of_slow_engines_are_smaller(output: Literal["value", "leaf"], monkeypatch: pytest.MonkeyPatch) -> None:
    model, scored = make(), []
    X = np.random.default_rng(0).normal(size=(20_000, model.n_features))
    want, fill = model.predict(X, output, engine="walk"), Scoring.fill

    def noted(self: Scoring, documents: np.ndarray, *rest: Any) -> None:
        scored.append(len(documents))
        fill(self, documents, *rest)

    monkeypatch.setattr(Scoring, "fill", noted)
    monkeypatch.setattr("gpuqs.cpu_fallback.default_threads", lambda: 2)
    for most, n_threads, each in ((1e9, 1, 20_000), (1.0, 1, 4096), (1.0, 2, 8192), (1.0, 7, 8192)):
        scored.clear()
        monkeypatch.setattr(chunks, "MAX_WAIT", most)
        np.testing.assert_array_equal(model.predict(X, output, engine="walk", n_threads=n_threads), want)
        assert max(scored) == each and sum(scored) == 20_000


def test_slow_calls_are_cut_by_their_predicted_time() -> None:
    assert chunks.rows_within(2 * chunks.MAX_WAIT, 100_000, 2) == 49_152
    assert chunks.rows_within(0.5 * chunks.MAX_WAIT, 100_000, 2) == chunks.rows_within(0.0, 100_000, 2) == 100_000
    assert chunks.rows_within(100 * chunks.MAX_WAIT, 100_000, 2) == 2 * chunks.MIN_DEEP
    assert chunks.rows_within(100 * chunks.MAX_WAIT, 1000, 2) == 1000


@pytest.mark.parametrize("output", ["value", "leaf"])
def test_the_predicted_time_is_of_a_threads_share(
    output: Literal["value", "leaf"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And includes the time of writing leaf numbers; the reference, of unknown cost, uses one thread."""
    model, asked = make(), []
    X = np.random.default_rng(0).normal(size=(5000, model.n_features))
    monkeypatch.setattr("gpuqs.calls.rows_within", lambda *of_call: asked.append(of_call) or of_call[1])
    monkeypatch.setattr(Chooser, "warm_cost", lambda self, name, n, machine: None if name == "reference" else float(n))
    monkeypatch.setattr("gpuqs.cpu_fallback.default_threads", lambda: 2)
    for engine in ("walk", "reference"):
        model.predict(X, output, engine=engine, n_threads=2)
    ((us, rows, n_threads),) = asked
    leaves = 1e-3 * model.n_trees if output == "leaf" else 0.0
    assert n_threads == 2 and us == pytest.approx(rows / 2 * (1 + leaves))


# -- threads and processes --------------------------------------------------------------------


@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_many_python_threads_at_once(precision: str) -> None:
    """All threads build and use every engine's program together, with frequent thread switches."""
    model = make()
    expected = {n: MODEL.predict(X[:n], "raw", engine="reference", precision=precision) for n in (1, 50, 200)}
    leaves = MODEL.predict(X, "leaf", engine="reference")
    engines = ["auto", *able(model)]
    start = threading.Barrier(8)

    def work(seed: int) -> int:
        rng = np.random.default_rng(seed)
        start.wait()
        for _ in range(30):
            engine = engines[rng.integers(len(engines))]
            n = [1, 50, 200][rng.integers(3)]
            n_threads = int(rng.integers(1, 4))
            got = model.predict(X[:n], "raw", engine=engine, precision=precision, n_threads=n_threads)
            np.testing.assert_array_equal(got, expected[n])
            np.testing.assert_array_equal(model.predict(X, "leaf", engine=engine), leaves)
        return seed

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            assert sorted(pool.map(work, range(8))) == list(range(8))
    finally:
        sys.setswitchinterval(interval)


@needs_the_lock
def test_the_gil_is_released() -> None:
    documents = np.tile(X, (500, 1))
    MODEL.predict(documents[:9], engine="walk")
    assert lets_others_run(lambda: MODEL.predict(documents, engine="walk", n_threads=1))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickling(protocol: int) -> None:
    model = make(schema=Schema(tuple("abcdefgh")))
    model.predict(X)  # compiled programs are not pickled
    copy = pickle.loads(pickle.dumps(model, protocol))
    assert copy.feature_names == model.feature_names
    np.testing.assert_array_equal(copy.predict(X, "raw"), EXPECTED)
    assert not copy.forest.threshold.flags.writeable


def test_a_model_outlives_what_it_was_made_from() -> None:
    forest = random_forest(np.random.default_rng(0), n_trees=20, n_thresholds=100)
    model = Model(forest)
    predict = model.predict
    predict(X)
    del forest, model
    np.testing.assert_array_equal(predict(X, "raw"), EXPECTED)


def test_instruction_sets_do_not_share_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make()
    for isa in cpu_fallback.available_isas() * 2:
        monkeypatch.setenv("GPUQS_ISA", isa)
        np.testing.assert_array_equal(model.predict(X, "raw"), EXPECTED)


def test_a_saved_model_scores_alike(tmp_path: Path) -> None:
    model = make(schema=Schema(tuple("abcdefgh"), (None,) * 7 + (("x", 2),)), n_outputs=3, link="softmax")
    model.save(tmp_path / "model.gpuqs")
    again = gpuqs.load(tmp_path / "model.gpuqs")
    assert repr(again) == repr(model)
    assert again.feature_names == model.feature_names
    for output in ("value", "raw", "class", "leaf", "per_tree"):
        np.testing.assert_array_equal(again.predict(X, output), model.predict(X, output))


def test_the_stages_of_bitslice_are_timed() -> None:
    program = MODEL._programs.get("bitslice", "exact", None)
    sums = np.empty((len(X), program.values.n_outputs), program.values.sum_dtype)
    seconds = program.scorer.time_stages(program.bound, X, sums)
    assert list(seconds) == ["rank coding", "predicates", "programs", "values"]
    assert all(0 < part < 60 for part in seconds.values())
    scored = np.empty_like(sums)
    program.scorer.score(program.bound, X, scored, 1)
    np.testing.assert_array_equal(sums, scored)  # the loop that is timed is the one that scores
