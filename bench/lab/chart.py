"""A table as a chart: a plot for each panel, ours drawn through, the paper's dashed in the same colour."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from lab.page import axis, in_order, values_of, x_label
from lab.papers import Values

#: Plots side by side.
COLUMNS = 4


def draw(report: dict[str, Any], path: Path) -> None:
    """Write the chart."""
    here, there = values_of(report["cells"]), report["paper"]["values"]
    panels = [p for p in in_order(here, there) if _numbers(here, p) or _numbers(there, p)]
    if not panels:
        return
    labels = in_order(*(rows for of in (here, there) for rows in of.values()))
    colours = {label: mpl.colormaps["tab20"](at % 20) for at, label in enumerate(labels)}
    bars = any(not x.isdigit() for panel in panels for x in axis(here, there, panel))
    columns = 1 if bars else min(COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    tall = 0.16 * len(labels) * max(len(axis(here, there, p)) for p in panels) + 1 if bars else 3.1
    figure = Figure(figsize=(9 if bars else max(3.4 * columns, 7), tall * rows + 1), layout="constrained")
    for ax, panel in zip(figure.subplots(rows, columns, squeeze=False).flat, panels, strict=False):
        (_bars if bars else _lines)(ax, here, there, panel, colours)
        ax.set_title(panel, fontsize=10)
        ax.grid(alpha=0.3)
        ax.set_xlabel(report["unit"] if bars else report["x_name"], fontsize=9)
        if not bars:
            ax.set_ylabel("" if ": " in panel or report["counts"] else report["unit"], fontsize=9)
    for ax in figure.axes[len(panels) :]:
        ax.remove()
    rows_of = [rows for of in (here, there) for rows in of.values()]
    drawn = [label for label in labels if any(_numbers({"": {label: rows.get(label, {})}}, "") for rows in rows_of)]
    handles = [Line2D([], [], color=colours[label], marker="o", label=label) for label in drawn]
    if not bars:
        handles.append(Line2D([], [], color="grey", linestyle="--", marker="x", label="the paper's"))
        figure.legend(handles=handles, loc="outside lower center", ncols=min(6, len(handles)), fontsize=9)
    quick = "; a quick run" if report["quick"] else ""
    figure.suptitle(f"{report['name']}: {report['title']} ({report['processor']}{quick})", fontsize=11)
    figure.savefig(path, dpi=100)


def _numbers(values: Values, panel: str) -> bool:
    return any(value is not None for row in values.get(panel, {}).values() for value in row.values())


def _lines(ax: Axes, here: Values, there: Values, panel: str, colours: dict[str, Any]) -> None:
    for values, style in ((here, "o-"), (there, "x--")):
        for label, row in values.get(panel, {}).items():
            points = sorted((int(x), value) for x, value in row.items() if value is not None)
            if points:
                ax.plot(*zip(*points, strict=True), style, color=colours[label], markersize=4, linewidth=1.2)
    ax.set(xscale="log", yscale="log")
    xs = axis(here, there, panel)
    ax.set_xticks([int(x) for x in xs], [x_label(x) for x in xs], fontsize=8, rotation=30)
    ax.set_xticks([], minor=True)
    ax.tick_params(axis="y", labelsize=8)


def _bars(ax: Axes, here: Values, there: Values, panel: str, colours: dict[str, Any]) -> None:
    """A group of bars for each x, ours filled, the paper's hollow marks beside."""
    xs, labels = axis(here, there, panel), in_order(here.get(panel, {}), there.get(panel, {}))
    for at, x in enumerate(xs):
        for place, label in enumerate(labels):
            y = at + 0.8 * (place + 0.5) / len(labels) - 0.4
            ours, theirs = (values.get(panel, {}).get(label, {}).get(x) for values in (here, there))
            if ours is not None:
                ax.barh(y, ours, 0.7 / len(labels), color=colours[label])
                ax.annotate(label, (ours, y), fontsize=6, va="center", xytext=(2, 0), textcoords="offset points")
            if theirs is not None:
                ax.plot(theirs, y, "x", color="black", markersize=4)
                if ours is None:
                    ax.annotate(label, (theirs, y), fontsize=6, va="center", xytext=(4, 0), textcoords="offset points")
    ax.set(xscale="log", ylim=(len(xs) - 0.5, -0.5))
    ax.set_yticks(range(len(xs)), xs, fontsize=8)
