"""A table as a chart: our lines solid, the paper's dashed in the same colour; or our bars and the paper's crosses."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogFormatter

from lab.page import axis, in_order, values_of, x_label
from lab.papers import Values


def draw(report: dict[str, Any], path: Path) -> None:
    """Write the chart: lines if x is numeric, otherwise a bar plot for each x."""
    here, there = values_of(report["cells"]), report["paper"]["values"]
    panels = [p for p in in_order(here, there) if _numbers(here, p) or _numbers(there, p)]
    if not panels:
        return
    bars = any(not x.isdigit() for panel in panels for x in axis(here, there, panel))
    title = f"{report['name']}: {report['title']} ({report['processor']}{'; a quick run' if report['quick'] else ''})"
    figure = _bars(report, here, there, panels) if bars else _lines(report, here, there, panels)
    figure.suptitle(title, fontsize=11)
    figure.savefig(path, dpi=100)


def _numbers(values: Values, panel: str) -> bool:
    return any(value is not None for row in values.get(panel, {}).values() for value in row.values())


def _plots(n: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    columns = min(columns, n)
    rows = math.ceil(n / columns)
    figure = Figure(figsize=(max(width * columns, 10), height * rows + 1), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for ax in axes[n:]:
        ax.remove()
    return figure, axes[:n]


def _lines(report: dict[str, Any], here: Values, there: Values, panels: list[str]) -> Figure:
    """A plot for each panel, both axes logarithmic."""
    labels = in_order(*(rows for of in (here, there) for rows in of.values()))
    colours = {label: mpl.colormaps["tab20"](at % 20) for at, label in enumerate(labels)}
    figure, axes = _plots(len(panels), 4, 3.4, 3.1)
    drawn = set()
    for ax, panel in zip(axes, panels, strict=True):
        for values, style in ((here, "o-"), (there, "x--")):
            for label, row in values.get(panel, {}).items():
                points = sorted((int(x), value) for x, value in row.items() if value is not None)
                if points:
                    drawn.add(label)
                    ax.plot(*zip(*points, strict=True), style, color=colours[label], markersize=4, linewidth=1.2)
        xs = axis(here, there, panel)
        ax.set(xscale="log", yscale="log")
        ax.set_xticks([int(x) for x in xs], [x_label(x) for x in xs], fontsize=8, rotation=30)
        ax.set_xticks([], minor=True)
        ax.yaxis.set_major_formatter(LogFormatter())
        ax.yaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1, 0.4)))
        ax.tick_params(axis="y", which="both", labelsize=8)
        ax.set_title(panel, fontsize=10)
        ax.set_xlabel(report["x_name"], fontsize=9)
        counted = "%" if "%" in panel else "a document and tree"
        ax.set_ylabel(counted if panel in report["counted"] else report["unit"], fontsize=9)
        ax.grid(alpha=0.3)
    handles = [Line2D([], [], color=colours[label], marker="o", label=label) for label in labels if label in drawn]
    handles.append(Line2D([], [], color="grey", linestyle="--", marker="x", label="the paper's"))
    figure.legend(handles=handles, loc="outside lower center", ncols=min(6, len(handles)), fontsize=9)
    return figure


def _bars(report: dict[str, Any], here: Values, there: Values, panels: list[str]) -> Figure:
    """A plot for each panel and x, with a bar for each row and a cross for the paper's value."""
    places = [(panel, x) for panel in panels for x in axis(here, there, panel)]
    rows = max(len(in_order(here.get(panel, {}), there.get(panel, {}))) for panel in panels)
    figure, axes = _plots(len(places), 3, 4.2, 0.16 * rows + 1)
    for ax, (panel, x) in zip(axes, places, strict=True):
        labels = in_order(here.get(panel, {}), there.get(panel, {}))
        for at, label in enumerate(labels):
            ours, theirs = (values.get(panel, {}).get(label, {}).get(x) for values in (here, there))
            if ours is not None:
                ax.barh(at, ours, 0.7, color="tab:green" if "(ours)" in label else "tab:blue")
            if theirs is not None:
                ax.plot(theirs, at, "x", color="black", markersize=5)
        ax.set(xscale="log", ylim=(len(labels) - 0.5, -0.5))
        ax.set_yticks(range(len(labels)), labels, fontsize=7)
        ax.xaxis.set_major_formatter(LogFormatter())
        ax.xaxis.set_minor_formatter(LogFormatter(minor_thresholds=(1, 0.4)))
        ax.tick_params(axis="x", which="both", labelsize=8)
        ax.set_title(x, fontsize=10)
        ax.set_xlabel(report["unit"], fontsize=9)
        ax.grid(alpha=0.3, axis="x")
    handles = [Line2D([], [], color="black", linestyle="", marker="x", label="the paper's")]
    figure.legend(handles=handles, loc="outside lower center", fontsize=9)
    return figure
