"""The same tests on a real GPU, if there is one, and tests of memory, streams, threads and graphs."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

import driver
import numpy as np
import pytest
from agreement import ON_GPU
from forests import probing_documents, random_forest
from gpu_conformance import CASES, OF_BITS, Case, check, check_bits, check_walks, expected
from test_denormals import CHECKS
from test_gpu_links import on_device, probing_sums

import gpuqs
from gpuqs.devices.cuda import CudaDevice, cuda_device
from gpuqs.engines.gpu.bitslice_placed import BitsliceSettings
from gpuqs.engines.gpu.occupancy import resident_blocks
from gpuqs.engines.gpu.qs_gpu import QsGpu
from gpuqs.engines.gpu.qs_placed import QsSettings
from gpuqs.engines.gpu.walk_placed import WalkSettings
from gpuqs.errors import DeviceError
from gpuqs.forest_checks import LINKS
from gpuqs.model import Model

try:
    DEVICE: CudaDevice | None = cuda_device()
    WHY_NOT = ""
except DeviceError as missing:
    DEVICE, WHY_NOT = None, str(missing)

pytestmark = pytest.mark.skipif(DEVICE is None, reason=f"no GPU: {WHY_NOT}")


class TestedDevice(CudaDevice):
    """The device, with the copies that the shared tests make."""

    __test__ = False

    def from_host(self, array: np.ndarray):
        """Copy an array to device memory with its strides."""
        if not array.size:
            return self._cupy.asarray(array)
        reach = [(n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True)]
        before = -sum(r for r in reach if r < 0)
        n_bytes = before + sum(r for r in reach if r > 0) + array.itemsize
        memory = (ctypes.c_ubyte * n_bytes).from_address(array.ctypes.data - before)
        copy = self._cupy.asarray(np.frombuffer(memory, np.uint8))
        return self._cupy.ndarray(array.shape, array.dtype, copy.data + before, array.strides)


@pytest.fixture(scope="module")
def device() -> TestedDevice:
    return TestedDevice(DEVICE.index)


@pytest.fixture(scope="module")
def cupy():
    return pytest.importorskip("cupy")


def in_threads(work: Callable[[int], None], n: int) -> None:
    """Call ``work`` with each number below n, each in its own thread."""
    threads = [threading.Thread(target=work, args=(i,)) for i in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def make_small(dtype: type):
    rng = np.random.default_rng(20)
    forest = random_forest(rng, max_leaves=32)
    return forest, probing_documents(rng, forest, 33, dtype)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_equals_reference(device: TestedDevice, case: Case) -> None:
    check(device, *case.make(), case.settings)


@pytest.mark.parametrize("case", [*CASES, *OF_BITS], ids=lambda case: case.name)
@pytest.mark.parametrize(("words", "summed"), [(1, None), (2, None), (1, 1), (2, 1), (1, 4), (2, 4)])
def test_bit_slices_equal_reference(device: TestedDevice, case: Case, words: int, summed: int | None) -> None:
    check_bits(device, *case.make(), BitsliceSettings(words=words, summed=summed))


@pytest.mark.parametrize("case", [*CASES, *OF_BITS], ids=lambda case: case.name)
@pytest.mark.parametrize(
    "settings", [None, WalkSettings(part_trees=40, threads=128), WalkSettings(part_trees=40, shared=1)], ids=str
)
def test_walks_equal_reference(device: TestedDevice, case: Case, settings: WalkSettings | None) -> None:
    check_walks(device, *case.make(), settings)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"])
@pytest.mark.parametrize(
    "make", [np.asfortranarray, lambda x: x[::-1, ::-1], lambda x: np.repeat(x, 3, 0)[::3]]
)
def test_walks_of_documents_of_any_form(device: TestedDevice, dtype: str, make) -> None:
    rng = np.random.default_rng(6)
    forest = random_forest(rng, n_trees=700, max_leaves=12)
    check_walks(device, forest, make(rng.integers(0, 2, (33, forest.n_features)).astype(dtype)))


@pytest.mark.parametrize("n", [1, 2, 100, 1000])
@pytest.mark.parametrize("fields", [{}, {"n_outputs": 3}, {"sum_dtype": "float32", "input_dtype": "float32"}], ids=str)
def test_walks_of_thousands_of_trees(device: TestedDevice, n: int, fields: dict) -> None:
    """Many parts, which are shared among thread blocks if documents are few and sums are integers."""
    rng = np.random.default_rng(24)
    forest = random_forest(rng, n_trees=3000, max_leaves=30, **fields)
    check_walks(device, forest, probing_documents(rng, forest, n))


@pytest.mark.parametrize("shape", ["chain", "complete"])
def test_walks_of_large_trees(device: TestedDevice, shape: str) -> None:
    rng = np.random.default_rng(25)
    leaves = 9_000 if shape == "chain" else 100_000
    forest = random_forest(rng, n_trees=3, max_leaves=leaves, shape=shape, n_thresholds=500)
    check_walks(device, forest, probing_documents(rng, forest, 100))


@pytest.mark.parametrize(
    "make", [np.asfortranarray, lambda x: x[::-1, ::-1], lambda x: np.repeat(x, 3, 0)[::3]]
)
def test_strided_documents(device: TestedDevice, make) -> None:
    forest, documents = CASES[0].make()
    check(device, forest, make(documents), QsSettings())


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"])
def test_integer_documents(device: TestedDevice, dtype: str) -> None:
    rng = np.random.default_rng(5)
    forest = random_forest(rng)
    check(device, forest, rng.integers(0, 2, (33, forest.n_features)).astype(dtype), QsSettings())


def test_the_device_and_the_emulation_give_the_same_bits(device: TestedDevice) -> None:
    emulation = pytest.importorskip("emulation.device")
    forest, documents = CASES[2].make()
    emulated = emulation.EmulatedDevice(attributes=device.attributes)
    ours, theirs = (check(d, forest, documents, QsSettings()) for d in (device, emulated))
    np.testing.assert_array_equal(ours.exact, theirs.exact)


@pytest.mark.parametrize("real", [np.float32, np.float64])
@pytest.mark.parametrize("link", LINKS)
def test_links_give_the_bits_of_the_emulation(device: TestedDevice, link: str, real: type) -> None:
    emulation = pytest.importorskip("emulation.device")
    sums = probing_sums(real, 5)
    with device.active():
        ours = on_device(device, link, 0.7, 3.0, sums)
    np.testing.assert_array_equal(ours, on_device(emulation.EmulatedDevice(), link, 0.7, 3.0, sums))


@pytest.mark.parametrize("name", CHECKS)
def test_denormals_are_numbers(device: TestedDevice, name: str) -> None:
    CHECKS[name](device)


ON_DEVICE = {
    "torch": lambda torch, X: torch.from_numpy(X).cuda(),
    "jax": lambda jax, X: jax.device_put(X, jax.devices("gpu")[0]),
    "numba.cuda": lambda cuda, X: cuda.to_device(X),
}


@pytest.mark.parametrize("library", ON_DEVICE)
def test_other_libraries_arrays_come_back_as_their_own(device: TestedDevice, cupy, library: str) -> None:
    module = pytest.importorskip(library)
    forest, documents = make_small(np.float32)
    try:
        X = ON_DEVICE[library](module, documents)
    except (RuntimeError, AssertionError) as error:
        pytest.skip(f"this {library} has no CUDA: {error}")
    scores = Model(forest).to(device).predict(X, "leaf")
    assert type(scores) is type(X)
    np.testing.assert_array_equal(cupy.asnumpy(cupy.asarray(scores)), expected(forest, documents).leaves)


@pytest.mark.parametrize("case", CASES[:5], ids=lambda case: case.name)
def test_the_drivers_occupancy_is_the_policys(device: TestedDevice, case: Case) -> None:
    forest, _ = case.make()
    with device.active():
        placed = QsGpu(case.settings).prepare(forest, "exact", device=device).forest
        kernel, threads, shared = placed.scoring_kernel()
        registers, static = kernel.attribute("NUM_REGS"), kernel.attribute("SHARED_SIZE_BYTES")
    by_driver = driver.resident_blocks(device, kernel, threads, shared)
    assert by_driver == resident_blocks(device.attributes, threads, registers, shared + static)


def test_a_profiler_is_started_and_stopped(device: TestedDevice) -> None:
    forest, documents = CASES[0].make()
    with driver.profiled(device):
        got = Model(forest).to(device).predict(documents, "leaf")
    np.testing.assert_array_equal(got, expected(forest, documents).leaves)


def test_no_memory_is_lost_over_ten_thousand_predicts(device: TestedDevice, cupy) -> None:
    forest, documents = CASES[0].make()
    model = Model(forest).to(device)
    X = device.from_host(documents)

    def use() -> tuple[int, int]:
        cupy.cuda.Device().synchronize()
        pool = cupy.get_default_memory_pool()
        return pool.used_bytes(), pool.total_bytes()

    for _ in range(100):
        model.predict(X, "raw")
        model.predict(documents, "raw")
    before = use()
    for _ in range(5000):
        model.predict(X, "raw")
        model.predict(documents, "raw")
    assert use() == before


def test_streams_and_threads_do_not_mix(device: TestedDevice, cupy) -> None:
    rng = np.random.default_rng(21)
    forest = random_forest(rng, n_trees=200, max_leaves=64)
    engine = QsGpu()
    program = engine.prepare(forest, "fast", device=device)
    batches = [probing_documents(rng, forest, 500) for _ in range(8)]
    want = [expected(forest, batch).fast for batch in batches]
    failed: list[int] = []

    def work(index: int) -> None:
        with cupy.cuda.Stream(non_blocking=True) as stream:
            X = cupy.asarray(batches[index])
            sums = [device.empty((500, 1), np.int64) for _ in range(20)]
            for out in sums:
                engine.score(program, X, out)
            stream.synchronize()
            if not all((cupy.asnumpy(out) == want[index]).all() for out in sums):
                failed.append(index)

    in_threads(work, len(batches))
    assert failed == []


def test_tuning_measures_the_device_and_changes_no_bit(device: TestedDevice, cupy, tmp_path) -> None:
    """Either engine may be faster, but no reading is shorter than the device's own work."""
    rng = np.random.default_rng(26)
    forest = random_forest(rng, n_trees=400, max_leaves=64)
    rows = probing_documents(rng, forest, 20_000)
    model, want = Model(forest).to(device), Model(forest).predict(rows, "raw")
    with cupy.cuda.Stream(non_blocking=True) as stream:
        X = cupy.asarray(rows)
        for engine in ("bitslice_gpu", "walk_gpu"):  # so that compiling takes nothing of the budget
            model.predict(X[:1], "raw", engine=engine), model.predict(X, "raw", engine=engine)
        for given in (X, rows):
            plan = model.tune(given, 3.0, batch_sizes=[1, 300, 20_000])
            assert model.plan is plan and (plan.processor, plan.isa) == (device.attributes.name, "cuda")
            for tuned in plan.sizes:
                n, measured = tuned.n_documents, {c.engine: c.measured for c in tuned.candidates if c.measured}
                assert measured.keys() <= {"bitslice_gpu", "walk_gpu"} and tuned.best.engine in measured
                assert model.engine_for(n) == model.explain(n).engine == tuned.best.engine
                np.testing.assert_array_equal(cupy.asnumpy(model.predict(X[:n], "raw")), want[:n])
                np.testing.assert_array_equal(model.predict(rows[:n], "raw"), want[:n])
            for engine, us in measured.items():  # for many documents, which take longer than their launches
                begin, end = cupy.cuda.Event(), cupy.cuda.Event()
                begin.record()
                for _ in range(20):
                    model.predict(X, "raw", engine=engine)
                end.record()
                end.synchronize()
                assert us > 0.5 * cupy.cuda.get_elapsed_time(begin, end) * 1e3 / 20
        out = model.predict(X, "raw")
        stream.synchronize()
        stream.begin_capture()
        with pytest.raises(DeviceError, match="end the capture first"):
            model.tune(X, 0)
        model.predict(X, "raw", out=out)
        graph = stream.end_capture()
        out.fill(0)
        graph.launch(stream)
        np.testing.assert_array_equal(cupy.asnumpy(out), want)
    model.save(tmp_path / "tuned.gpuqs")
    loaded = gpuqs.load(tmp_path / "tuned.gpuqs")
    assert loaded.to(device).engine_for(300) == model.engine_for(300)
    assert "made on a GPU" in str(loaded.explain(300))


@pytest.mark.parametrize("engine", ON_GPU)
@pytest.mark.parametrize("link", ["identity", "sigmoid"])
def test_a_captured_graph_scores_what_its_input_holds(device: TestedDevice, cupy, link: str, engine: str) -> None:
    rng = np.random.default_rng(22)
    forest = random_forest(rng, max_leaves=40, link=link)
    model = Model(forest).to(device)
    first, second = (probing_documents(rng, forest, 64) for _ in range(2))
    X, out = cupy.asarray(first), cupy.empty(64)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        model.predict(X, engine=engine, out=out)  # copies the model, and leaves scratch in the pool
        stream.synchronize()
        stream.begin_capture()
        model.predict(X, engine=engine, out=out)
        graph = stream.end_capture()
        wanted = [cupy.asnumpy(model.predict(cupy.asarray(documents), engine=engine)) for documents in (second, first)]
        del model  # nothing that the graph uses goes with it
        others = [cupy.full(size, 7, np.uint8) for size in (1 << np.arange(9, 24)).tolist()]
        for documents, want in zip((second, first), wanted, strict=True):
            X.set(documents)
            graph.launch(stream)
            stream.synchronize()
            np.testing.assert_array_equal(cupy.asnumpy(out), want)
        assert all((other == 7).all() for other in others)


FORMS = (
    np.ascontiguousarray,
    np.asfortranarray,
    lambda x: x[::-1, ::-1],
    lambda x: np.repeat(np.repeat(x, 3, 0), 2, 1)[::3, ::2],
)


@pytest.mark.parametrize("fields", [{}, {"link": "sigmoid", "base_first": False}, {"n_outputs": 3, "link": "softmax"},
                                    {"n_outputs": 3, "link": "argmax"}], ids=str)  # fmt: skip
@pytest.mark.parametrize("n", [1, 100, 3000, 20_000])
def test_repeated_calls_give_the_bits_of_first_ones(device: TestedDevice, cupy, n: int, fields: dict) -> None:
    """With other documents in other memory, on other streams, and several forms in turn."""
    rng = np.random.default_rng(n)
    forest = random_forest(rng, n_trees=300, max_leaves=40, n_features=20, **fields)
    rows, model, whole = probing_documents(rng, forest, n), Model(forest).to(device), Model(forest)
    streams = [cupy.cuda.Stream.null, cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)]
    kept = []
    for turn in range(6):
        for form in FORMS:
            for dtype in (np.float64, np.float32):
                with np.errstate(over="ignore"):
                    here = form(np.roll(rows, 7 * turn, axis=0).astype(dtype))
                with streams[turn % 3] as stream:
                    X = device.from_host(here)
                    got = [(model if turn % 2 else whole).predict(X, output) for output in ("raw", "value")]
                    want = [Model(forest).to(device).predict(X, output) for output in ("raw", "value")]
                    stream.synchronize()
                for g, w in zip(got, want, strict=True):
                    np.testing.assert_array_equal(cupy.asnumpy(g), cupy.asnumpy(w))
                kept.append(got)  # so that answers lie elsewhere each time
    assert model._calls.repeated and whole._calls.repeated


@pytest.mark.parametrize("n", [1, 3000, 100_000])
def test_repeated_calls_with_documents_of_the_host(device: TestedDevice, n: int) -> None:
    """In one piece, and chunk by chunk on two streams."""
    rng = np.random.default_rng(n)
    forest = random_forest(rng, n_trees=200, max_leaves=40, n_features=50)
    rows, model = probing_documents(rng, forest, n), Model(forest).to(device)
    for turn in range(5):
        here = np.roll(rows, turn, axis=0)
        np.testing.assert_array_equal(model.predict(here, "raw"), Model(forest).predict(here, "raw"))
    assert model._calls.repeated


def test_many_streams_in_turn(device: TestedDevice, cupy) -> None:
    """More streams than have graphs at a time, the legacy stream among them."""
    rng = np.random.default_rng(32)
    forest = random_forest(rng, n_trees=200, max_leaves=40)
    rows, model = probing_documents(rng, forest, 4000), Model(forest).to(device)
    streams = [cupy.cuda.Stream.null, *(cupy.cuda.Stream(non_blocking=True) for _ in range(40))]
    want, answers = Model(forest).predict(rows, "raw"), []
    X = cupy.asarray(rows)
    cupy.cuda.Device().synchronize()
    for _ in range(3):
        for stream in streams:
            with stream:
                answers.append(model.predict(X, "raw"))
    cupy.cuda.Device().synchronize()
    assert all((cupy.asnumpy(answer) == want).all() for answer in answers)


def test_a_stream_that_the_caller_made_the_current_one(device: TestedDevice, cupy) -> None:
    """Made current by ``use``, which ``with`` does not record: it stays so through first copies of model and labels."""
    rng = np.random.default_rng(34)
    forest = random_forest(rng, n_trees=200, max_leaves=40, link="softmax", n_outputs=3)
    rows, theirs = probing_documents(rng, forest, 4000), cupy.cuda.Stream(non_blocking=True)
    before = cupy.cuda.get_current_stream()
    theirs.use()
    try:
        X = cupy.asarray(rows)
        for output in ("raw", "class"):
            model, want = Model(forest).to(device), Model(forest).predict(rows, output)
            for given in (X, rows, X):
                answer = model.predict(given, output)
                assert cupy.cuda.get_current_stream() is theirs
                np.testing.assert_array_equal(cupy.asnumpy(answer), want)
    finally:
        before.use()


def test_repeated_calls_of_threads_do_not_mix(device: TestedDevice, cupy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Recordings may also be dropped while their work is under way."""
    monkeypatch.setattr("gpuqs.repeated_calls.KEPT", 3)
    rng = np.random.default_rng(28)
    forest = random_forest(rng, n_trees=300, max_leaves=64)
    model, sizes = Model(forest).to(device), (1, 90, 2500, 6000)
    batches = [probing_documents(rng, forest, 6000) for _ in range(6)]
    want = [Model(forest).predict(batch, "raw") for batch in batches]
    failed: list[int] = []

    def work(index: int) -> None:
        with device.active(), cupy.cuda.Stream(non_blocking=True) as stream:
            X = cupy.asarray(batches[index])
            answers = [(n, model.predict(X[:n], "raw")) for _ in range(40) for n in sizes]
            stream.synchronize()
            if not all((cupy.asnumpy(answer) == want[index][:n]).all() for n, answer in answers):
                failed.append(index)

    in_threads(work, len(batches))
    assert failed == [] and len(model._calls.repeated._calls) == 3


def test_a_repeated_call_may_be_captured(device: TestedDevice, cupy) -> None:
    rng = np.random.default_rng(29)
    forest = random_forest(rng, n_trees=300, max_leaves=64)
    model, rows = Model(forest).to(device), probing_documents(rng, forest, 5000)
    X = cupy.asarray(rows)
    with cupy.cuda.Stream(non_blocking=True) as stream:
        for _ in range(4):
            model.predict(X, "raw")
        stream.synchronize()
        stream.begin_capture()
        out = model.predict(X, "raw")
        graph = stream.end_capture()
        X.set(rows[::-1].copy())
        for _ in range(3):
            model.predict(X, "raw")
        graph.launch(stream)
        np.testing.assert_array_equal(cupy.asnumpy(out), Model(forest).predict(rows[::-1].copy(), "raw"))


@pytest.mark.parametrize("engine", ON_GPU)
@pytest.mark.parametrize("mode", ["Global", "ThreadLocal", "Relaxed"])
def test_captures_of_every_mode(device: TestedDevice, cupy, mode: str, engine: str) -> None:
    """On a stream on which no such call was made, so that memory must be allocated while work is captured."""
    rng = np.random.default_rng(30)
    forest = random_forest(rng, n_trees=20, max_leaves=40)
    model, rows = Model(forest).to(device), probing_documents(rng, forest, 3000)
    X = cupy.asarray(rows)
    out = model.predict(X, "leaf", engine=engine)
    cupy.cuda.get_current_stream().synchronize()
    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.begin_capture(getattr(cupy.cuda.runtime, f"streamCaptureMode{mode}"))
        model.predict(X, "leaf", engine=engine, out=out)
        graph = stream.end_capture()
        out.fill(-1)
        graph.launch(stream)
        np.testing.assert_array_equal(cupy.asnumpy(out), Model(forest).predict(rows, "leaf"))


def test_a_model_that_goes_is_not_in_use(device: TestedDevice, cupy) -> None:
    """Other models are copied to the device while the stream's queued work still reads this one."""
    rng = np.random.default_rng(31)
    forest, other = (random_forest(rng, n_trees=500, max_leaves=64) for _ in range(2))
    rows = probing_documents(rng, forest, 20_000)
    want, X = Model(forest).predict(rows, "raw"), cupy.asarray(rows)
    for _ in range(3):
        model = Model(forest).to(device)
        with cupy.cuda.Stream(non_blocking=True) as stream:
            answers = [model.predict(X, "raw") for _ in range(20)]
        del model
        later = Model(other).to(device)
        later.warm_up()
        stream.synchronize()
        for answer in answers:
            np.testing.assert_array_equal(cupy.asnumpy(answer), want)


def test_predict_on_the_device_does_not_wait_for_it(device: TestedDevice, cupy) -> None:
    rng = np.random.default_rng(23)
    forest = random_forest(rng, n_trees=500, max_leaves=64)
    model = Model(forest).to(device)
    X = cupy.asarray(probing_documents(rng, forest, 20_000))
    model.predict(X, "raw")
    with cupy.cuda.Stream(non_blocking=True) as stream:
        stream.synchronize()
        for _ in range(20):
            model.predict(X, "raw")
        assert not stream.done
        stream.synchronize()
