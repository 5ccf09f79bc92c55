"""What is read from the profilers' output; the lines have the tools' own format, the figures are made up."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "bench" / "profile.py"


def load():
    """bench/profile.py under another name: the standard library has a `profile` too."""
    spec = importlib.util.spec_from_file_location("gpuqs_bench_profile", SOURCE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


profile = load()

NCU_HEADER = (
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
    '"Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"'
)


def ncu_row(launch: int, kernel: str, metric: str, unit: str, value: str) -> str:
    place = (
        f'"{launch}","71","python3.11","127.0.0.1","{kernel}","1","7","(256, 1, 1)","(20, 10, 1)","0","9.0",'
    )
    return f'{place}"Command line profiler metrics","{metric}","{unit}","{value}"'


KERNEL = "void update_scores<unsigned int, (bool)1, unsigned short, double, double, 1>(const T3 *, int)"
NCU = "\n".join(
    [
        "==PROF== Connected to process 71 (/usr/bin/python3.11)",
        '==PROF== Profiling "update_scores" - 0: 0%....50%....100% - 2 passes',
        "==PROF== Disconnected from process 71",
        NCU_HEADER,
        ncu_row(
            0,
            "void transpose<float, float, (bool)1>(const T1 *, long long)",
            "gpu__time_duration.sum",
            "ns",
            "1",
        ),
        ncu_row(3, KERNEL, "gpu__time_duration.sum", "ns", "1,250,000"),
        ncu_row(3, KERNEL, "lts__t_sector_hit_rate.pct", "%", "97.50"),
        ncu_row(3, KERNEL, "smsp__thread_inst_executed_per_inst_executed.ratio", "", "24"),
        ncu_row(3, KERNEL, "sm__warps_active.avg.pct_of_peak_sustained_active", "%", "88.12"),
        ncu_row(3, KERNEL, "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", "", "4096"),
        ncu_row(3, KERNEL, "smsp__issue_active.avg.pct_of_peak_sustained_active", "%", "n/a"),
        ncu_row(7, KERNEL, "gpu__time_duration.sum", "ns", "9"),
    ]
)
NVPROF = "\n".join(
    [
        "==512== NVPROF is profiling process 512, command: python bench/profile.py target",
        "==512== Profiling application: python bench/profile.py target",
        "==512== Profiling result:",
        "==512== Metric result:",
        '"Device","Kernel","Invocations","Metric Name","Metric Description","Min","Max","Avg"',
        f'"GPU (0)","{KERNEL}",1,"l2_tex_hit_rate","L2 Cache Hit Rate",95.250000%,95.250000%,95.250000%',
        f'"GPU (0)","{KERNEL}",1,"warp_execution_efficiency","Warp Execution Efficiency",81.5%,81.5%,81.5%',
        f'"GPU (0)","{KERNEL}",1,"achieved_occupancy","Achieved Occupancy",0.912000,0.912000,0.912000',
        f'"GPU (0)","{KERNEL}",1,"issue_slot_utilization","Issue Slot Utilization",42.00%,42.00%,42.00%',
    ]
)


def test_ncu() -> None:
    seen = profile.parse_ncu(NCU, "update_scores")
    assert seen.seconds == pytest.approx(1.25e-3)
    assert (seen.l2_hit_rate, seen.warp_efficiency, seen.occupancy) == (97.5, 75.0, 88.12)
    assert (seen.bank_conflicts, seen.issue_utilisation) == (4096, None)
    assert profile.parse_ncu(NCU, "transpose").seconds == pytest.approx(1e-9)


def test_nvprof() -> None:
    seen = profile.parse_nvprof(NVPROF, "update_scores")
    assert (seen.l2_hit_rate, seen.warp_efficiency, seen.issue_utilisation) == (95.25, 81.5, 42.0)
    assert seen.occupancy == pytest.approx(91.2)
    assert (seen.seconds, seen.bank_conflicts) == (None, None)


@pytest.mark.parametrize("parse", [profile.parse_ncu, profile.parse_nvprof])
@pytest.mark.parametrize("kernel", ["update", "scores", "update_scores"])
def test_a_kernel_that_is_not_there(parse, kernel: str) -> None:
    text = (NCU if parse is profile.parse_ncu else NVPROF).replace("update_scores<", "other<")
    text += "\n==ERROR== ERR_NVGPUCTRPERM - no permission to read GPU performance counters"
    with pytest.raises(ValueError, match=f"no launch of {kernel}") as told:
        parse(text, kernel)
    assert "ERR_NVGPUCTRPERM" in str(told.value)


def test_the_command_takes_the_profiler_that_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    for there, parser in (("ncu", profile.parse_ncu), ("nvprof", profile.parse_nvprof)):
        monkeypatch.setattr(
            profile.shutil, "which", lambda name, there=there: name if name == there else None
        )
        command, parse = profile.profiler_command(["python", "x.py"], "update_scores")
        assert (command[0], command[-2:], parse) == (there, ["python", "x.py"], parser)
    monkeypatch.setattr(profile.shutil, "which", lambda name: None)
    with pytest.raises(FileNotFoundError, match="Nsight Compute"):
        profile.profiler_command([], "update_scores")


def test_figure_2_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    seen = profile.parse_ncu(NCU, "update_scores")
    by_leaves = {32: {1000: seen, 2000: profile.parse_nvprof(NVPROF, "update_scores")}, 64: {1000: seen}}
    out = tmp_path / "figure2.png"
    profile.draw_figure2(by_leaves, 20_000, out)
    assert out.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
