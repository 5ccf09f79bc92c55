"""Arrays of other libraries on a device: recognized by class, waited for or not, answered in their own memory."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from emulated_cupy import Runtime, lazy_device
from forests import random_forest

from gpuqs.devices import HOST, cuda
from gpuqs.errors import DeviceError, InputError
from gpuqs.placement import check_out, documents_of


def test_calls_with_arrays_of_libraries_that_follow_no_streams_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    device, cupy = lazy_device()
    jax_array, tensor, cupys, others, numbas = (
        type("Array", (), {"__module__": name})() for name in ("jaxlib._jax", "torch", "cupy", "paddle", "numba.cuda")
    )
    sub_class = type("MetaTensor", (type(tensor),), {"__module__": "monai.data.meta_tensor"})()
    monkeypatch.setattr(cuda.foreign, "hand_back", lambda array, X: array)
    waited_for = (jax_array, others, numbas)
    for X in (*waited_for, tensor, sub_class, cupys):
        notes: list[int] = []
        with cupy.cuda.Stream(non_blocking=True):
            cupy.queues.current.queue(lambda notes=notes: notes.append(1))
            assert device.hand_back("answer", X) == "answer"
        assert (notes == [1]) is (X in waited_for)
    for place, mend in ((device, "CuPy's"), (HOST, "NumPy's")):
        with pytest.raises(InputError, match=f"JAX's, which are immutable; leave it out, or use one of {mend}"):
            check_out(jax_array, place, (3,), np.dtype(np.float64))
        with pytest.raises(InputError, match=r"out requires a gradient.*pass out\.detach\(\)"):
            check_out(Torch.Tensor(), place, (3,), np.dtype(np.float64))


def test_where_arrays_lie_is_told_by_either_protocol() -> None:
    for there, kind in ((True, 2), (True, 13), (False, 1), (False, 3)):
        assert cuda.foreign.is_on_device(SimpleNamespace(__dlpack_device__=lambda kind=kind: (kind, 0))) is there
    assert cuda.foreign.is_on_device(SimpleNamespace(__cuda_array_interface__={}))  # Numba's, RMM's
    assert not cuda.foreign.is_on_device(SimpleNamespace()) and not cuda.foreign.is_on_device(np.zeros(3))


def test_the_device_of_an_array_is_told_without_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """From CUDA's array interface, as RMM's arrays have it; the current device for an array without elements."""
    runtime = SimpleNamespace(pointerGetAttributes={4096: SimpleNamespace(device=1)}.__getitem__, getDevice=lambda: 0)
    monkeypatch.setattr(cuda, "_device", lambda index: index)
    monkeypatch.setattr(cuda, "_count_devices", lambda cupy: 2)
    monkeypatch.setattr(cuda, "_import_cupy", lambda: SimpleNamespace(cuda=SimpleNamespace(runtime=runtime)))
    for address, device in ((4096, 1), (0, 0)):
        assert cuda.device_of(SimpleNamespace(__cuda_array_interface__={"data": (address, False)})) == device


def test_arrays_that_are_waited_for_are_not_captured() -> None:
    device, cupy = lazy_device()
    others = SimpleNamespace(__cuda_array_interface__={})
    with cupy.cuda.Stream(non_blocking=True):
        cupy.queues.current.begin_capture()
        with pytest.raises(DeviceError, match=r"other than CuPy and PyTorch cannot be captured.*pass an array of one"):
            device.adopt(others)
        assert device.adopt(np.zeros(3)) is None


class Torch:
    """The part of PyTorch that makes answers; tensors that require gradients do not hand out their memory."""

    float64 = "torch.float64"

    class Tensor:
        __module__ = "torch"
        device, requires_grad = "cuda:0", True

        def __dlpack__(self, **named: object) -> None:
            raise RuntimeError("Can't export tensors that require gradient, use tensor.detach()")

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

        @property
        def __cuda_array_interface__(self) -> dict:
            raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad")

        def detach(self) -> object:
            return SimpleNamespace(__dlpack_device__=lambda: (2, 0), __dlpack__=True)

    @staticmethod
    def empty(shape: tuple[int, ...], dtype: str, device: str) -> tuple:
        return shape, dtype, device


def test_answers_to_tensors_are_memory_of_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch reuses the memory after its own stream has read it."""
    (device, cupy), tensor = lazy_device(), Torch.Tensor()
    monkeypatch.setitem(sys.modules, "torch", Torch)
    monkeypatch.setattr(cuda, "bindings", {"runtime": Runtime()}.__getitem__)
    form = (3, 2), np.dtype(np.float64)
    assert device.own_answer(tensor, *form) == ((3, 2), "torch.float64", "cuda:0")
    assert device.own_answer(cupy.empty(3), *form) is HOST.own_answer(tensor, *form) is None
    with cupy.cuda.Stream(non_blocking=True):
        cupy.queues.current.begin_capture()
        assert device.own_answer(tensor, *form) is None  # the answer must stay as long as the graph


def test_answers_to_libraries_that_read_on_are_memory_that_no_call_has_next(monkeypatch: pytest.MonkeyPatch) -> None:
    """JAX lets go of an array while its own stream still reads it."""
    (device, cupy), asked = lazy_device(), []
    memory = cupy.cuda.Memory
    monkeypatch.setattr(cupy.cuda, "Memory", lambda n_bytes: asked.append(n_bytes) or memory(n_bytes))
    device.empty((3, 2), np.float64)
    assert asked == [], "of the pool"
    for module in ("jaxlib._jax", "jax", "numba.cuda"):
        X = type("Array", (), {"__module__": module})()
        assert device.own_answer(X, (3, 2), np.dtype(np.float64)) is None  # its answer is made from the device's memory
        answer = device.answer_beside(X, (3, 2), np.dtype(np.float64))
        assert asked.pop() == answer.nbytes == 48 and answer.shape == (3, 2)
    paddles = type("Array", (), {"__module__": "paddle"})()
    device.answer_beside(paddles, (3, 2), np.dtype(np.float64))
    assert asked == [] and device.own_answer(paddles, (3, 2), np.dtype(np.float64)) is None


def test_arrays_that_are_not_to_be_written_to_are_no_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    device, _ = lazy_device()
    monkeypatch.setattr(type(device), "adopt", lambda self, X: X)
    monkeypatch.setattr(type(device), "address", lambda self, X: 4096)
    flags = SimpleNamespace(c_contiguous=True)
    form = {"shape": (3,), "strides": (8,), "dtype": np.dtype(np.float64), "flags": flags}
    to_write, to_read = (SimpleNamespace(**form, __cuda_array_interface__={"data": (4096, no)}) for no in (False, True))
    assert check_out(to_write, device, (3,), np.dtype(np.float64)) is to_write
    with pytest.raises(InputError, match="out is read-only; pass a writable array"):
        check_out(to_read, device, (3,), np.dtype(np.float64))
    with pytest.raises(InputError, match="out must be an aligned, C-contiguous float32 array"):
        check_out(to_read, device, (3,), np.dtype(np.float32))


@pytest.mark.parametrize("error", [BufferError, NotImplementedError, TypeError, ValueError])
def test_arrays_that_cupy_does_not_take_are_named(error: type[Exception]) -> None:
    def refuse(X: object) -> None:
        raise error("dtype bfloat16 is not known")

    has = {"__module__": "paddle", "__dlpack__": True, "__dlpack_device__": lambda self: (2, 0)}
    cupy = SimpleNamespace(ndarray=np.ndarray, from_dlpack=refuse)
    with pytest.raises(InputError, match=r"paddle\.Tensor cannot be shared with CuPy: dtype bfloat16.*cast it"):
        cuda.foreign.adopt(cupy, type("Tensor", (), has)())


def test_tensors_that_keep_their_history_are_read_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    tensor, read = Torch.Tensor(), []
    monkeypatch.setattr(cuda, "_device", lambda index: index)
    monkeypatch.setattr(cuda, "_import_cupy", lambda: SimpleNamespace(cuda=None))
    monkeypatch.setattr(cuda, "_count_devices", lambda cupy: 1)
    assert cuda.foreign.is_on_device(tensor) and cuda.device_of(tensor) == 0
    cupy = SimpleNamespace(ndarray=np.ndarray, from_dlpack=lambda X: read.append(X) or np.zeros((3, 2), ">f4"))
    device = SimpleNamespace(adopt=lambda X: cuda.foreign.adopt(cupy, X), address=lambda array: 0)
    with pytest.raises(InputError, match="byte order"):  # its contents are looked at
        documents_of(tensor, random_forest(np.random.default_rng(0), n_features=2), device)
    assert len(read) == 1 and not hasattr(read[0], "requires_grad")
