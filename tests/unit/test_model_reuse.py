"""Model beyond one `predict`: ranges of trees, encoded documents, the choice of an engine."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import numpy as np
import pytest
from agreement import on_cpu
from forests import probing_documents, random_forest

from gpuqs import cpu_fallback
from gpuqs.errors import DeviceError, InputError, UnsupportedModelError
from gpuqs.model import Model
from gpuqs.threads import LEAF
from gpuqs.tuning.plan import Way


def make(**fields: object) -> Model:
    return Model(random_forest(np.random.default_rng(0), n_trees=20, n_thresholds=100, **fields))


MODEL = make()
X = probing_documents(np.random.default_rng(1), MODEL.forest, 200)
EXPECTED = MODEL.predict(X, "raw", engine="reference")


# -- ranges of trees --------------------------------------------------------------------------

RANGES = [slice(0, 5), slice(5, 20), slice(None), slice(3, 3), slice(12, 4), slice(-6, None), slice(0, 100)]


@pytest.mark.parametrize("fields", [{}, {"n_outputs": 3, "link": "softmax"}, {"average": True}], ids=str)
@pytest.mark.parametrize("trees", RANGES, ids=str)
def test_ranges_of_trees_score_as_a_forest_of_them(trees: slice, fields: dict[str, Any]) -> None:
    model = make(**fields)
    part = Model(model.forest.select(trees))
    for output in ("raw", "value", "leaf"):
        expected = part.predict(X, output, engine="reference")
        for engine, reason in on_cpu(model).items():
            if reason is None:
                got = model.predict(X, output, trees=trees, engine=engine)
                assert (got.shape, got.dtype) == (expected.shape, expected.dtype)
                np.testing.assert_array_equal(got, expected, err_msg=engine)


@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_many_ranges_one_after_the_other(precision: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More ranges than are cached, each correct every time."""
    monkeypatch.setattr("gpuqs.programs.PARTS_NUMBERS", 0)
    model = make()
    expected = {
        stop: Model(model.forest.select(slice(0, stop))).predict(X, "raw", engine="reference", precision=precision)
        for stop in range(21)
    }
    for _ in range(2):
        for stop, scores in expected.items():
            got = model.predict(X, "raw", trees=slice(0, stop), precision=precision)
            np.testing.assert_array_equal(got, scores)


def test_ranges_are_kept_as_long_as_they_hold_few_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    bounds = [(first, first + n) for n in range(1, 8) for first in range(12)]
    monkeypatch.setattr("gpuqs.programs.Programs.goes_by_whole", lambda *args: False)

    def kept(model: Model) -> list[tuple[int, int]]:
        for trees in bounds:
            model.predict(X[:1], "raw", engine="walk", trees=slice(*trees))
        return [key.trees for key in model._programs._made if key.trees is not None]

    model = make()
    assert kept(model) == bounds
    made = {**model._programs._made}
    assert kept(model) == bounds and model._programs._made == made
    monkeypatch.setattr("gpuqs.programs.MAX_PARTS", 30)
    assert kept(make()) == bounds[-30:]
    for fields in ({}, {"n_outputs": 9, "vector_leaves": True, "link": "identity"}):
        forest = make(**fields).forest
        of_tree = (forest.n_nodes + forest.leaf_value.size) / forest.n_trees
        monkeypatch.setattr("gpuqs.programs.PARTS_NUMBERS", 140 * of_tree + 21 * forest.n_features)
        assert kept(make(**fields)) == bounds[-21:]  # twelve of seven trees, nine of six: 138
    monkeypatch.setattr("gpuqs.programs.PARTS_NUMBERS", 0)
    assert kept(make()) == bounds[-16:]


def test_ranges_go_by_the_program_of_all_until_they_are_asked_for_often(monkeypatch: pytest.MonkeyPatch) -> None:
    def by_whole(model: Model, n_documents: int = 1) -> list[bool]:
        return [model._programs.goes_by_whole(slice(0, end), n_documents) for end in range(1, 6)]

    def of_many_trees() -> Model:
        return Model(random_forest(np.random.default_rng(3), n_trees=60, max_leaves=64))

    model = of_many_trees()
    assert by_whole(model) == [False, False, True, True, True], "there is no program of all"
    assert [by_whole(model) for _ in range(15)] == [[True] * 5] * 15, "there will be one"
    assert by_whole(model) == [False] * 5
    assert [by_whole(model) for _ in range(32)] == [[True] * 5] * 32, "programs were not kept"
    assert by_whole(model) == [False] * 5
    model = of_many_trees().warm_up()
    assert by_whole(model) == [True] * 5
    assert by_whole(model, 16 << 10) == [False] * 5, "large batches are worth programs"
    model._programs.expect(slice(0, 5))
    assert by_whole(model) == [True, True, True, True, False]
    monkeypatch.setattr("gpuqs.programs.RANGES_COUNTED", 5)
    assert by_whole(model) == [True] * 5
    assert len(model._programs._calls) == 5


def test_a_range_that_will_be_asked_for_often_has_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    model, trees = Model(random_forest(np.random.default_rng(3), n_trees=60)).warm_up(), slice(0, 5)
    documents = probing_documents(np.random.default_rng(4), model.forest, 3)
    model.warm_up(3, trees=trees, engine="walk")
    model.warm_up(3, trees=trees)
    made = {**model._programs._made}
    assert {key.engine for key in made if key.trees == (0, 5)} >= {"walk"}
    monkeypatch.setattr("gpuqs.engines.cpu.CpuProgram.of_trees", None)
    for engine in ("walk", "auto"):
        model.predict(documents, engine=engine, trees=trees)
    assert model._programs._made == made


def test_ranges_beyond_those_that_are_kept_go_by_the_program_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuqs.programs.PARTS_KEPT", 3)
    monkeypatch.setattr("gpuqs.programs.PARTS_NUMBERS", 0)
    for engine in ("walk", "auto"):
        model = Model(random_forest(np.random.default_rng(3), n_trees=60)).warm_up()
        documents, made = probing_documents(np.random.default_rng(4), model.forest, 3), []
        prepare = model._programs._prepare
        monkeypatch.setattr(model._programs, "_prepare", lambda *a, of=prepare, to=made: to.append(a) or of(*a))
        for _ in range(200):
            for end in range(1, 20):
                model.predict(documents, engine=engine, trees=slice(0, end))
        assert 3 <= len(made) <= 19 * 4 + 1


def test_what_is_chosen_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    model, machine = make(), cpu_fallback.machine()
    chooser = model._calls.chooser
    chosen = model.engine_for(77), chooser.threads(Way("walk"), 77, machine)
    monkeypatch.setattr("gpuqs.chooser.ENGINES", {})
    assert (model.engine_for(77), chooser.threads(Way("bitslice", n_threads=3), 77, machine)) == (chosen[0], 3)
    with pytest.raises(KeyError):
        chooser.threads(Way("walk"), 78, machine)


def test_documents_of_all_columns_have_one_program() -> None:
    model = make()
    assert model.forest.narrowed is model.forest
    programs = [model._programs.get("walk", "exact", None, narrow) for narrow in (False, True)]
    assert programs[0] is programs[1] and len(model._programs._made) == 1


def test_leaves_of_few_trees_are_worth_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    model, more = make(), []
    threads = model._calls.chooser.threads
    monkeypatch.setattr(model._calls.chooser, "threads", lambda *args: more.append(args[3]) or threads(*args))
    for trees in (slice(0, 20), slice(4, 9)):
        for output in ("leaf", "per_tree", "value"):
            model.predict(X, output, trees=trees, engine="walk")
    assert more == [LEAF * 20, LEAF * 20, 0.0, LEAF * 5, LEAF * 5, 0.0]


def test_a_range_has_one_program_however_it_is_said() -> None:
    model = make()
    said: list[list[dict[str, Any]]] = [
        [{}, *({"trees": trees} for trees in (slice(None), slice(0, 20), slice(-20, 99), slice(None, None, 1)))],
        [{"trees": slice(None, 5)}, {"trees": slice(-20, 5, 1)}, {"num_iteration": 5}, {"iteration_range": [0, 5]}],
        [{"trees": slice(3, 3)}, {"trees": slice(3, 1)}],
    ]
    for n, ways in enumerate(said, 1):
        for words in ways:
            model.warm_up(len(X), **words)
            model.predict(X, "leaf", **words)
            assert len(model._programs._made) == n


@pytest.mark.parametrize(
    ("trees", "problem"),
    [(5, "trees must be a slice"), ((0, 5), "trees must be a slice"), (slice(0, 9, 2), "step 1, not 2")],
)
def test_wrong_ranges(trees: Any, problem: str) -> None:
    for engine in ("auto", "walk"):
        with pytest.raises(ValueError, match=problem):
            MODEL.predict(X, trees=trees, engine=engine)


# -- encoded documents ------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n", [0, 1, 5, 64, 129, 200, 513, 1500])
def test_encoded_documents_score_as_they_are(isa: str, n: int, dtype: type) -> None:
    model = make(n_outputs=3, link="softmax", max_leaves=70)
    documents = probing_documents(np.random.default_rng(n), model.forest, n, dtype)
    encoded = model.encode(documents)
    assert len(encoded) == n
    assert encoded.nbytes >= 0
    for output in ("raw", "value", "leaf"):
        for trees in (None, slice(0, 7), slice(5, 20)):
            expected = model.predict(documents, output, engine="walk", trees=trees)
            for n_threads in (1, 3):
                got = model.predict(encoded, output, trees=trees, n_threads=n_threads)
                np.testing.assert_array_equal(got, expected)
    fast = model.predict(documents, "raw", engine="reference", precision="fast")
    np.testing.assert_array_equal(model.predict(encoded, "raw", precision="fast"), fast)


@pytest.mark.parametrize("output", ["raw", "value", "class"])
def test_encoded_documents_begin_with_a_margin(output: str) -> None:
    model = make(n_outputs=3, link="softmax")
    margin = np.random.default_rng(2).normal(size=(200, 3))
    expected = model.predict(X, output, engine="walk", base_margin=margin)
    np.testing.assert_array_equal(model.predict(model.encode(X), output, base_margin=margin), expected)
    with pytest.raises(InputError, match=r"base_margin has shape \(199, 3\), not \(200, 3\)"):
        model.predict(model.encode(X), output, base_margin=margin[1:])


@pytest.mark.parametrize("where", [{"device": "cuda"}, {"engine": "bitslice_gpu"}, {"engine": "walk_gpu"}])
def test_encoded_documents_stay_on_the_cpu(where: dict[str, str]) -> None:
    with pytest.raises(InputError, match="encoded documents are scored on the CPU"):
        MODEL.predict(MODEL.encode(X), **where)


def test_encoding_takes_what_predict_takes() -> None:
    for source in (X.tolist(), X[::-1], np.asfortranarray(X), X.astype(">f8")):
        np.testing.assert_array_equal(MODEL.predict(MODEL.encode(source)), MODEL.predict(source))
    with pytest.raises(InputError, match="X has 2 features"):
        MODEL.encode(X[:, :2])


def test_encoding_does_not_watch_the_callers_array() -> None:
    documents = X.copy()
    encoded = MODEL.encode(documents)
    documents[:] = 0
    np.testing.assert_array_equal(MODEL.predict(encoded, "raw"), EXPECTED)


def test_encoded_documents_belong_to_one_model_and_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = MODEL.encode(X)
    with pytest.raises(InputError, match="encoded by another model"):
        make().predict(encoded)
    with pytest.raises(InputError, match="scored by engine 'bitslice', not 'walk'"):
        MODEL.predict(encoded, engine="walk")
    monkeypatch.setenv("GPUQS_ISA", "portable")
    if encoded.isa != "portable":
        with pytest.raises(InputError, match="another instruction set; encode it again"):
            MODEL.predict(encoded)


def test_models_that_bitslice_cannot_hold_have_no_encoding() -> None:
    model = make(max_leaves=4097, shape="complete")
    with pytest.raises(UnsupportedModelError, match="engine 'bitslice' cannot run this model"):
        model.encode(X)


# -- the choice of an engine ------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 50, 10_000])
def test_explain_names_the_engine_that_auto_uses_and_every_other(n: int) -> None:
    model = make(max_leaves=100, shape="chain")
    explanation = model.explain(n)
    assert explanation.engine == model.engine_for(n)
    text = str(explanation)
    for engine, reason in model.engines().items():
        assert engine in text
        assert reason is None or reason in text
    assert f"-> {explanation.engine} " in text
    assert text.count("->") == 1


@pytest.mark.parametrize("n", [100, 1024, 1025, 3000])
def test_documents_are_encoded_in_chunks(n: int, isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuqs.chunks.CHUNK_WORK", 1)  # chunks of 1,024 documents
    model = make()
    rows = np.resize(probing_documents(np.random.default_rng(2), model.forest, 700, np.float32), (n, 8))
    for documents in (rows, np.nan_to_num(rows).clip(-9, 9).astype(np.int32)):
        coded = model.encode(documents, n_threads=2)
        np.testing.assert_array_equal(model.predict(coded, "leaf"), model.predict(documents, "leaf", engine="walk"))
        each = model.predict(documents, "per_tree", engine="walk")
        np.testing.assert_array_equal(model.predict(coded, "per_tree"), each)


# -- devices ----------------------------------------------------------------------------------


@pytest.mark.parametrize("device", [1.5, True, [1], "gpu", "cuda:x"])
def test_what_names_no_device(device: Any) -> None:
    for ask in (MODEL.to, lambda device: MODEL.predict(X, device=device)):
        with pytest.raises(ValueError, match='device must be "cpu", "cuda", "cuda:<number>" or a number, not '):
            ask(device)


def test_devices_by_numbers_of_numpy() -> None:
    if find_spec("cupy") is not None:
        pytest.skip("there may be such a device")
    for ask in (MODEL.to, lambda device: MODEL.predict(X, device=device)):
        with pytest.raises(DeviceError, match="GPU scoring needs CuPy"):
            ask(np.int64(0))
