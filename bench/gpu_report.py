"""The report of `bench/gpu.py`: JSON, Markdown, and a picture."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Row = dict[str, Any]
#: Table columns of each section, in order; everything else is only in the JSON.
COLUMNS = {
    "cell": ("trees", "leaves", "features", "documents", "contender", "us_per_document", "difference"),
    "batch on the device": ("documents", "contender", "us_per_document", "p50_us", "p95_us", "p99_us"),
    "batch on the host": ("documents", "contender", "us_per_document", "p50_us", "p95_us", "p99_us"),
    "stage": ("trees", "contender", "stage", "us_per_document", "floor_us", "achieved"),
    "energy": ("trees", "leaves", "documents", "contender", "microjoules_per_document"),
    "peer": ("trees", "leaves", "documents", "peer", "us_per_document", "difference"),
    "sizes": ("trees", "leaves", "form", "threads", "tree_blocks", "occupancy", "us_per_document"),
    "paper's form": ("trees", "leaves", "us_per_document"),
    "one document a block": ("trees", "leaves", "us_per_document"),
    "CPU, one thread": ("trees", "leaves", "engine", "us_per_document"),
    "policy over best": ("leaves", "ratio"),
}
#: The first contender of a cell, which is the base of ratios.
BASE = "bitslice_gpu, exact"


def write(report: Row, stem: Path) -> Iterator[Path]:
    """Write the report's three files and yield each. Without matplotlib there is no picture, which is noted."""
    picture = stem.with_suffix(".png")
    try:
        draw(report["rows"], report["gpu"]["name"], picture)
        yield picture
    except ImportError as missing:
        report["skipped"].append(f"the picture: {missing}")
    for suffix, text in ((".json", json.dumps(report, indent=1)), (".md", markdown(report))):
        stem.with_suffix(suffix).write_text(text, encoding="utf-8")
        yield stem.with_suffix(suffix)


def markdown(report: Row) -> str:
    """What was measured, a table for each section."""
    lines = [f"# {report['gpu']['name']}", "", "float32 documents; medians; p50 to p99: microseconds of a call.", ""]
    for section, names in COLUMNS.items():
        rows = [row for row in report["rows"] if row["section"] == section]
        if rows:
            heads = [name.replace("us_per_document", "us a document").replace("_", " ") for name in names]
            more = ["times"] if section == "cell" else []
            lines += [f"## {section}", "", f"| {' | '.join(heads + more)} |", "|---" * len(heads + more) + "|"]
            for row in rows:
                cells = [shown(row.get(name)) for name in names]
                cells += [shown(times_base(row, rows))] if more else []
                lines.append(f"| {' | '.join(cells)} |")
            lines.append("")
    if report["skipped"]:
        lines += ["## Left out", "", *(f"- {what}" for what in report["skipped"]), ""]
    return "\n".join(lines)


def times_base(row: Row, rows: list[Row]) -> float | None:
    """A contender's time relative to `BASE` in the same cell."""
    place = ("trees", "leaves", "features", "documents")
    same = [r for r in rows if r["contender"] == BASE and all(r[name] == row[name] for name in place)]
    return row["us_per_document"] / same[0]["us_per_document"] if same else None


def shown(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def draw(rows: list[Row], device: str, out: Path) -> None:
    """Plot time per document against trees (with the most leaves), and against batch size."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 4.5), layout="constrained")
    of_cells = [row for row in rows if row["section"] == "cell"]
    features = max((r["features"] for r in of_cells), key=[r["features"] for r in of_cells].count, default=0)
    most = max((r["leaves"] for r in of_cells if r["features"] == features), default=0)
    panels = (
        ("trees", [r for r in of_cells if (r["features"], r["leaves"]) == (features, most)], f"{most} leaves"),
        ("documents", [r for r in rows if r["section"] == "batch on the device"], "batches on the device"),
    )
    for index, (x, some, title) in enumerate(panels):
        axes = figure.add_subplot(1, 2, index + 1)
        for contender in dict.fromkeys(row["contender"] for row in some):
            mine = sorted((r[x], r["us_per_document"] * 1e3) for r in some if r["contender"] == contender)
            axes.plot(*zip(*mine, strict=True), "o-", label=contender)
        axes.set(title=f"{device}: {title}", xlabel=x, ylabel="ns per document", xscale="log", yscale="log")
        if some:
            axes.legend()
    figure.savefig(out)
