"""Results of `bench/gpu.py` for README, docs/gpu.md and bench/README.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pages.figures import figure, paragraph, table, times
from pages.results import Results

#: Others are compared with the first.
CONTENDERS = ("bitslice_gpu, exact", "bitslice_gpu, fast", "qs_gpu, exact", "nvForest")
#: The calls that users make, and the batch sizes for which README shows them.
CALLS, BATCHES = ("gpuqs, predict", "nvForest"), (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)


def measured(results: Results) -> list[str]:
    """Large batches against nvForest and GPU-QuickScorer, then calls of every size; XGBoost, where it was there.

    Only for GPUs on which this version was measured; a note marks reports of earlier versions.
    """
    lines: list[str] = []
    for report in results.gpus().values():
        name, rows = report["gpu"]["name"], report["rows"]
        if "note" in report:
            continue
        lines += paragraph(
            f"Nanoseconds per document on an {name} for float32 documents in device memory, with kernels launched one "
            f"by one; medians of one run. In parentheses: time relative to `{CONTENDERS[0].partition(',')[0]}`, exact."
        )
        lines += [*table(["", *CONTENDERS], cells(rows)), ""]
        lines += paragraph(
            "Microseconds per call of `predict` with documents in device memory, 1,000 x 64. Two calls with documents "
            "of the same shape came before, so recorded launches are replayed; calls with 1,000,000 documents are too "
            "large to be recorded, and are planned again each time:"
        )
        lines += [*table(["documents per call", *(f"{n:,}" for n in BATCHES)], calls(rows)), ""]
    for report in results.gpus().values():
        peers = {row["peer"]: row["us_per_document"] * 1e3 for row in report["rows"] if row["section"] == "peer"}
        if "XGBoost" in peers:
            ours = next(ns for peer, ns in peers.items() if peer.startswith("bitslice_gpu"))
            lines += paragraph(
                f"On an {report['gpu']['name']}, with a model of 1,000 x 64 that XGBoost trained there, `bitslice_gpu` "
                f"took {figure(ours)} ns per document{' in an earlier version' if 'note' in report else ''}, and "
                f"XGBoost {figure(peers['XGBoost'])} ns."
            )
    return lines[:-1]


def cells(rows: list[dict[str, Any]]) -> list[list[str]]:
    found: dict[tuple[int, ...], dict[str, float]] = {}
    for row in rows:
        if row["section"] == "cell":
            place = (row["trees"], row["leaves"], row["features"], row["documents"])
            found.setdefault(place, {})[row["contender"]] = row["us_per_document"] * 1e3
    lines = []
    for (trees, leaves, features, documents), ns in found.items():
        base = ns[CONTENDERS[0]]
        told = [figure(base)]
        told += [f"{figure(ns[c])} ({times(ns[c] / base)})" if c in ns else "" for c in CONTENDERS[1:]]
        lines.append([f"{trees:,} x {leaves}, {features} features, {documents:,} documents", *told])
    return lines


def calls(rows: list[dict[str, Any]]) -> list[list[str]]:
    seen = {
        (row["contender"], row["documents"]): row["us_per_document"] * row["documents"]
        for row in rows
        if row["section"] == "batch on the device"
    }
    return [[name, *(figure(seen[name, n]) if (name, n) in seen else "" for n in BATCHES)] for name in CALLS]


def note(report: dict[str, Any]) -> str:
    """The version that made a report, if it was an earlier one."""
    return f", {report['note']}" if "note" in report else ""


def stages(results: Results) -> list[str]:
    """Nanoseconds per document of each kernel of `bitslice_gpu`."""
    lines: list[str] = []
    for report in results.gpus().values():
        found: dict[str, dict[str, float]] = {}
        for row in report["rows"]:
            if row["section"] == "stage" and row["contender"].startswith("bitslice_gpu"):
                key = f"{row['trees']:,} x {row['leaves']}, {row['contender'].partition(', ')[2]}"
                found.setdefault(row["stage"], {})[key] = row["us_per_document"] * 1e3
        forests = list(dict.fromkeys(key for of in found.values() for key in of))
        told = [[f"`{stage}`", *(figure(of[f]) if f in of else "" for f in forests)] for stage, of in found.items()]
        lines += paragraph(f"{report['gpu']['name']}, nanoseconds per document{note(report)}:")
        lines += [*table(["stage", *forests], told), ""]
    return lines[:-1]


def front(results: Results, folder: Path) -> list[str]:
    """The section of bench/README.md; the papers' tables made on machines with a GPU belong to other processors."""
    lines = ["## GPUs", ""]
    tables = [(path, json.loads(path.read_text(encoding="utf-8"))) for path in sorted(folder.glob("tables/*/*.json"))]
    for gpu, report in results.gpus().items():
        name = report["gpu"]["name"]
        lines += paragraph(f"[{name}](results/gpu-{gpu}.md): results of `python bench/gpu.py`{note(report)}.")
        lines += [f"![Time per document by number of trees and by batch size](results/gpu-{gpu}.png)", ""]
        for path, told in tables:
            if name in told["versions"]:
                page = path.relative_to(folder).with_suffix(".md").as_posix()
                lines += [f"Also measured on this GPU: [{told['name']}: {told['title']}](results/{page}).", ""]
    return [*lines, "[Counts of the work that `qs_gpu` does](results/gpu-counts.md)."]
