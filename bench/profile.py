"""Profiles the GPU engines' kernels with Nsight Compute (`ncu`), successor of nvprof, which does not support new GPUs.

    python bench/profile.py kernel [--trees 20000 --leaves 64 --tree-block 2000 --threads 256]
    python bench/profile.py kernel --kernel slots      # or another one of `bitslice_gpu`
    python bench/profile.py figure2 [--out figure2.png]

`kernel` prints time, L2 hit rate, warp execution efficiency, achieved occupancy, shared-memory bank
conflicts, issue utilisation, and the instructions, wavefronts of shared memory and bytes of the L2 cache, which
`bench/gpu_budget.py` counts without a GPU, of one kernel's first launch. `figure2` draws paper 000's Figure 2: time,
L2 hit rate and warp efficiency against τ, for 32 and 64 leaves. Needs an NVIDIA GPU whose counters may be read.
"""

from __future__ import annotations

import argparse
import csv
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuqs.engines.gpu.engine import GpuEngine

CHECKOUT = Path(__file__).resolve().parents[1]
#: The kernels of `bitslice_gpu`; all others except `walk_scores` belong to `qs_gpu`.
BITSLICED = ("rank_documents", "decode_predicates", "steps", "slots", "sum_exact", "sum_few", "sum_fast")
TREE_BLOCKS = tuple(range(1000, 10_001, 1000))
N_DOCUMENTS = 20_000
#: Documents in small batches.
N_FEW = 4_000


@dataclass(frozen=True)
class Counters:
    """A profiler's counters for one launch; None for missing ones.

    Parameters
    ----------
    seconds : float
    l2_hit_rate, warp_efficiency, occupancy, issue_utilisation : float
        In percent.
    bank_conflicts : float
        Shared-memory accesses that had to be repeated.
    instructions, shared_wavefronts : float
        Counted per warp.
    l2_bytes : float
    """

    seconds: float | None = None
    l2_hit_rate: float | None = None
    warp_efficiency: float | None = None
    occupancy: float | None = None
    bank_conflicts: float | None = None
    issue_utilisation: float | None = None
    instructions: float | None = None
    shared_wavefronts: float | None = None
    l2_bytes: float | None = None


@dataclass(frozen=True)
class Metric:
    """A profiler's metric: which counter it is, and the factor that makes it one."""

    counter: str
    factor: float = 1.0


#: Nsight Compute's metrics.
NCU: dict[str, Metric] = {
    "gpu__time_duration.sum": Metric("seconds"),
    "lts__t_sector_hit_rate.pct": Metric("l2_hit_rate"),
    "smsp__thread_inst_executed_per_inst_executed.ratio": Metric("warp_efficiency", 100 / 32),
    "sm__warps_active.avg.pct_of_peak_sustained_active": Metric("occupancy"),
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum": Metric("bank_conflicts"),
    "smsp__issue_active.avg.pct_of_peak_sustained_active": Metric("issue_utilisation"),
    "smsp__inst_executed.sum": Metric("instructions"),
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": Metric("shared_wavefronts"),
    "lts__t_bytes.sum": Metric("l2_bytes"),
}
#: The first line of the table starts with this.
HEADER = '"ID",'
#: Names of time units, in current and older versions.
SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
SECONDS |= {"nsecond": 1e-9, "usecond": 1e-6, "msecond": 1e-3, "second": 1.0}
#: A number in the C locale.
NUMBER = re.compile(r"[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?\s*%?")


def parse_ncu(text: str, kernel: str) -> Counters:
    """Read the output of ``ncu --csv``; the first launch of ``kernel``.

    Raises
    ------
    ValueError
        The kernel is missing (the error holds the profiler's own messages), or a figure is not a number.
    """
    launches = [row for row in _rows(text) if _is_launch_of(row.get("Kernel Name", ""), kernel)]
    seen = {}
    for row in launches:
        metric = NCU.get(row["Metric Name"])
        value = _number(row["Metric Value"])
        if row["ID"] != launches[0]["ID"] or metric is None or value is None:
            continue
        unit = _seconds(row["Metric Unit"]) if metric.counter == "seconds" else 1.0
        seen[metric.counter] = value * metric.factor * unit
    if not launches:
        said = "\n".join(line for line in text.splitlines() if line.startswith("=="))
        raise ValueError(f"the profiler reports no launch of {kernel}; it says:\n{said[-2000:]}")
    return Counters(**seen)


def _is_launch_of(signature: str, kernel: str) -> bool:
    return re.search(rf"\b{re.escape(kernel)}\s*(<|\(|$)", signature) is not None


def _rows(text: str) -> Iterator[dict[str, str]]:
    """The rows of the table, without what the profiler and the program print before and after."""
    header: list[str] = []
    for line in text.splitlines():
        fields = next(csv.reader([line]), [])
        if line.startswith(HEADER):
            header = fields
        elif len(fields) == len(header) and not line.startswith("=="):
            yield dict(zip(header, fields, strict=True))


def _number(text: str) -> float | None:
    """Parse a figure; None for placeholders such as "n/a"."""
    if not re.search(r"\d", text):
        return None
    if NUMBER.fullmatch(text.strip()) is None:
        raise ValueError(f"the profiler reports {text!r}, which is no number in the C locale; set LC_ALL=C")
    return float(text.strip(" %").replace(",", ""))


def _seconds(unit: str) -> float:
    if unit not in SECONDS:
        raise ValueError(f"the profiler gives a time in {unit!r}, not in one of {', '.join(SECONDS)}")
    return SECONDS[unit]


def profiler_command(target: Sequence[str], kernel: str) -> list[str]:
    """The command that profiles ``target``.

    Raises
    ------
    FileNotFoundError
        There is no profiler here.
    """
    if shutil.which("ncu") is None:
        raise FileNotFoundError("ncu (Nsight Compute) is not on PATH; install the CUDA toolkit's profiler")
    chosen = ["ncu", "--csv", "--print-units", "base", "--profile-from-start", "off", "--target-processes", "all"]
    return [*chosen, "--kernel-name", f"regex:^{kernel}", "--metrics", ",".join(NCU), *target]


def profile(kernel: str, trees: int, leaves: int, tree_block: int | None, threads: int | None) -> Counters:
    """Score documents under a profiler in a separate process."""
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
    target += ["--kernel", kernel]
    plain = dict(os.environ, LC_ALL="C")  # otherwise figures use the locale's decimal and thousands separators
    command = profiler_command(target, kernel)
    said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=plain)
    return parse_ncu(said.stdout, kernel)


def engine_of(kernel: str, tree_block: int | None, threads: int | None) -> tuple[GpuEngine, str]:
    """The engine that launches a kernel, and the precision that uses it."""
    from gpuqs.engines.gpu.bitslice_gpu import BitsliceGpu
    from gpuqs.engines.gpu.qs_gpu import QsGpu
    from gpuqs.engines.gpu.qs_placed import QsSettings
    from gpuqs.engines.gpu.walk_gpu import WalkGpu

    if kernel in BITSLICED:
        return BitsliceGpu(), "fast" if kernel == "sum_fast" else "exact"
    if kernel == "walk_scores":
        return WalkGpu(), "exact"
    return QsGpu(QsSettings(tree_block=tree_block, threads=threads)), "exact"


def run_target(trees: int, leaves: int, tree_block: int | None, threads: int | None, kernel: str) -> None:
    """The profiled work: score documents on the device once, after one call to warm up."""
    for folder in (str(CHECKOUT), str(CHECKOUT / "bench")):
        sys.path.append(folder)
    from driver import profiled
    from made_up import lambdamart_like

    from gpuqs.demo.mslr import mslr_like
    from gpuqs.devices.cuda import cuda_device

    device, X = cuda_device(), mslr_like(200, 1)[0][: N_FEW if kernel == "sum_few" else N_DOCUMENTS]
    engine, precision = engine_of(kernel, tree_block, threads)
    placed = engine.prepare(lambdamart_like(trees, leaves, X), precision, device=device).forest
    documents, sums = device.upload(X), device.empty((len(X), 1), placed.values.sum_dtype)
    placed.score(documents, sums)
    with profiled(device):
        placed.score(documents, sums)


def draw_figure2(by_leaves: dict[int, dict[int, Counters]], n_documents: int, out: Path) -> None:
    """Plot time per document, L2 hit rate and warp efficiency against τ, one panel for each number of leaves."""
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
        axes.set(title=f"{leaves} leaves", xlabel="trees in a tree block (τ)", ylabel="µs per document")
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
        run_target(arguments.trees, arguments.leaves, arguments.tree_block, arguments.threads, arguments.kernel)
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
