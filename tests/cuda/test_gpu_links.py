"""Links, averages and class decisions by the kernel, against `gpuqs.links`: exact, or within the bounds stated here."""

from __future__ import annotations

import shutil

import numpy as np
import pytest
from emulation.device import EmulatedDevice
from forests import random_forest

from gpuqs import links
from gpuqs.cpu_fallback.links import VECTOR_EXPONENTIALS
from gpuqs.engines.gpu.links import apply_link, find_classes
from gpuqs.links import KERNELS
from gpuqs.outputs import class_numbers

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++")

#: Links without an exponential, or with CatBoost's: every bit is the CPU's.
EXACT = ("identity", "argmax", "hinge", "sqrt_signed", "ascending", "table_exp", "table_softmax", "mean_variance")
#: Links with the C library's exp, whose bits are the CPU's if that library computes as glibc does.
BY_EXP = (
    *("sigmoid", "ova_sigmoid", "clamped_sigmoid", "exp", "double_exp", "softmax"),
    *("rounded_softmax", "narrow_softmax", "mirrored_sigmoid", "softmax_beside_zero"),
)
#: Links that add up exponentials of all outputs.
ADDED_UP = ("softmax", "narrow_softmax", "rounded_softmax", "expectiles")
#: onnxruntime's and Treelite's, computed in float32; the first one subtracts from 1.
OF_FLOATS = ("mirrored_sigmoid", "softmax_beside_zero", "narrow_softmax", "rounded_softmax")
#: Units in the last place by which the others may differ from the C library's.
ULPS = 8
REALS = pytest.mark.parametrize("real", [np.float32, np.float64])


@pytest.fixture(scope="module")
def device() -> EmulatedDevice:
    return EmulatedDevice()


def probing_sums(real: type, n_outputs: int) -> np.ndarray:
    """Random sums of every size; denormals, zeros, infinities, NaN, ends of exp's range; equal ones in a row."""
    info, rng = np.finfo(real), np.random.default_rng(30)
    least = float(info.smallest_subnormal)
    special = [0, least, 3 * least, float(info.tiny) / 2, float(info.tiny), float(info.max), np.inf]
    ends = [np.log(float(info.max)), np.log(float(info.tiny)), np.log(least), np.log(2), 0.5, 1, 127, 128, 1024]
    special = np.array([*special, *ends, np.nextafter(1, 2)])
    special = np.concatenate([special, -special, [np.nan]])
    wide = 1.2 * ends[0]
    columns = [rng.normal(size=(300, n_outputs)), rng.uniform(-wide, wide, (300, n_outputs)),
               rng.choice(special, (400, n_outputs)), np.repeat(special, n_outputs).reshape(-1, n_outputs),
               rng.normal(size=(50, n_outputs)) * 100 * least]  # fmt: skip
    with np.errstate(over="ignore"):
        return np.concatenate(columns).astype(real)


def on_device(device: EmulatedDevice, link: str, scale: float, divisor: float, sums: np.ndarray) -> np.ndarray:
    shape = (len(sums), 1 if link == "argmax" else sums.shape[1])
    out = device.empty(shape, sums.dtype)
    with device.active():
        apply_link(device, link, scale, divisor, device.from_host(sums), out)
    return device.to_host(out)


def same(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Where two arrays hold the same number, with the same sign of zeros, or both hold NaN."""
    return ((got == want) & (np.signbit(got) == np.signbit(want))) | (np.isnan(got) & np.isnan(want))


@REALS
@pytest.mark.parametrize("n_outputs", [1, 2, 40])
@pytest.mark.parametrize("link", KERNELS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_values_are_the_cpus(device: EmulatedDevice, link: str, n_outputs: int, real: type) -> None:
    if link == "mean_variance" and n_outputs == 1:
        pytest.skip("a mean and a deviation are two outputs")
    sums = probing_sums(real, n_outputs)
    for scale, divisor in ((1.0, 1.0), (0.7, 3.0), (-0.01, 1.0)):
        got = on_device(device, link, scale, divisor, sums)
        want = links.apply_link(link, scale, sums, divisor=divisor)
        assert (got.shape, got.dtype) == (want.shape, want.dtype)
        exact = link in EXACT or (link in BY_EXP and VECTOR_EXPONENTIALS)
        bound = 0 if exact else ULPS + (n_outputs if link in ADDED_UP else 0)
        size = np.maximum.accumulate(np.abs(want), axis=1) if link == "expectiles" else np.abs(want)
        if link in OF_FLOATS:
            size = np.ones_like(size, np.float32) if link == "mirrored_sigmoid" else size.astype(np.float32)
        with np.errstate(invalid="ignore"):
            apart = np.abs(got.astype(np.longdouble) - want) / np.spacing(size)
        wrong = ~same(got, want) & ~(apart <= bound)
        assert not wrong.any(), (sums[wrong.any(axis=1)][:5], got[wrong][:5], want[wrong][:5])


@REALS
def test_values_may_lie_where_the_sums_lay(device: EmulatedDevice, real: type) -> None:
    sums = probing_sums(real, 5)
    for link in set(KERNELS) - {"argmax"}:
        want = on_device(device, link, 0.7, 3.0, sums)
        out = device.from_host(sums.copy())
        with device.active():
            apply_link(device, link, 0.7, 3.0, out, out)
        np.testing.assert_array_equal(device.to_host(out), want)


@pytest.mark.parametrize(("real", "bound"), [(np.float32, 0.502), (np.float64, 2)])
def test_exponentials_and_logarithms_are_true(device: EmulatedDevice, real: type, bound: float) -> None:
    rng, info = np.random.default_rng(31), np.finfo(real)
    low, high = np.log(float(info.smallest_subnormal)), np.log(float(info.max))
    x = np.concatenate([rng.uniform(low, high, 20_000), rng.normal(size=10_000)]).astype(real)[:, None]
    grown = on_device(device, "exp", 1.0, 1.0, x)
    if VECTOR_EXPONENTIALS:
        assert same(grown, links.apply_link("exp", 1.0, x)).all()
    pairs = [
        (grown, np.exp(x.astype(np.longdouble))),
        (on_device(device, "exp2", 1.0, 1.0, x), np.exp2(x.astype(np.longdouble))),
        (on_device(device, "log1p_exp", 1.0, 1.0, x), np.log1p(grown.astype(np.longdouble))),
    ]
    for got, true in pairs:
        apart = np.abs(got.astype(np.longdouble) - true) / np.spacing(np.abs(true).astype(real))
        assert apart.max() <= bound


@REALS
@pytest.mark.parametrize(
    "fields",
    [{"link": "sigmoid"}, {"link": "sigmoid", "class_rule": "raw"}, {"link": "hinge", "class_rule": "raw_or_zero"},
     {"link": "softmax", "n_outputs": 3, "class_rule": "raw"}, {"link": "argmax", "n_outputs": 5},
     {"link": "hinge", "n_outputs": 2, "class_rule": "raw"}],
    ids=str,
)  # fmt: skip
def test_classes_are_numpys(device: EmulatedDevice, fields: dict, real: type) -> None:
    forest = random_forest(np.random.default_rng(32), sum_dtype=np.dtype(real).name, **fields)
    sums = probing_sums(real, forest.n_outputs)
    with np.errstate(over="ignore", invalid="ignore"):
        want = class_numbers(forest, sums, forest.n_trees)
        scores = links.to_values(forest, sums) if links.decides_on_values(forest) else sums
    out = device.empty((len(sums), want.size // len(sums)), np.int64)
    with device.active():
        find_classes(device, links.class_decision(forest), device.from_host(scores), out)
    np.testing.assert_array_equal(device.to_host(out).reshape(want.shape), want)
    assert len(np.unique(want)) == max(forest.n_outputs if want.ndim == 1 else 2, 2)
