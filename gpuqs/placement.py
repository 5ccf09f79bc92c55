"""Where a call is scored, and where its answer lies: the host, or a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, cast

import numpy as np

from gpuqs.arrays import Documents, as_documents
from gpuqs.arrays.dense import without_history
from gpuqs.arrays.memory import memory_of
from gpuqs.arrays.on_devices import from_device
from gpuqs.arrays.pandas_frames import is_pandas
from gpuqs.devices import HOST, Device, GpuDevice, find_device
from gpuqs.devices.extents import is_aligned, shares_memory
from gpuqs.devices.foreign import is_jax, is_on_device, is_read_only
from gpuqs.encoded import EncodedDocuments
from gpuqs.engines import ENGINES, engines_on
from gpuqs.errors import InputError
from gpuqs.forest import Forest
from gpuqs.outputs import class_labels

_SHARED: Final = "out shares memory with X, which would change while it is read; use another array"


def place(forest: Forest, X: Any, device: Any, engine: str, output: str, base_margin: Any) -> Device:
    """The device that is asked for; else the one where documents are; else one where the engine runs.

    Raises
    ------
    ValueError, InputError
        The call cannot run there.
    """
    kind = ENGINES[engine].device if engine in ENGINES else None
    if device is None and type(X) is np.ndarray and kind != "cuda":
        return HOST
    find: Callable[[], Device] | None = None
    if device is not None:
        if device is not HOST and not (isinstance(device, str) and device == "cpu"):
            find = lambda: find_device(device)  # noqa: E731
    elif not is_pandas(X) and is_on_device(X):  # frames take long to find that an attribute is missing
        from gpuqs.devices.cuda import device_of  # imported here, as in `find_device`

        find = lambda: device_of(X)  # noqa: E731
    elif kind == "cuda":
        find = lambda: find_device("cuda")  # noqa: E731
    if find is None:
        if kind == "cuda":
            raise ValueError(f"engine {engine!r} runs on GPUs; use device='cuda', or engine='auto'")
        return HOST
    _refuse_on_gpus(forest, X, engine, output, base_margin)
    return find()


def _refuse_on_gpus(forest: Forest, X: Any, engine: str, output: str, base_margin: Any) -> None:
    able = engines_on("cuda")
    if engine in ENGINES and engine not in able:
        raise ValueError(f"engine {engine!r} does not run on GPUs; use engine='auto' or {' or '.join(map(repr, able))}")
    if isinstance(X, EncodedDocuments):
        raise InputError("encoded documents are scored on the CPU; leave device out, or pass the documents themselves")
    if base_margin is not None:
        raise ValueError("base_margin is not supported on GPUs; add it to output='raw' there, or use device='cpu'")
    if output == "class" and class_labels(forest).dtype.kind not in "biuf":
        raise InputError(
            "the class labels are strings or times, and GPUs hold only numbers; use output='value', or device='cpu'"
        )


def documents_of(X: Any, forest: Forest, device: Device) -> tuple[Documents, Device]:
    """Documents that are scored on a device, and the device where they are: that one, or the host.

    Raises
    ------
    InputError
        They are not documents for the forest, or are on another device.
    """
    adopted = None if device is HOST else device.adopt(without_history(X))
    if adopted is None:
        return as_documents(X, forest), HOST
    if not is_aligned(adopted, cast(GpuDevice, device).address(adopted)):
        raise InputError(
            f"X holds {adopted.dtype} values at addresses that are not multiples of {adopted.dtype.itemsize}, which "
            "GPUs cannot read; copy the bytes to a new array, and view that as numbers"
        )
    return from_device(adopted, forest), device


def check_out(out: Any, where: Device, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    """``out`` as an array of the device, if the answer can be written there.

    Raises
    ------
    InputError
        It has the wrong shape or type, or is elsewhere.
    """
    if is_jax(out):
        library = "NumPy" if where is HOST else "CuPy"
        raise InputError(f"out is an array of JAX's, which are immutable; leave it out, or use one of {library}'s")
    if getattr(out, "requires_grad", False):
        raise InputError("out requires a gradient, but scores have none; pass out.detach()")
    here, answer = where is HOST, where.adopt(out)
    if (
        answer is None
        or answer.shape != shape
        or answer.dtype != dtype
        or not (answer.flags.carray if here else answer.flags.c_contiguous)
        or not (here or is_aligned(answer, cast(GpuDevice, where).address(answer)))
    ):
        kind, there = ("a writable,", "") if here else ("an", f" on {where!r}")
        raise InputError(f"out must be {kind} aligned, C-contiguous {dtype} array of shape {shape}{there}")
    if not here and is_read_only(out):
        raise InputError("out is read-only; pass a writable array")
    return answer


def refuse_overlap(documents: Documents, out: Any, where: GpuDevice) -> None:
    """Refuse documents on a device that share memory with ``out`` there.

    Raises
    ------
    InputError
    """
    X = documents.chunk(0, documents.n)
    if shares_memory(X, where.address(X), out, where.address(out)):
        raise InputError(_SHARED)


def refusing_overlap(documents: Documents, X: Any, forest: Forest, out: np.ndarray, rows: int) -> Documents:
    """Host documents that `documents_of` made from ``X``, checked not to share memory with ``out``.

    ``rows`` of them are scored at a time.

    Raises
    ------
    InputError
        They are read from memory of ``out``; raised by a chunk if that is not known before.
    """

    def refuse(read: Iterable[np.ndarray]) -> None:
        if any(np.may_share_memory(array, out) for array in read):
            raise InputError(_SHARED)

    def chunk(start: int, stop: int) -> np.ndarray:
        made = documents.chunk(start, stop)
        refuse([made])  # frames of one type give views
        return made

    if not documents.copied:
        refuse([documents.chunk(0, documents.n)])
    elif documents.n > rows or isinstance(X, np.ndarray):  # a sole chunk is copied before anything is written
        refuse(memory_of(X, forest))
    return documents._replace(chunk=chunk)
