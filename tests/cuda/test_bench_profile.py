"""Reading the profiler's output: lines as in published recordings, with made-up figures."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from emulation.device import EmulatedDevice
from made_up import lambdamart_like

SOURCE = Path(__file__).parents[2] / "bench" / "profile.py"


def load():
    """bench/profile.py under another name: the standard library has a `profile` too."""
    spec = importlib.util.spec_from_file_location("gpuqs_bench_profile", SOURCE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


profile = load()

KERNEL = "void update_scores<unsigned int, (bool)1, unsigned short, double, double, 1>(const T3 *, int)"
OTHER = "void transpose<float, float, (bool)1>(const T1 *, long long)"


def ncu_row(launch: int, kernel: str, metric: str, unit: str, value: str) -> str:
    place = (
        f'"{launch}","71","python3.11","127.0.0.1","{kernel}","1","7","(256, 1, 1)","(20, 10, 1)","0","9.0",'
    )
    return f'{place}"Command line profiler metrics","{metric}","{unit}","{value}"'


NCU = "\n".join(
    [
        "==PROF== Connected to process 71 (/usr/bin/python3.11)",
        '==PROF== Profiling "update_scores" - 0: 0%....50%....100% - 2 passes',
        "what the program prints",
        "==PROF== Disconnected from process 71",
        "==WARNING== Found outstanding GPU clock reset, trying to revert...Success.",
        '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
        '"Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"',
        ncu_row(0, OTHER, "gpu__time_duration.sum", "ns", "1"),
        ncu_row(3, KERNEL, "gpu__time_duration.sum", "ns", "1,250,000"),
        ncu_row(3, KERNEL, "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "", "4,096"),
        ncu_row(3, KERNEL, "lts__t_sector_hit_rate.pct", "%", "97.50"),
        ncu_row(3, KERNEL, "sm__warps_active.avg.pct_of_peak_sustained_active", "%", "88.12"),
        ncu_row(3, KERNEL, "smsp__issue_active.avg.pct_of_peak_sustained_active", "", "n/a"),
        ncu_row(3, KERNEL, "smsp__thread_inst_executed_per_inst_executed.ratio", "", "24"),
        ncu_row(7, KERNEL, "gpu__time_duration.sum", "ns", "9"),
    ]
)
#: Output of older versions: other columns, other names of units.
OLD_NCU = "\n".join(
    [
        "==PROF== Connected to process 20798 (/usr/bin/python3.8)",
        '"ID","Process ID","Process Name","Host Name","Kernel Name","Kernel Time","Context","Stream",'
        '"Section Name","Metric Name","Metric Unit","Metric Value"',
        *(
            f'"0","20798","python3.8","127.0.0.1","{KERNEL}","2024-Nov-13 18:14:36","1","7",'
            f'"Command line profiler metrics","{metric}","{unit}","{value}"'
            for metric, unit, value in [
                ("gpu__time_duration.sum", "nsecond", "152192"),
                ("lts__t_sector_hit_rate.pct", "%", "100"),
            ]
        ),
    ]
)


def test_ncu() -> None:
    seen = profile.parse_ncu(NCU, "update_scores")
    assert seen.seconds == pytest.approx(1.25e-3)
    assert (seen.l2_hit_rate, seen.warp_efficiency, seen.occupancy) == (97.5, 75.0, 88.12)
    assert (seen.bank_conflicts, seen.issue_utilisation) == (4096, None)
    assert profile.parse_ncu(NCU, "transpose").seconds == pytest.approx(1e-9)


def test_ncu_of_older_versions() -> None:
    seen = profile.parse_ncu(OLD_NCU, "update_scores")
    assert (seen.seconds, seen.l2_hit_rate) == (pytest.approx(152192e-9), 100.0)


def test_ncu_that_scales_its_units() -> None:
    seen = profile.parse_ncu(NCU.replace('"ns","1,250,000"', '"us","1,250.00"'), "update_scores")
    assert seen.seconds == pytest.approx(1.25e-3)
    with pytest.raises(ValueError, match="a time in 'hour'"):
        profile.parse_ncu(NCU.replace('"ns"', '"hour"'), "update_scores")


@pytest.mark.parametrize("figure", ["97,50", "27.595.520"])
def test_figures_of_other_locales_are_refused(figure: str) -> None:
    with pytest.raises(ValueError, match="LC_ALL=C"):
        profile.parse_ncu(NCU.replace("97.50", figure), "update_scores")


@pytest.mark.parametrize("kernel", ["update", "scores", "update_scores"])
def test_a_kernel_that_is_not_there(kernel: str) -> None:
    text = NCU.replace("update_scores<", "other<")
    text += "\n==ERROR== ERR_NVGPUCTRPERM - no permission to read GPU performance counters"
    with pytest.raises(ValueError, match=f"no launch of {kernel}") as told:
        profile.parse_ncu(text, kernel)
    assert "ERR_NVGPUCTRPERM" in str(told.value)


def test_no_profiler_is_an_error_that_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile.shutil, "which", lambda name: None)
    with pytest.raises(FileNotFoundError, match="Nsight Compute"):
        profile.profile("update_scores", 100, 32, 50, 256)


def test_one_command_profiles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A script stands in for ncu: it gets the kernel and the C locale, and its output is read."""
    recorded = tmp_path / "recorded.csv"
    recorded.write_text(NCU)
    ncu = tmp_path / "ncu"
    ncu.write_text(f'#!/bin/sh\ntest "$LC_ALL" = C && echo "$@" > {tmp_path}/given && cat {recorded}\n')
    ncu.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert profile.profile("update_scores", 100, 32, 50, 256).l2_hit_rate == 97.5
    given = (tmp_path / "given").read_text()
    assert "regex:^update_scores" in given
    assert "target --trees 100 --leaves 32 --tree-block 50 --threads 256 --kernel update_scores" in given


@pytest.mark.skipif(shutil.which("g++") is None, reason="the emulation needs g++")
@pytest.mark.parametrize(
    ("kernel", "engine", "precision"),
    [
        ("update_scores", "qs_gpu", "exact"),
        ("steps", "bitslice_gpu", "exact"),
        ("sum_exact", "bitslice_gpu", "exact"),
        ("sum_few", "bitslice_gpu", "exact"),
        ("sum_fast", "bitslice_gpu", "fast"),
        ("walk_scores", "walk_gpu", "exact"),
    ],
)
def test_a_kernel_is_launched_by_its_engine(kernel: str, engine: str, precision: str) -> None:
    device = EmulatedDevice()
    chosen, of = profile.engine_of(kernel, None, None)
    X = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    with device.active():
        placed = chosen.prepare(lambdamart_like(3, 4, X), of, device=device).forest
        placed.score(device.upload(X), device.empty((20, 1), placed.values.sum_dtype))
    assert (chosen.name, of) == (engine, precision)
    assert kernel in {name.partition("<")[0] for _, name in device.launched}


def test_what_the_budget_counts_is_measured() -> None:
    more = [
        ncu_row(3, KERNEL, "smsp__inst_executed.sum", "inst", "12,500"),
        ncu_row(3, KERNEL, "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", "", "700"),
        ncu_row(3, KERNEL, "lts__t_bytes.sum", "byte", "9,000"),
    ]
    seen = profile.parse_ncu("\n".join([NCU, *more]), "update_scores")
    assert (seen.instructions, seen.shared_wavefronts, seen.l2_bytes) == (12_500, 700, 9000)


def test_figure_2_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    seen = profile.parse_ncu(NCU, "update_scores")
    by_leaves = {32: {1000: seen, 2000: profile.parse_ncu(OLD_NCU, "update_scores")}, 64: {1000: seen}}
    out = tmp_path / "figure2.png"
    profile.draw_figure2(by_leaves, 20_000, out)
    assert out.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
