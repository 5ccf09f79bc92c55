"""Memory of the emulated device: given back and reused in stream order, as in CuPy's pool, and then poisoned."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from emulation.streams import Queues, Stream, StreamError

#: Guard bytes after each piece of memory, which nobody may write.
GUARD = np.full(8192, 0x5A, np.uint8)


class Memory:
    """Bytes, and how often they were given back: by the host, and by the stream's work."""

    def __init__(self, n_bytes: int) -> None:
        whole = np.empty(n_bytes + len(GUARD), np.uint8)
        self.bytes, self.guard = whole[:n_bytes], whole[n_bytes:]
        self.guard[:] = GUARD
        self.returns = self.returns_run = 0


class Block:
    """Memory on loan: goes back to its pool when the last array in it goes."""

    def __init__(self, pool: Pool, memory: Memory, stream: Stream | None) -> None:
        self.pool, self.memory, self.stream = pool, memory, stream

    def __del__(self) -> None:
        self.pool.take_back(self.memory, self.stream)


class LentBlock:
    """A block that goes back when its loan does, after the last array in it is gone."""

    def __init__(self, block: Block, loan: Any) -> None:
        self.pool, self.memory, self.stream, self.loan = block.pool, block.memory, block.stream, loan


class Pool:
    """Free memory by the stream that it was lent on, as in CuPy's pool; host memory has no stream."""

    def __init__(self, queues: Queues) -> None:
        self.queues = queues
        self.active = 0  # how often the device is made the active one
        self.captured: list[Any] = []  # what graphs use
        self._free: dict[tuple[Stream | None, int], list[Memory]] = {}
        self._noise = np.random.default_rng(0)

    def lend(self, n_bytes: int, stream: Stream | None) -> Block:
        block = Block(self, self._find(n_bytes, stream), stream)
        if self.active and stream is not None and stream.capturing:
            self.captured.append(block)
        return block

    def _find(self, n_bytes: int, stream: Stream | None) -> Memory:
        free = self._free.get((stream, n_bytes))
        if free:
            return free.pop()
        memory = Memory(n_bytes)
        self._poison(memory)
        return memory

    def take_back(self, memory: Memory, stream: Stream | None) -> None:
        """Poison the memory: at once for host memory, else in stream order."""
        memory.returns += 1

        def run() -> None:
            memory.returns_run += 1
            self._poison(memory)

        if stream is None or stream.capturing:  # a graph is replayed after others have got the memory
            run()
        else:
            stream.append(run)
        self._free.setdefault((stream, len(memory.bytes)), []).append(memory)

    def _poison(self, memory: Memory) -> None:
        memory.bytes[:] = self._noise.integers(0, 256, len(memory.bytes), np.uint8)

    def run_later(self, what: str, blocks: Iterable[Block], run: Callable[[], None]) -> None:
        """Queue work that uses these blocks on the current stream.

        It fails if their return has run before it, or if work of another stream may still use their memory.
        """
        used = [(block.memory, block.memory.returns) for block in blocks]

        def checked() -> None:
            for memory, returns in used:
                if memory.returns_run > returns:
                    raise StreamError(f"{what} runs when memory that it uses was given back")
                if memory.returns_run < returns:
                    raise StreamError(f"{what} runs when work of another stream may still use its memory")
            run()
            for memory, _ in used:
                if not np.array_equal(memory.guard, GUARD):
                    raise StreamError(f"{what} writes past the end of memory")

        self.queues.current.queue(checked)


class PinnedArray(np.ndarray):
    """Pinned memory of the host; views keep the block alive."""

    block: Block | None = None

    def __array_finalize__(self, source: Any) -> None:
        self.block = getattr(source, "block", None)


class DeviceArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array in device memory, with what gpuqs uses of `cupy.ndarray`: every operation is queued.

    NumPy's functions on it act like CuPy's, which are compiled with ``-ftz=true``: float32 denormals count as zeros.

    Parameters
    ----------
    block : Block
    data : ndarray
        The memory; only queued work may use it.
    """

    def __init__(self, block: Block | LentBlock, data: np.ndarray) -> None:
        self.block, self.data = block, data
        self.shape, self.dtype, self.strides = data.shape, data.dtype, data.strides
        self.ndim, self.size, self.nbytes, self.flags = data.ndim, data.size, data.nbytes, data.flags

    def __len__(self) -> int:
        return len(self.data)

    def __array__(self, *how: Any, **named: Any) -> np.ndarray:
        raise TypeError("implicit conversion of device memory to a NumPy array; use to_host")

    def __getitem__(self, key: Any) -> DeviceArray:
        if isinstance(key, DeviceArray):
            return self._compute("take", lambda data, at: data[at % len(data)], self, key)  # indices may be noise
        key = key if isinstance(key, tuple) else (key,)
        view = self.data[key if Ellipsis in key else (*key, Ellipsis)]
        return DeviceArray(self.block, view)

    def __setitem__(self, key: Any, value: Any) -> None:
        _refuse_host_arrays(value)
        target = self[key]
        arrays = [array for array in (target, value) if isinstance(array, DeviceArray)]
        into, what = target.data, _data(value)
        self._run_later("setitem", arrays, lambda: np.copyto(into, what, casting="unsafe"))

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any) -> Any:
        def run(*values: Any) -> np.ndarray:
            return _flushed(getattr(ufunc, method)(*map(_flushed, values), **options))

        answer = self._compute(ufunc.__name__, run, *inputs)
        if out is None:
            return answer
        out[0][...] = answer
        return out[0]

    def _compute(self, what: str, function: Callable[..., np.ndarray], *inputs: Any) -> DeviceArray:
        for value in inputs:
            _refuse_host_arrays(value)
        values = [_data(value) for value in inputs]
        with np.errstate(all="ignore"):
            like = function(*values)  # on whatever is there now, only for shape and type
        answer = empty(self.block.pool, like.shape, like.dtype)
        target = answer.data

        def run() -> None:
            with np.errstate(all="ignore"):
                target[...] = function(*values)

        self._run_later(what, [answer, *(value for value in inputs if isinstance(value, DeviceArray))], run)
        return answer

    def _run_later(self, what: str, arrays: list[DeviceArray], run: Callable[[], None]) -> None:
        self.block.pool.run_later(what, [array.block for array in arrays], run)

    def astype(self, dtype: npt.DTypeLike) -> DeviceArray:
        return self._compute("astype", lambda data: data.astype(dtype), self)

    def copy(self) -> DeviceArray:
        return self._compute("copy", np.copy, self)

    def max(self, axis: int, keepdims: bool = False) -> DeviceArray:
        return self._compute("max", lambda data: data.max(axis=axis, keepdims=keepdims), self)

    def sum(self, axis: int, keepdims: bool = False) -> DeviceArray:
        return self._compute("sum", lambda data: data.sum(axis=axis, keepdims=keepdims), self)

    def argmax(self, axis: int) -> DeviceArray:
        return self._compute("argmax", lambda data: data.argmax(axis=axis), self)

    def reshape(self, *shape: Any) -> DeviceArray:
        view = self.data.reshape(*shape)
        assert view.size == 0 or np.shares_memory(view, self.data), "a copy, which CuPy would queue"
        return DeviceArray(self.block, view)

    def view(self, dtype: npt.DTypeLike) -> DeviceArray:
        return DeviceArray(self.block, self.data.view(dtype))


def empty(pool: Pool, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> DeviceArray:
    """Memory lent on the current stream."""
    shape, dtype = (shape,) if np.isscalar(shape) else tuple(shape), np.dtype(dtype)
    n_bytes = int(np.prod(shape)) * dtype.itemsize
    block = pool.lend(n_bytes, pool.queues.current)
    return DeviceArray(block, block.memory.bytes.view(dtype).reshape(shape))


def to_host(array: Any) -> np.ndarray:
    """Contents of an array after the current stream's work is done; host arrays are returned as they are."""
    if not isinstance(array, DeviceArray):
        return array
    array.block.pool.queues.current.synchronize()
    return array.data.copy()


def _data(value: Any) -> Any:
    return value.data if isinstance(value, DeviceArray) else value


def _flushed(x: Any) -> Any:
    """``x`` with float32 denormals replaced by zeros of the same sign."""
    if not isinstance(x, np.ndarray) or x.dtype != np.float32:
        return x
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x)


def _refuse_host_arrays(value: Any) -> None:
    if isinstance(value, np.ndarray) and value.ndim:
        raise TypeError("an array of the host among those of the device: CuPy refuses it")
