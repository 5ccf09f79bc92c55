"""Vectorized exponentials equal the C library's bit for bit, whatever the neighbouring documents."""

from __future__ import annotations

import ctypes
import math
import os
import platform
import re
import struct
from decimal import Decimal, localcontext
from pathlib import Path

import numpy as np
import pytest

from gpuqs.cpu_fallback import Link
from gpuqs.cpu_fallback.links import VECTOR_EXPONENTIALS
from gpuqs.links import KERNELS

TABLE = Path(__file__).parents[2] / "cuda" / "powers_of_two.cuh"


def exp(x: np.ndarray) -> np.ndarray:
    """Exponentials by the link of that name, one number per document."""
    out = np.empty((len(x), 1), x.dtype)
    Link("exp", x.dtype, 1).apply(np.ascontiguousarray(x[:, None]), out, 1)
    return out[:, 0]


def one_by_one(x: np.ndarray) -> np.ndarray:
    """Exponentials by the C library."""
    library = ctypes.CDLL("libm.so.6")
    function, number = (library.expf, ctypes.c_float) if x.dtype == np.float32 else (library.exp, ctypes.c_double)
    function.restype, function.argtypes = number, [number]
    return np.array([function(each) for each in x.tolist()], x.dtype)


def assert_same_bits(got: np.ndarray, want: np.ndarray) -> None:
    """All NaNs count as equal."""
    bits = f"u{got.itemsize}"
    there = ~np.isnan(want)
    np.testing.assert_array_equal(np.isnan(got), ~there)
    np.testing.assert_array_equal(got[there].view(bits), want[there].view(bits))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [1e-300, 1e-30, 1e-9, 1e-3, 1.0, 20.0, 86.0, 88.7, 511.9, 700.0, 760.0])
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks libm.so.6, which is glibc's")
def test_numbers_of_all_magnitudes(scale: float, dtype: type) -> None:
    rng = np.random.default_rng(int(scale * 10))
    x = (scale * rng.uniform(-1, 1, 20_000)).astype(dtype)
    assert_same_bits(exp(x), one_by_one(x))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="asks libm.so.6, which is glibc's")
def test_powers_of_two_and_what_lies_between_them(dtype: type) -> None:
    """Exponents where the table index changes, and where rounding to it flips; the limits; NaN."""
    halves = np.arange(-512 * 185, 512 * 185, dtype=np.float64) * (math.log(2) / 256)
    halves = halves[np.abs(halves) < (88 if dtype == np.float32 else 512)].astype(dtype)[::5]
    ends = np.array([0.0, -0.0, 5e-324, 88.0, 88.72, 88.73, 103.9, 104.0, 512.0, 709.78, 709.79, 745.1, 745.2, np.inf])
    beside, ends_too = np.nextafter(halves, dtype(9e9)), np.concatenate([ends, -ends, [np.nan]]).astype(dtype)
    x = np.concatenate([halves, beside, ends_too])
    with np.errstate(over="ignore"):
        assert_same_bits(exp(x), one_by_one(x))
    for each in (*ends, np.nan):  # one at a time
        x = np.array([each], dtype)
        assert_same_bits(exp(x), one_by_one(x))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("n_outputs", [1, 2, 3, 4, 9, 300])
@pytest.mark.parametrize("name", KERNELS)
def test_values_of_a_document_do_not_depend_on_its_neighbours(name: str, n_outputs: int, dtype: type) -> None:
    rng = np.random.default_rng(n_outputs)
    n = 600 if n_outputs < 300 else 20
    raw = rng.normal(0, 3, (n, n_outputs)).astype(dtype)
    raw[n // 3] *= 400
    raw[n // 2] = np.inf
    raw[n // 2 + 1, 0] = np.nan
    raw[n // 2 + 2, -1] = -708.39641853226408
    link = Link(name, dtype, n_outputs, 0.7, 3.0)
    width = 1 if name == "argmax" else n_outputs
    together, alone = np.empty((n, width), dtype), np.empty((n, width), dtype)
    link.apply(raw, together, 1)
    for d in range(n):
        link.apply(raw[d : d + 1], alone[d : d + 1], 1)
    assert_same_bits(together, alone)
    by_two = np.empty_like(together)
    link.apply(raw, by_two, 2)
    assert_same_bits(by_two, together)
    if width == n_outputs:
        link.apply(raw, raw, 1)
        assert_same_bits(raw, together)


@pytest.mark.skipif("GLIBC_TUNABLES" in os.environ, reason="it may forbid glibc what the processor has")
def test_vectors_make_them_where_they_can() -> None:
    """If an operation or constant differed from glibc's, the check at load time would notice; this test checks that."""
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    library, version = platform.libc_ver()
    glibc = library == "glibc" and tuple(map(int, version.split("."))) >= (2, 28)
    fma = bool(re.search(r"^flags\b.*\bavx2\b", flags, re.MULTILINE)) and " fma " in flags
    assert (glibc and fma) == VECTOR_EXPONENTIALS


def test_powers_of_two_are_the_nearest() -> None:
    rows = re.findall(r"\{(0x[0-9a-f]{16}), ([^}]*)\}", TABLE.read_text())
    assert len(rows) == 128
    with localcontext() as context:
        context.prec = 60
        for i, (bits, tail) in enumerate(rows):
            true = Decimal(2) ** (Decimal(i) / 128)
            nearest = float(true)
            assert struct.unpack("<Q", struct.pack("<d", nearest))[0] - (i << 45) == int(bits, 16)
            assert float((true - Decimal(nearest)) / Decimal(nearest)) == float.fromhex(tail)
