"""Plots of reports: time by documents per call for every library, and bars for every engine."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from pathlib import Path
from typing import Any

from pages.results import Report, Results, is_ours

#: Models are drawn if they were timed with at least this many call sizes.
FEWEST_SIZES = 3
#: Line styles of gpuqs's own curves, which are all black.
LINES = {"gpuqs, fast": "--", "gpuqs, encoded": ":", "gpuqs, encoded, fast": "-."}


def curves(report: Report) -> list[tuple[str, int, list[dict[str, Any]]]]:
    """Model, threads and cells of each set of curves."""
    found = []
    for result in report["results"]:
        for n_threads in sorted({cell["threads"] for cell in result["cells"]}):
            cells = [cell for cell in result["cells"] if cell["threads"] == n_threads]
            if len(cells) >= FEWEST_SIZES:
                found.append((result["model"], n_threads, cells))
    return found


def to_draw(results: Results) -> list[tuple[str, str]]:
    """Kind and processor of the reports that have a plot."""
    return [
        (kind, processor)
        for (kind, processor), report in results.reports.items()
        if kind == "engines" or (kind == "libraries" and curves(report))
    ]


def digest(report: Report) -> str:
    """A digest of a plot's data, which is stored in the plot's file."""
    return hashlib.sha256(json.dumps(report, sort_keys=True).encode()).hexdigest()


def drawn_from(picture: Path) -> str | None:
    """The digest stored in a plot's file."""
    data = picture.read_bytes()
    at = 8  # after the signature
    while at < len(data):
        length, kind = struct.unpack_from(">I4s", data, at)
        key, _, text = data[at + 8 : at + 8 + length].partition(b"\0")
        if kind == b"tEXt" and key == b"Source":
            return text.decode("latin-1")
        at += 12 + length
    return None


def draw(results: Results, kind: str, processor: str, folder: Path) -> None:
    """Write a report's plot, unless the existing one was drawn from the same figures."""
    report, path = results.reports[kind, processor], folder / f"{kind}-{processor}.png"
    if path.exists() and drawn_from(path) == digest(report):
        return
    figure = {"engines": draw_engines, "libraries": draw_libraries}[kind](report)
    figure.savefig(path, dpi=110, metadata={"Source": digest(report)})


def draw_libraries(report: Report) -> Any:
    from matplotlib import pyplot as plt

    shown = curves(report)
    columns = 2
    rows = -(-len(shown) // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(12, 4.2 * rows), sharey=True, constrained_layout=True)
    labels = list(dict.fromkeys(label for _, _, cells in shown for cell in cells for label in cell["us_per_document"]))
    theirs = [label for label in labels if not is_ours(label)]
    colours = {label: plt.get_cmap("tab20")(number % 20) for number, label in enumerate(theirs)}
    for ax, (model, n_threads, cells) in zip(axes.flat, shown, strict=False):
        for label in labels:
            points = points_of(cells, label)
            if points:
                style = {"marker": "o", "linewidth": 2.5 if is_ours(label) else 1.2, "color": colours.get(label, "k")}
                ax.plot(*zip(*points, strict=True), label=label, linestyle=LINES.get(label, "-"), **style)
        ax.set(xscale="log", yscale="log", xlabel="documents per call", ylabel="us per document")
        ax.set_title(f"{model}, {n_threads} thread{'s'[: n_threads - 1]}", fontsize=9)
        ax.grid(alpha=0.3)
    for ax in list(axes.flat)[len(shown) :]:
        ax.axis("off")
    handles = {label: handle for ax in axes.flat for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=6, fontsize=8)
    figure.suptitle(report["processor"])
    return figure


def points_of(cells: list[dict[str, Any]], label: str) -> list[tuple[int, float]]:
    """A curve's points; NaN, which breaks the line, where the scores differed and there is no time."""
    times = [(cell["documents"], cell["us_per_document"].get(label)) for cell in cells]
    kept = [(n, us) for (n, us), cell in zip(times, cells, strict=True) if us is not None or label in cell["differ"]]
    return [(n, math.nan if us is None else us) for n, us in kept] if any(us for _, us in kept) else []


def draw_engines(report: Report) -> Any:
    from matplotlib import pyplot as plt

    models = report["results"]
    labels = list(dict.fromkeys(label for model in models for label in model["rows"]))
    figure, ax = plt.subplots(figsize=(10, 0.42 * len(labels) + 1.5), constrained_layout=True)
    height = 0.8 / len(models)
    for number, model in enumerate(models):
        at = [labels.index(label) + number * height for label in model["rows"]]
        ax.barh(at, [row["us_per_document"] for row in model["rows"].values()], height, label=model["model"])
    ax.set_yticks([i + 0.4 - height / 2 for i in range(len(labels))], labels, fontsize=8)
    ax.set_ylim(len(labels), -height)  # the first contender on top
    ax.set(xscale="log", xlabel="us per document (one thread unless stated)", title=report["processor"])
    ax.grid(axis="x", alpha=0.3)
    ax.legend(fontsize=8)
    return figure
