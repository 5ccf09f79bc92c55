"""Models on a device: what users call, on the emulated device."""

from __future__ import annotations

import pickle
import shutil
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from emulation.device import EmulatedDevice, address
from emulation.memory import DeviceArray, to_host
from forests import probing_documents, random_forest
from gpu_conformance import expected

from gpuqs.arrays import coded_rows
from gpuqs.chooser import Chooser
from gpuqs.cpu_fallback import Machine
from gpuqs.ctrs import Ctrs, Projection
from gpuqs.engines.cpu import CpuEngine
from gpuqs.engines.gpu.engine import GpuEngine
from gpuqs.engines.reference import Reference
from gpuqs.errors import InputError, UnsupportedModelError
from gpuqs.forest import Forest
from gpuqs.links import to_values
from gpuqs.model import Model
from gpuqs.programs import PARTS_KEPT
from gpuqs.schema import Schema
from gpuqs.tuning.plan import Way

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++")


@pytest.fixture(scope="module")
def device() -> EmulatedDevice:
    return EmulatedDevice()


def make(**fields: object) -> tuple[Forest, np.ndarray]:
    rng = np.random.default_rng(11)
    forest = random_forest(rng, **fields)
    return forest, probing_documents(rng, forest, 20)


def raw_scores(forest: Forest, documents: np.ndarray, precision: str) -> np.ndarray:
    reference = Reference()
    program = reference.prepare(forest, precision)
    sums = np.zeros((len(documents), forest.n_outputs), program.values.sum_dtype)
    reference.score(program, documents, sums, 1)
    return program.values.finish(sums)


FORESTS = [
    {},
    {"n_outputs": 3, "link": "softmax"},
    {"link": "sigmoid", "base_first": False},
    {"average": True, "sum_dtype": "float32"},
    {"n_outputs": 2, "vector_leaves": True, "average": True},
]


@pytest.mark.parametrize("fields", FORESTS)
@pytest.mark.parametrize("on_device", [True, False])
@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_scores(device: EmulatedDevice, fields: dict, on_device: bool, precision: str) -> None:
    forest, documents = make(**fields)
    model = Model(forest).to(device)
    X = device.from_host(documents) if on_device else documents
    want = raw_scores(forest, documents, precision)
    raw, value = model.predict(X, "raw", precision=precision), model.predict(X, precision=precision)
    assert isinstance(raw, DeviceArray) == on_device
    shape = (20,) if forest.n_outputs == 1 else (20, forest.n_outputs)
    assert (raw.shape, raw.dtype, value.shape) == (shape, np.dtype(forest.sum_dtype), shape)
    raw, value = to_host(raw).reshape(want.shape), to_host(value).reshape(want.shape)
    if precision == "fast":
        np.testing.assert_array_equal(raw, want)
    else:
        bound = expected(forest, documents).bound
        assert np.abs(raw - want.astype(np.float64)).max() <= bound
    # test_gpu_links.py states the bounds.
    np.testing.assert_allclose(value, to_values(forest, raw), rtol=10 * np.finfo(raw.dtype).eps)


@pytest.mark.parametrize("on_device", [True, False])
def test_stages(device: EmulatedDevice, on_device: bool) -> None:
    """Each stage is a call of `predict` with that many iterations."""
    forest, documents = make(n_trees=5, n_outputs=2, link="softmax")
    model = Model(forest).to(device)
    X = device.from_host(documents) if on_device else documents
    given = list(model.staged_predict(X, eval_period=2))
    assert forest.n_iterations == 3 and len(given) == 2
    for end, answer in zip((2, forest.n_iterations), given, strict=True):
        want = model.predict(X, iteration_range=(0, end))
        assert type(answer) is type(want)
        np.testing.assert_array_equal(to_host(answer), to_host(want), strict=True)


def test_ctrs_of_documents_on_the_host(device: EmulatedDevice) -> None:
    """They are looked up on the host, and the device gets the columns; a device's documents have no strings to hash."""
    ctrs = Ctrs(
        2,
        {0: (7, 9)},
        (Projection((0,), ((1, 0.5, False),), (), np.array([5], np.uint64), np.array([[2.0], [-1.0]], np.float32)),),
    )
    forest, _ = make(n_features=3, input_dtype="float32")
    categories = Schema(categories=(("CatBoost hash 00000007", "CatBoost hash 00000009"), None), library="CatBoost")
    forest = replace(forest, ctrs=ctrs, schema=categories)
    rows = coded_rows(np.array([[7.0, 0.4], [9.0, np.nan], [8.0, 3.0], [1e9, -2.0]]))
    model = Model(forest).to(device)
    assert model.n_features == 2
    for output in ("raw", "leaf"):
        got = model.predict(rows, output, precision="fast" if output == "raw" else "exact")
        want = Model(forest).predict(rows, output, precision="fast" if output == "raw" else "exact")
        np.testing.assert_array_equal(got, want)
    with pytest.raises(InputError, match="categories are coded on the host"):
        model.predict(device.from_host(np.zeros((3, 2), np.float32)))


def test_linear_leaves_are_the_cpus(device: EmulatedDevice) -> None:
    forest, documents = make(linear=0.5)
    with pytest.raises(UnsupportedModelError, match="linear models, which are evaluated on the CPU"):
        Model(forest).to(device).predict(documents)


@pytest.mark.parametrize("on_device", [True, False])
@pytest.mark.parametrize(
    "fields", [{"n_outputs": 3, "link": "argmax"}, {"average": True, "average_raw": True}, {"n_outputs": 2}], ids=str
)
def test_labels_averages_and_keywords_as_on_the_cpu(device: EmulatedDevice, fields: dict, on_device: bool) -> None:
    forest, documents = make(**fields)
    model, here = Model(forest).to(device), Model(forest)
    X = device.from_host(documents) if on_device else documents
    for asked in (
        {"precision": "fast"},
        {"precision": "fast", "raw_score": True},
        {"precision": "fast", "output_margin": True, "iteration_range": (1, 3)},
        {"pred_leaf": True},
        {"pred_leaf": True, "start_iteration": 1, "num_iteration": 2},
    ):
        got, want = to_host(model.predict(X, **asked)), here.predict(documents, **asked)
        assert got.dtype == want.dtype
        np.testing.assert_array_equal(got, want)
    if forest.n_outputs > 1:
        np.testing.assert_array_equal(
            to_host(replace_link(model, device).predict(X, "class", precision="fast")),
            replace_link(here, None).predict(documents, "class", precision="fast"),
        )
    with pytest.raises(ValueError, match="contradict"):
        model.predict(X, "leaf", raw_score=True)


def replace_link(model: Model, device: EmulatedDevice | None) -> Model:
    """The same trees as a classifier."""
    forest = replace(model.forest, link="argmax", class_rule="value")
    return Model(forest) if device is None else Model(forest).to(device)


def test_warm_up_leaves_nothing_to_copy(device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    forest, documents = make()
    model = Model(forest).to(device)
    assert model.warm_up() is model and model.warm_up(precision="fast", trees=slice(0, 2)) is model
    whole = Model(forest)
    assert whole.warm_up(device=device) is whole
    monkeypatch.setattr(GpuEngine, "prepare", None)  # a call that has to prepare anything fails
    assert model.predict(documents).shape == (20,)
    assert model.predict(documents, precision="fast", trees=slice(0, 2)).shape == (20,)
    assert whole.predict(documents, device=device).shape == whole.to(device).predict(documents).shape == (20,)
    with pytest.raises(TypeError):
        Model(forest).to(device).predict(documents)


def test_warm_up_takes_the_engine_of_so_many_documents_there(
    device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the device of the calls, the model's or another, even though fewer documents are scored."""
    asked: list[tuple[int, str]] = []
    usual = Chooser.usual

    def noted(self: Chooser, n_documents: int, where: Any, machine: Machine) -> Way:
        asked.append((n_documents, where.kind))
        return usual(self, n_documents, where, machine)

    forest, documents = make()
    monkeypatch.setattr(Chooser, "usual", noted)
    there = Model(forest).to(device)
    for model, where, kind in ((Model(forest), device, "cuda"), (there, None, "cuda"), (there, "cpu", "cpu")):
        asked.clear()
        model.warm_up(100_000, device=where)
        assert set(asked) == {(100_000, kind)}
    monkeypatch.setattr(CpuEngine, "prepare", None)
    assert model.predict(np.resize(documents, (5000, documents.shape[1])), device="cpu").shape == (5000,)


@pytest.mark.parametrize("on_device", [True, False])
def test_leaves_and_values_of_each_tree(device: EmulatedDevice, on_device: bool) -> None:
    for fields in ({}, {"n_outputs": 2, "vector_leaves": True}):
        forest, documents = make(**fields)
        model = Model(forest).to(device)
        X = device.from_host(documents) if on_device else documents
        leaves, values = model.predict(X, "leaf"), model.predict(X, "per_tree")
        want = expected(forest, documents).leaves
        np.testing.assert_array_equal(to_host(leaves), want)
        at = forest.leaf_value[forest.leaf_offsets[:-1] + want]
        np.testing.assert_array_equal(to_host(values), at if forest.vector_leaves else at[:, :, 0])


CLASSIFIERS = [
    {"link": "sigmoid"},
    {"link": "sigmoid", "classes": (False, True), "class_rule": "raw"},
    {"link": "hinge", "classes": (-1.5, 2.5), "class_rule": "raw_or_zero"},
    {"link": "softmax", "n_outputs": 3, "classes": (7, 5, 9)},
    {"link": "softmax", "n_outputs": 3, "class_rule": "raw", "sum_dtype": "float32"},
    {"classes": (3, 4), "n_outputs": 2, "vector_leaves": True, "average": True},
    {"link": "sigmoid", "n_outputs": 4},
]


@pytest.mark.parametrize("on_device", [True, False])
@pytest.mark.parametrize("fields", CLASSIFIERS)
def test_classes(device: EmulatedDevice, fields: dict, on_device: bool) -> None:
    forest, documents = make(**fields)
    X = device.from_host(documents) if on_device else documents
    model = Model(forest).to(device)
    for options in ({}, {"precision": "fast"}, {"precision": "fast", "trees": slice(3, 9)}):
        got, want = model.predict(X, "class", **options), Model(forest).predict(documents, "class", **options)
        assert isinstance(got, DeviceArray) == on_device
        assert got.dtype == want.dtype
        assert len(np.unique(want)) > 1
        np.testing.assert_array_equal(to_host(got), want)
        out = device.empty(want.shape, want.dtype) if on_device else np.empty_like(want)
        assert model.predict(X, "class", out=out, **options) is out
        np.testing.assert_array_equal(to_host(out), want)
    assert model.predict(X[:0], "class").shape == (0, *want.shape[1:])


def test_class_labels_that_no_gpu_holds(device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    forest, documents = make(link="sigmoid", classes=("no", "yes"))
    monkeypatch.setattr(device, "empty", None)  # refused before memory of a type that the device lacks is asked for
    for X in (documents, device.from_host(documents)):
        with pytest.raises(InputError, match="class labels are strings or times"):
            Model(forest).to(device).predict(X, "class")


def test_classes_are_for_classifiers(device: EmulatedDevice) -> None:
    forest, documents = make()
    with pytest.raises(ValueError, match="is for classifiers"):
        Model(forest).to(device).predict(documents, "class")


@pytest.mark.parametrize("on_device", [True, False])
def test_out_is_filled_and_returned(device: EmulatedDevice, on_device: bool) -> None:
    forest, documents = make()
    model = Model(forest).to(device)
    X = device.from_host(documents) if on_device else documents
    for output, shape, dtype in (("raw", (20,), np.float64), ("leaf", (20, 20), np.int32)):
        out = device.empty(shape, dtype) if on_device else np.empty(shape, dtype)
        assert model.predict(X, output, out=out) is out
        np.testing.assert_array_equal(to_host(out), to_host(model.predict(X, output)))
        wrong = device.empty((3,), dtype) if on_device else np.empty(3, dtype)
        with pytest.raises(InputError, match="out must be"):
            model.predict(X, output, out=wrong)
        strided = np.zeros((*shape[:-1], 2 * shape[-1]), dtype)[..., ::2]
        strided = device.from_host(strided) if on_device else strided
        with pytest.raises(InputError, match="C-contiguous"):
            model.predict(X, output, out=strided)


def lying(device: EmulatedDevice, array: np.ndarray, offset: int = 0, row: int = 0) -> DeviceArray:
    """An array on the device that begins ``offset`` bytes after a multiple of 64, with rows ``row`` bytes apart."""
    row = row or array.strides[0]
    whole = device.from_host(np.zeros(64 + offset + len(array) * row, np.uint8))
    at = -address(whole) % 64 + offset
    view = np.ndarray(array.shape, array.dtype, whole.data, at, (row, *array.strides[1:]))
    view[...] = array
    return DeviceArray(whole.block, view)


def test_what_lies_where_gpus_do_not_read_is_refused(device: EmulatedDevice) -> None:
    forest, documents = make(n_trees=5)
    model, X = Model(forest).to(device), documents.astype(np.float32)
    for _ in range(4):  # so that calls are recorded and repeated, whatever the addresses
        want = to_host(model.predict(device.from_host(X), "raw"))
    assert model._calls.repeated
    for offset, row in ((13, 0), (2, 0), (0, X.strides[0] + 2)):
        with pytest.raises(
            InputError, match=r"float32 values at addresses that are not multiples of 4.*copy the bytes"
        ):
            model.predict(lying(device, X, offset, row), "raw")
    for fine in (lying(device, X, 4), lying(device, X, 0, X.strides[0] + 12), lying(device, X[:1], 0, 33)):
        np.testing.assert_array_equal(to_host(model.predict(fine, "raw")), want[: len(fine)])
    with pytest.raises(InputError, match="out must be an aligned, C-contiguous float64"):
        model.predict(device.from_host(X), "raw", out=lying(device, np.zeros(20), 4))
    out = lying(device, np.zeros(20), 8)
    np.testing.assert_array_equal(to_host(model.predict(device.from_host(X), "raw", out=out)), want)
    for kind in (">f4", ">f2", ">i4"):
        with pytest.raises(InputError, match=f"holds {kind} values, whose byte order GPUs cannot read; convert them"):
            model.predict(device.from_host(np.nan_to_num(X, posinf=1, neginf=1).clip(-9, 9).astype(kind)), "raw")


def test_out_that_shares_memory_with_x_is_refused(device: EmulatedDevice) -> None:
    forest, documents = make()
    model, n_bytes = Model(forest).to(device), documents.nbytes
    whole = device.from_host(np.zeros(n_bytes + 160, np.uint8))

    def of(start: int, shape: tuple[int, ...]) -> DeviceArray:
        return DeviceArray(whole.block, np.ndarray(shape, np.float64, whole.data, start))

    X = of(0, documents.shape)
    X.data[...] = documents
    want, backwards = to_host(model.predict(device.from_host(documents), "raw")), X[::-1]
    for given, start in ((X, 0), (X, n_bytes - 8), (X, n_bytes - 160), (backwards, 0), (backwards, n_bytes - 8)):
        with pytest.raises(InputError, match="out shares memory with X"):
            model.predict(given, "raw", out=of(start, (20,)))
    np.testing.assert_array_equal(to_host(X), documents)
    for given in (backwards, X):
        right = want[::-1] if given is backwards else want
        np.testing.assert_array_equal(to_host(model.predict(given, "raw", out=of(n_bytes, (20,)))), right)
    assert model.predict(X[:0], "raw", out=of(0, (0,))).shape == (0,)


def test_host_input_of_every_kind(device: EmulatedDevice) -> None:
    forest, documents = make(n_trees=5)
    model = Model(forest).to(device)
    small = np.nan_to_num(documents, posinf=5, neginf=-5).clip(-100, 100)
    want = raw_scores(forest, small, "fast")[:, 0]
    for X in (small.tolist(), np.asfortranarray(small), small[::-1][::-1]):
        np.testing.assert_array_equal(to_host(model.predict(X, "raw", precision="fast")), want)
    half = small.astype(np.float16)
    want = raw_scores(forest, half.astype(np.float32), "fast")[:, 0]
    for X in (half, device.from_host(half)):
        np.testing.assert_array_equal(to_host(model.predict(X, "raw", precision="fast")), want)


def test_sparse_matrices_of_the_host(device: EmulatedDevice) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    forest, documents = make(n_trees=5)
    forest = replace(forest, n_features=50, feature=7 * forest.feature, schema=Schema(absent=np.nan))
    X = np.full((len(documents), 50), np.nan)
    X[:, ::7] = np.nan_to_num(documents, posinf=5, neginf=-5)
    S = sparse.csr_matrix(np.nan_to_num(X))
    want = raw_scores(forest, np.where(S.toarray() == 0, np.nan, X), "fast")[:, 0]
    for matrix in (S, S.tocsc()):
        np.testing.assert_array_equal(Model(forest).to(device).predict(matrix, "raw", precision="fast"), want)


def test_no_documents_and_no_trees(device: EmulatedDevice) -> None:
    forest, documents = make(n_trees=0)
    model = Model(forest).to(device)
    for X in (documents, device.from_host(documents)):
        np.testing.assert_array_equal(to_host(model.predict(X)), np.full(20, forest.base_score[0]))
        assert model.predict(X, "leaf").shape == (20, 0)
        for output, shape in (("raw", (0,)), ("leaf", (0, 0)), ("per_tree", (0, 0))):
            assert model.predict(X[:0], output).shape == shape


def test_wrong_input_is_refused(device: EmulatedDevice) -> None:
    forest, documents = make()
    model = Model(forest).to(device)
    for X in (documents, device.from_host(documents)):
        for wrong in (X[:, 1:], X[0], X.astype(np.complex128)):
            with pytest.raises(InputError, match="X "):
                model.predict(wrong)
    with pytest.raises(InputError, match="on "):
        model.predict(device.from_host(documents), out=np.empty(20))
    with pytest.raises(ValueError, match="output must be"):
        model.predict(documents, "probability")
    with pytest.raises(ValueError, match="precision must be"):
        model.predict(documents, precision="half")
    with pytest.raises(ValueError, match="precision='exact'"):
        model.predict(documents, "per_tree", precision="fast")


def test_categories_by_value_are_coded_on_the_host(device: EmulatedDevice) -> None:
    n_features = make()[0].n_features
    schema = Schema(categories=(("7", 7), *[None] * (n_features - 1)), library="CatBoost")
    forest, _ = make(schema=schema)
    model = Model(forest).to(device).warm_up()
    rows = np.full((3, n_features), 7)
    coded = rows.astype(np.float32)
    coded[:, 0] = 0
    np.testing.assert_array_equal(model.predict(rows, "leaf"), model.predict(coded_rows(coded), "leaf"))
    with pytest.raises(InputError, match="on a GPU, but the model's categories are coded on the host"):
        model.predict(device.from_host(rows))


def test_numbers_that_stand_for_missing_values_are_replaced_on_the_host(device: EmulatedDevice) -> None:
    forest, documents = make(schema=Schema(missing=-999), input_dtype="float32")
    model = Model(forest).to(device)
    documents = np.clip(documents, -1e30, 1e30).astype(np.float32)
    marked = np.where(np.isnan(documents), np.float32(-999), documents)
    assert (marked == -999).any()
    for _ in range(3):  # a first call, one that is recorded, one that repeats it
        np.testing.assert_array_equal(model.predict(marked), Model(forest).predict(documents))
    with pytest.raises(InputError, match="on a GPU, where only NaN is missing, not -999; pass documents"):
        model.predict(device.from_host(marked))


def test_an_average_of_no_trees(device: EmulatedDevice) -> None:
    forest, documents = make(average=True)
    model, there = Model(forest).to(device), device.from_host(documents)
    none = slice(0, 0)
    for values, raw in (
        (model.predict(documents, trees=none), model.predict(documents, "raw", trees=none)),
        (device.to_host(model.predict(there, trees=none)), device.to_host(model.predict(there, "raw", trees=none))),
    ):
        assert np.isnan(values).all() and np.isfinite(raw).all()


def test_the_model_is_copied_to_the_device_once(device: EmulatedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    forest, documents = make()
    model = Model(forest).to(device)
    want = model.predict(documents)
    again = pickle.loads(pickle.dumps(model))
    monkeypatch.setattr(device, "upload", None)  # a call that copies anything fails
    np.testing.assert_array_equal(model.predict(documents), want)
    monkeypatch.undo()
    np.testing.assert_array_equal(again.predict(documents), want)


def test_a_model_pickles_after_it_was_on_a_device(device: EmulatedDevice) -> None:
    forest, documents = make()
    model = Model(forest)
    want = model.to(device).predict(documents, "raw", precision="fast")
    assert model.to(device) is model.to(device)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(documents, "raw", precision="fast"), want)
    np.testing.assert_array_equal(again.to(device).predict(documents, "raw", precision="fast"), want)


@pytest.mark.parametrize("on_device", [True, False])
def test_ranges_of_trees(device: EmulatedDevice, on_device: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuqs.programs.PARTS_NUMBERS", 0)
    forest, documents = make(average=True)
    model = Model(forest).to(device)
    X = device.from_host(documents) if on_device else documents
    for first in range(PARTS_KEPT + 2):
        trees = slice(first, first + 3)
        part = forest.select(trees)
        raw = to_host(model.predict(X, "raw", precision="fast", trees=trees))
        np.testing.assert_array_equal(raw, raw_scores(part, documents, "fast")[:, 0])
        np.testing.assert_array_equal(
            to_host(model.predict(X, precision="fast", trees=trees)), to_values(forest, raw[:, None], 3)[:, 0]
        )
        np.testing.assert_array_equal(
            to_host(model.predict(X, "leaf", trees=trees)), to_host(model.predict(X, "leaf"))[:, trees]
        )
    assert len([key for key in model._programs._made if key.trees is not None]) == PARTS_KEPT
    with pytest.raises(ValueError, match="step 1"):
        model.predict(X, trees=slice(0, 10, 2))
