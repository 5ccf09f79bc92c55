"""A few of the planted faults, each in a copy of gpuqs; `make planted` tries all."""

from __future__ import annotations

import shutil
from collections import Counter
from importlib.resources import as_file
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from planted.bitslice import BITSLICE
from planted.campaign import Fault, copied_package, judge, run_tests, try_fault
from planted.kernels import KERNELS
from planted.launches import LAUNCHES
from planted.repeated import REPEATED
from planted.streams import STREAMS
from planted.tuning import TUNING
from planted.walk import WALKS

import gpuqs
from gpuqs.devices import sources

#: The planted faults, by the name that docs/reliability.md gives them.
SUITES = {
    "streams, copies and memory | `tests/cuda/planted/streams.py`": STREAMS,
    "calls that are launched again | `tests/cuda/planted/repeated.py`": REPEATED,
    "launches and layouts of `qs_gpu`, the cache of kernels | `tests/cuda/planted/launches.py`": LAUNCHES,
    "kernels of `qs_gpu` | `tests/cuda/planted/kernels.py`": KERNELS,
    "`bitslice_gpu` | `tests/cuda/planted/bitslice.py`": BITSLICE,
    "`walk_gpu` | `tests/cuda/planted/walk.py`": WALKS,
    "tuning on devices | `tests/cuda/planted/tuning.py`": TUNING,
}
FAULTS = {fault.what: fault for suite in SUITES.values() for fault in suite}
QUICK = {
    "results are taken without a wait": "test_host_documents_in_double_buffers",
    "an `out` of another library is not ordered back": "test_other_libraries_work_comes_before_and_after",
    "an upload does not wait": "test_an_upload_is_complete_when_it_returns",
    "rows have another polarity": "test_equals_reference",
    "a reading does not wait": "test_the_fastest_by_the_clock_scores_from_then_on",
    "no barrier between columns and documents": "test_equals_reference_in_every_thread_order",
}
needs_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++")


def quick(fault: Fault, test: str) -> Fault:
    """The fault, with the one test that should catch it."""
    return Fault(fault.what, fault.file, fault.old, fault.new, (f"{fault.tests[0]}::{test}",))


@needs_compiler
@pytest.mark.parametrize("what", QUICK)
def test_a_fault_is_caught(what: str) -> None:
    outcome = try_fault(quick(FAULTS[what], QUICK[what]))
    # Memory not written yet may hold any number, such as an index outside of memory.
    by = (QUICK[what], "signal 11")
    assert outcome.caught and any(each in outcome.by for each in by), outcome.by + outcome.output[-3000:]


def test_the_copy_passes_without_a_fault() -> None:
    with copied_package() as package:
        done = run_tests(package, ("test_cuda_device.py",))
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.parametrize(
    ("status", "output", "caught"),
    [
        (1, "E   AssertionError: Arrays are not equal\nFAILED test_queued_work.py::test_a[1] - AssertionError", True),
        (-11, "Fatal Python error: Segmentation fault", True),
        (0, "1 passed", False),
        (1, "E   NameError: name 'a' is not defined\nFAILED test_queued_work.py::test_a - NameError", False),
        (1, "E   EmulationError: the C++ compiler failed:\nFAILED test_emulated.py::test_a - EmulationError", False),
        (2, "E   SyntaxError: invalid syntax", False),
        (4, "ERROR: not found: test_queued_work.py::test_b", False),
        (5, "no tests ran", False),
    ],
)
def test_only_a_failed_test_or_a_crash_has_caught_a_fault(status: int, output: str, caught: bool) -> None:
    outcome = judge(CompletedProcess([], status, output, ""))
    assert outcome.caught == caught, outcome.by


def counted() -> str:
    """The table of docs/reliability.md: how many faults there are of each kind, and the tests that must catch them."""
    lines = ["| faults of | in | planted | tests that must find them |", "|---|---|---|---|"]
    for what, suite in SUITES.items():
        files = Counter(fault.tests[0].partition("::")[0] for fault in suite)
        lines.append(f"| {what} | {len(suite)} | {', '.join(f'`{file}` {n}' for file, n in files.most_common())} |")
    return "\n".join(lines)


def test_the_page_counts_the_faults() -> None:
    page = Path(__file__).parents[2].joinpath("docs", "reliability.md").read_text(encoding="utf-8")
    assert f"\n{counted()}\n" in page, f"docs/reliability.md needs this table:\n{counted()}"
    assert f"{len(FAULTS)} are planted" in " ".join(page.split())
    assert len(QUICK) == 6 and "six of the faults planted in the GPU code" in " ".join(page.split())


def test_every_fault_has_its_place() -> None:
    assert len(FAULTS) == sum(map(len, SUITES.values())) >= 140
    with as_file(sources.source_folder()) as cuda:
        for fault in FAULTS.values():
            folder, file = (
                (cuda, fault.file[5:]) if fault.file.startswith("cuda/") else (Path(gpuqs.__file__).parent, fault.file)
            )
            assert Path(folder, file).read_text().count(fault.old) == 1, fault.what
            assert fault.old != fault.new, fault.what
