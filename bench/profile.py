"""Profiles `qs_gpu`'s kernels with Nsight Compute (`ncu`), or `nvprof` on devices that still have it.

    python bench/profile.py kernel [--trees 20000 --leaves 64 --tree-block 2000 --threads 256]
    python bench/profile.py figure2 [--out figure2.png]

`kernel` prints time, L2 hit rate, warp execution efficiency, achieved occupancy, shared-memory bank
conflicts and issue utilisation of one kernel. `figure2` draws paper 000's Figure 2: time, L2 hit rate
and warp efficiency against τ, for 32 and 64 leaves. Needs an NVIDIA GPU whose counters may be read.
"""

from __future__ import annotations

import argparse
import csv
import io
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
TREE_BLOCKS = tuple(range(1000, 10_001, 1000))
N_DOCUMENTS = 20_000


@dataclass(frozen=True)
class Counters:
    """What a profiler says of one launch; None where it does not.

    Parameters
    ----------
    seconds : float
    l2_hit_rate, warp_efficiency, occupancy, issue_utilisation : float
        Per cent.
    bank_conflicts : float
        Shared-memory accesses that had to be repeated.
    """

    seconds: float | None = None
    l2_hit_rate: float | None = None
    warp_efficiency: float | None = None
    occupancy: float | None = None
    bank_conflicts: float | None = None
    issue_utilisation: float | None = None


@dataclass(frozen=True)
class Metric:
    """A profiler's metric: which counter it is, and the factor that makes it one."""

    counter: str
    factor: float = 1.0


#: Nsight Compute's metrics, in base units (`--print-units base`).
NCU: dict[str, Metric] = {
    "gpu__time_duration.sum": Metric("seconds", 1e-9),
    "lts__t_sector_hit_rate.pct": Metric("l2_hit_rate"),
    "smsp__thread_inst_executed_per_inst_executed.ratio": Metric("warp_efficiency", 100 / 32),
    "sm__warps_active.avg.pct_of_peak_sustained_active": Metric("occupancy"),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": Metric("bank_conflicts"),
    "smsp__issue_active.avg.pct_of_peak_sustained_active": Metric("issue_utilisation"),
}
#: nvprof's; it has no metric for bank conflicts, and no time beside metrics.
NVPROF: dict[str, Metric] = {
    "l2_tex_hit_rate": Metric("l2_hit_rate"),
    "warp_execution_efficiency": Metric("warp_efficiency"),
    "achieved_occupancy": Metric("occupancy", 100.0),
    "issue_slot_utilization": Metric("issue_utilisation"),
}


def parse_ncu(text: str, kernel: str) -> Counters:
    """Read the output of ``ncu --csv``; the first launch of ``kernel``.

    Raises
    ------
    ValueError
        The kernel is not in it; the profiler's own messages are in the error.
    """
    launches = [row for row in _table(text, '"ID"') if _is_launch_of(row["Kernel Name"], kernel)]
    first = [row for row in launches if row["ID"] == launches[0]["ID"]]
    return _counters({row["Metric Name"]: row["Metric Value"] for row in first}, NCU, text, kernel)


def parse_nvprof(text: str, kernel: str) -> Counters:
    """Read the output of ``nvprof --csv --metrics``; averages over the launches of ``kernel``.

    Raises
    ------
    ValueError
        As `parse_ncu`.
    """
    rows = [row for row in _table(text, '"Device"') if _is_launch_of(row["Kernel"], kernel)]
    return _counters({row["Metric Name"]: row["Avg"] for row in rows}, NVPROF, text, kernel)


def _is_launch_of(signature: str, kernel: str) -> bool:
    return re.search(rf"\b{re.escape(kernel)}\s*(<|\(|$)", signature) is not None


def _table(text: str, header: str) -> list[dict[str, str]]:
    """The CSV table that begins with ``header``, past what the profiler and the program printed before."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith(header)), len(lines))
    rows = csv.DictReader(io.StringIO("\n".join(line for line in lines[start:] if not line.startswith("=="))))
    return list(rows)


def _counters(values: dict[str, str], metrics: dict[str, Metric], text: str, kernel: str) -> Counters:
    if not values:
        said = "\n".join(line for line in text.splitlines() if line.startswith("=="))
        raise ValueError(f"the profiler reports no launch of {kernel}; it says:\n{said[-2000:]}")
    found = {}
    for name, metric in metrics.items():
        number = re.fullmatch(r"([-+.\deE,]+)\s*%?", values.get(name, "").strip())
        found[metric.counter] = float(number[1].replace(",", "")) * metric.factor if number else None
    return Counters(**found)


def profiler_command(target: Sequence[str], kernel: str) -> tuple[list[str], Callable[[str, str], Counters]]:
    """The command that profiles ``target``, and what reads its output.

    Raises
    ------
    FileNotFoundError
        There is no profiler here.
    """
    if shutil.which("ncu"):
        chosen = [
            "ncu",
            "--csv",
            "--print-units",
            "base",
            "--profile-from-start",
            "off",
            "--target-processes",
            "all",
        ]
        chosen += ["--kernel-name", f"regex:^{kernel}", "--metrics", ",".join(NCU)]
        return [*chosen, *target], parse_ncu
    if shutil.which("nvprof"):
        chosen = ["nvprof", "--csv", "--profile-from-start", "off", "--metrics", ",".join(NVPROF)]
        return [*chosen, *target], parse_nvprof
    raise FileNotFoundError(
        "neither ncu (Nsight Compute) nor nvprof is on PATH; install the CUDA toolkit's profiler"
    )


def profile(kernel: str, trees: int, leaves: int, tree_block: int | None, threads: int | None) -> Counters:
    """Score documents under a profiler in a process of its own."""
    target = [
        sys.executable,
        str(Path(__file__).resolve()),
        "target",
        "--trees",
        str(trees),
        "--leaves",
        str(leaves),
    ]
    for option, value in (("--tree-block", tree_block), ("--threads", threads)):
        target += [option, str(value)] if value else []
    command, parse = profiler_command(target, kernel)
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return parse(done.stdout, kernel)


def run_target(trees: int, leaves: int, tree_block: int | None, threads: int | None) -> None:
    """What is profiled: one scoring of documents on the device, after one to warm up."""
    for folder in (str(CHECKOUT), str(CHECKOUT / "bench")):
        sys.path.append(folder)
    from cuda.bindings import runtime
    from gpu_forests import lambdamart_like

    from gpuqs.arrays_cuda import cuda_device
    from gpuqs.demo.mslr import mslr_like
    from gpuqs.engines.gpu_forest import Settings
    from gpuqs.engines.qs_gpu import QsGpu

    device, X = cuda_device(), mslr_like(200, 1)[0][:N_DOCUMENTS]
    engine = QsGpu(lambda: device, Settings(tree_block=tree_block, threads=threads))
    program = engine.prepare(lambdamart_like(trees, leaves, X), "exact")
    documents, sums = device.upload(X), device.empty((len(X), 1), program.values.sum_dtype)
    engine.score(program, documents, sums)
    runtime.cudaDeviceSynchronize()
    runtime.cudaProfilerStart()
    engine.score(program, documents, sums)
    runtime.cudaDeviceSynchronize()
    runtime.cudaProfilerStop()


def draw_figure2(by_leaves: dict[int, dict[int, Counters]], n_documents: int, out: Path) -> None:
    """Time a document, L2 hit rate and warp efficiency against τ, a panel for each number of leaves."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6 * len(by_leaves), 4), layout="constrained")
    for index, (leaves, by_tree_block) in enumerate(by_leaves.items()):
        axes = figure.add_subplot(1, len(by_leaves), index + 1)
        shares = axes.twinx()
        taus = sorted(by_tree_block)
        counters = [by_tree_block[tau] for tau in taus]
        lines = []
        if any(c.seconds is not None for c in counters):
            times = [
                c.seconds / n_documents * 1e6 if c.seconds is not None else float("nan") for c in counters
            ]
            lines += axes.plot(taus, times, "k-o", label="time")
        for name, label, style in (
            ("l2_hit_rate", "L2 hit rate", "b--s"),
            ("warp_efficiency", "warp efficiency", "r:^"),
        ):
            values = [getattr(c, name) for c in counters]
            lines += shares.plot(taus, [float("nan") if v is None else v for v in values], style, label=label)
        axes.set(title=f"{leaves} leaves", xlabel="trees in a tree block (τ)", ylabel="µs a document")
        shares.set(ylabel="per cent", ylim=(0, 105))
        axes.legend(handles=lines, loc="lower right")
    figure.savefig(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("kernel", "target"):
        one = commands.add_parser(name)
        one.add_argument("--kernel", default="update_scores")
        one.add_argument("--trees", type=int, default=20_000)
        one.add_argument("--leaves", type=int, default=64)
        one.add_argument("--tree-block", type=int)
        one.add_argument("--threads", type=int)
    figure = commands.add_parser("figure2")
    figure.add_argument("--out", type=Path, default=Path("figure2.png"))
    arguments = parser.parse_args()
    if arguments.command == "target":
        run_target(arguments.trees, arguments.leaves, arguments.tree_block, arguments.threads)
        return
    try:
        if arguments.command == "kernel":
            sizes = (arguments.trees, arguments.leaves, arguments.tree_block, arguments.threads)
            for name, value in vars(profile(arguments.kernel, *sizes)).items():
                print(f"{name:20} {'not reported' if value is None else f'{value:.6g}'}")
            return
        by_leaves = {
            leaves: {tau: profile("update_scores", 20_000, leaves, tau, None) for tau in TREE_BLOCKS}
            for leaves in (32, 64)
        }
        draw_figure2(by_leaves, N_DOCUMENTS, arguments.out)
        print(f"drawn: {arguments.out}")
    except (FileNotFoundError, ValueError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
