"""Every engine on documents, answers and scratch memory with inaccessible pages before and after them.

    LD_PRELOAD=guards.cpp.so GPUQS_ISA=avx2 python guarded.py [touch before | touch behind]

A byte read or written outside ends the process. Prints how many calls were tried. ``touch`` touches such a byte.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from agreement import on_cpu
from forests import probing_documents, random_forest

from gpuqs.cpu_fallback import scorer
from gpuqs.model import Model

#: Numbers of documents: all small ones, and those around the sizes of words, blocks and groups.
SIZES = (*range(1, 71), *(n + beside for n in (128, 256, 512, 1024) for beside in (-1, 0, 1)))
FEATURES = range(1, 41)
#: Memory layouts of documents: strides from the number of rows, of columns, and bytes per value.
LAYOUTS = {
    "C order": lambda n, f, b: (f * b, b),
    "F order": lambda n, f, b: (b, n * b),
    "wide rows": lambda n, f, b: ((f + 3) * b, b),
    "long columns": lambda n, f, b: (b, (n + 5) * b),
    "every other": lambda n, f, b: (4 * f * b, 2 * b),
    "rows backwards": lambda n, f, b: (-f * b, b),
    "columns backwards": lambda n, f, b: (f * b, -b),
    "all backwards": lambda n, f, b: (-b, -n * b),
    "one row again and again": lambda n, f, b: (0, b),
}
_NONE, _READ, _WRITE = 0, 1, 2
_BESIDE = 0xA5

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long)
_libc.mprotect.argtypes = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
_libc.guards_count.restype = ctypes.c_long


class Region:
    """Memory with an inaccessible page on either side."""

    def __init__(self, n_bytes: int) -> None:
        page = mmap.PAGESIZE
        self.n_bytes = -(-n_bytes // page) * page
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        at = _libc.mmap(None, self.n_bytes + 2 * page, _NONE, flags, -1, 0)
        assert at not in (None, ctypes.c_void_p(-1).value)
        self.at = at + page
        self.allow(_READ | _WRITE)
        self.bytes = np.frombuffer((ctypes.c_char * self.n_bytes).from_address(self.at), np.uint8)

    def allow(self, access: int) -> None:
        assert _libc.mprotect(self.at, self.n_bytes, access) == 0

    def array(self, shape: tuple[int, int], strides: tuple[int, int], dtype: np.dtype, first: bool) -> np.ndarray:
        """An array whose lowest byte is the region's first (``first``), or whose highest byte is its last."""
        far = [(count - 1) * stride for count, stride in zip(shape, strides, strict=True)]
        lowest, end = sum(min(0, way) for way in far), sum(max(0, way) for way in far) + dtype.itemsize
        offset = -lowest if first else self.n_bytes - end
        return np.ndarray(shape, dtype, self.bytes, offset, strides)


def model_of(n_features: int) -> Model:
    """A model that varies with ``n_features``: 1- or 2-byte leaf numbers, all shapes, categories, several outputs."""
    f = n_features
    return Model(
        random_forest(
            np.random.default_rng(f),
            n_trees=9,
            n_features=f,
            max_leaves=(300, 9, 33, 64, 130)[f % 5],
            shape=("random", "complete", "chain", "random", "oblivious", "random")[f % 6],
            n_thresholds=(20, 70, 300)[f % 3],
            n_outputs=3 if f % 4 == 0 else 1,
            categorical=0.3 if f % 7 == 0 else 0.0,
            input_dtype="float32" if f % 2 else "float64",
        )
    )


@contextmanager
def guarded_memory(first: bool) -> Iterator[None]:
    """Allocations of gpuqs and NumPy start right after an inaccessible page, or end right before one."""
    _libc.guards_begin(first)
    try:
        yield
    finally:
        _libc.guards_end()


def check(model: Model, X: Any, expected: np.ndarray, answers: Region, first: bool, **options: Any) -> None:
    """The answer, written between guard pages, equals the expected bits, and nothing outside it is written."""
    answers.bytes[:] = _BESIDE
    out = answers.array(expected.shape, expected.strides, expected.dtype, first)
    with guarded_memory(not first):
        model.predict(X, out=out, **options)
    assert out.tobytes() == expected.tobytes()
    beside = answers.bytes[out.nbytes :] if first else answers.bytes[: -out.nbytes]
    assert (beside == _BESIDE).all()


def touch(where: str) -> None:
    """Read a byte just outside an array."""
    with guarded_memory(where == "before"):
        array = np.empty(4000, np.uint8)
    ctypes.string_at(array.ctypes.data + (-1 if where == "before" else array.nbytes), 1)


def try_all() -> int:
    """Try half of the sizes with each number of features, every layout in turn, every engine; return the call count."""
    rows, answers = Region(4 * max(SIZES) * max(FEATURES) * 8), Region(max(SIZES) * 9 * 8)
    turn, calls = 0, 0
    for f in FEATURES:
        dtype = np.dtype((np.float32, np.float64)[f // 2 % 2])
        model = model_of(f)
        engines = [name for name, reason in on_cpu(model).items() if reason is None and name != "reference"]
        made = probing_documents(np.random.default_rng(1), model.forest, max(SIZES), dtype.type)
        known = {output: model.predict(made, output, engine="reference") for output in ("raw", "leaf")}
        with guarded_memory(f % 2 == 0):
            for engine in engines:
                model.predict(made[:1], engine=engine)
        for n in SIZES[f % 2 :: 2]:
            turn += 1
            layout, output, first = list(LAYOUTS)[turn % len(LAYOUTS)], ("raw", "leaf")[turn % 5 // 4], turn % 4 < 2
            rows.allow(_READ | _WRITE)
            X = rows.array((n, f), LAYOUTS[layout](n, f, dtype.itemsize), dtype, first)
            X[...] = made[0] if layout.startswith("one row") else made[:n]
            rows.allow(_READ)
            expected = known[output][:n]
            if layout.startswith("one row"):
                expected = np.repeat(expected[:1], n, axis=0)
            for engine in engines:
                n_threads = 1 + calls % 7 // 6
                print(f, n, layout, dtype, first, output, engine, n_threads, file=sys.stderr)
                check(model, X, expected, answers, not first, output=output, engine=engine, n_threads=n_threads)
                calls += 1
            if "bitslice" in engines and turn % 3 == 0:
                with guarded_memory(first):
                    coded = model.encode(X)
                check(model, coded, expected, answers, not first, output=output)
                calls += 1
    return calls


def main() -> None:
    core = next(name for name in sys.modules if name.endswith("._multiarray_umath"))  # NumPy renamed its package
    paths = [str(sys.modules[name].__file__).encode() for name in (scorer.__name__, core)]
    assert _libc.guards_watch((ctypes.c_char_p * 2)(*paths), 2) >= 2
    if sys.argv[1:]:
        touch(sys.argv[2])
    print(json.dumps({"calls": try_all(), "blocks": _libc.guards_count()}))


if __name__ == "__main__":
    main()
