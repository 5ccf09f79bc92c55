"""The emulation finds what it claims to find; the real kernels are clean under both sanitizers."""

from __future__ import annotations

import os
import shutil

import numpy as np
import pytest
from emulation.module import ORDERS, EmulatedModule, EmulationError, runtime_library
from emulation.sanitized import PARTS, PLANTED, REPORTS, in_own_process, planted_kernels, run_planted

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++")

SOUND = [name for name in planted_kernels() if name.startswith("sound_")]


def needs(sanitizer: str) -> pytest.MarkDecorator:
    there = shutil.which("g++") is not None and os.path.isabs(runtime_library(sanitizer))
    return pytest.mark.skipif(not there, reason=f"g++ has no {sanitizer} sanitizer library here")


@pytest.mark.parametrize("name", SOUND)
def test_sound_kernels_give_one_answer(name: str) -> None:
    outputs = [run_planted(name, order, seed) for seed, order in enumerate(ORDERS)]
    for other in outputs[1:]:
        np.testing.assert_array_equal(outputs[0], other)


def test_the_emulation_computes_what_the_device_would() -> None:
    threads = np.arange(64)
    np.testing.assert_array_equal(run_planted("sound_neighbour"), np.tile((threads + 1) % 64, 2))
    np.testing.assert_array_equal(run_planted("sound_masks"), np.zeros(128))
    assert run_planted("sound_sum")[[0, 32, 64, 96]].tolist() == [496, 1520, 496, 1520]


@pytest.mark.parametrize("name", ["missing_barrier", "missing_second_barrier", "missing_warp_barrier",
                                  "uninitialised_shared", "shared_read_out_of_bounds"])  # fmt: skip
def test_answers_that_hang_on_order_or_noise_differ(name: str) -> None:
    outputs = [run_planted(name, order, seed) for seed, order in enumerate(ORDERS)]
    assert any(not np.array_equal(outputs[0], other) for other in outputs[1:])


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("divergent_barrier", "divergent barrier"),
        ("barrier_after_exit", "threads have exited"),
        ("barrier_against_shuffle", "deadlock"),
        ("shuffle_names_exited_lanes", "not there"),
        ("shuffle_outside_its_mask", "lane outside its own mask"),
        ("shared_write_out_of_bounds", "past the end of shared memory"),
    ],
)
def test_wrong_kernels_are_refused(name: str, message: str) -> None:
    with pytest.raises(EmulationError, match=message):
        run_planted(name)


@needs("thread")
@pytest.mark.parametrize(
    "name",
    ["missing_barrier", "missing_second_barrier", "plain_and", "missing_warp_barrier", "blocks_share_a_word"],
)
def test_thread_sanitizer_finds_races(name: str) -> None:
    done = in_own_process("thread", "planted", name)
    assert REPORTS["thread"] in done.stderr, done.stderr[-2000:]


@needs("address")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("shared_write_out_of_bounds", REPORTS["address"]),
        ("shared_read_out_of_bounds", REPORTS["address"]),
        ("global_read_out_of_bounds", REPORTS["address"]),
        ("misaligned", "misaligned address"),
        ("shift_too_far", "shift exponent"),
    ],
)
def test_address_sanitizer_finds_bad_accesses(name: str, message: str) -> None:
    done = in_own_process("address", "planted", name)
    assert done.returncode != 0
    assert message in done.stderr, done.stderr[-2000:]


@pytest.mark.parametrize("sanitizer", [pytest.param(s, marks=needs(s)) for s in REPORTS])
def test_sound_kernels_are_clean(sanitizer: str) -> None:
    done = in_own_process(sanitizer, "planted", *SOUND)
    assert (done.returncode, done.stdout) == (0, "finished\n"), done.stderr[-4000:]
    assert REPORTS[sanitizer] not in done.stderr


@pytest.mark.parametrize("sanitizer", [pytest.param(s, marks=needs(s)) for s in REPORTS])
@pytest.mark.parametrize("part", PARTS)
def test_the_real_kernels_are_clean(sanitizer: str, part: str) -> None:
    done = in_own_process(sanitizer, "kernels", part)
    assert (done.returncode, done.stdout) == (0, "finished\n"), done.stderr[-4000:]
    assert REPORTS[sanitizer] not in done.stderr


def test_wrong_launches_are_refused() -> None:
    module = EmulatedModule(PLANTED, planted_kernels())
    kernel, out = module.get_function("sound_sum"), np.zeros(128, np.int32)
    with pytest.raises(EmulationError, match="1 arguments, it takes 2"):
        kernel((2,), (64,), (out,))
    with pytest.raises(EmulationError, match="takes i4"):
        kernel((2,), (64,), (out, 1))
    with pytest.raises(EmulationError, match="array of int64"):
        kernel((2,), (64,), (out.astype(np.int64), np.int32(1)))
    with pytest.raises(EmulationError, match="without opting in"):
        kernel((2,), (64,), (out, np.int32(1)), shared_mem=49153)
    with pytest.raises(EmulationError, match="invalid launch"):
        kernel((2,), (2048,), (out, np.int32(1)))
    out.setflags(write=False)
    with pytest.raises(EmulationError, match="read-only"):
        kernel((2,), (64,), (out, np.int32(1)))
    with pytest.raises(KeyError, match="not among"):
        module.get_function("no_such_kernel")
