"""A table's page: Markdown with our numbers and the paper's side by side."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lab.papers import Values, ratio

#: Most x values that fit side by side as columns; more are listed as rows.
ABREAST = 6


def values_of(cells: dict[str, Any]) -> Values:
    """Only the numbers of a report's cells."""
    return {
        panel: {label: {x: cell.get("value") for x, cell in row.items()} for label, row in rows.items()}
        for panel, rows in cells.items()
    }


def in_order(*keys: Iterable[str]) -> list[str]:
    """All keys, each once, in order of first occurrence."""
    return list(dict.fromkeys(key for of in keys for key in of))


def axis(here: Values, there: Values, panel: str) -> list[str]:
    """Every x of a panel; numbers are in ascending order."""
    xs = in_order(*(row for of in (there, here) for row in of.get(panel, {}).values()))
    return sorted(xs, key=int) if all(x.isdigit() for x in xs) else xs


def number(value: float) -> str:
    """Format with four digits, or all integer digits of a larger number."""
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.4g}"


def markdown(report: dict[str, Any]) -> str:
    """The whole page."""
    paper, here = report["paper"], values_of(report["cells"])
    lines = [f"# {report['name']}: {report['title']}", ""]
    lines += [f"Paper {report['name'][:3]}, {paper['paper']}: {paper['processor']}.", ""]
    lines += [f"Here: {report['processor']}; {report['versions']}. {report['load']}.", ""]
    lines += [f"Models are trained on, and score, {report['data']}.", ""]
    if told := scored(report):
        lines += [told, ""]
    if report["quick"]:
        lines += ["**A quick run: small models and batches; its numbers say nothing beside the paper's.**", ""]
    if report["unit"] and report["cells"].keys() > set(report["counted"]):
        more = ", the more the better" if report["more_is_better"] else ""
        apart = "; what was counted, as its heading says" if report["counted"] else ""
        lines += [f"Numbers are {report['unit']}{more}{apart}.", ""]
    if report["base"]:
        lines += [f"In brackets: how many times as fast as {report['base']}; of counts, how many times as few.", ""]
    for panel in in_order(here, paper["values"]):
        lines += [f"## {panel}", "", *_panel(report, here, panel), ""]
    lines += [f"- {told}" for told in (*report["notes"], *(f"The paper: {text}" for text in paper["text"]))]
    lines += [f"- Model: {model_line(model)}" for model in report["models"]]
    lines += [f"- {told}" for told in reasons(report["cells"])]
    lines += [f"- {told}" for told in parameters(report["cells"])]
    lines += [f"- The paper's parameters: {told}" for told in _paper_parameters(paper["parameters"])]
    return "\n".join(lines) + "\n"


def scored(report: dict[str, Any]) -> str:
    """How many documents a call scored; empty if that is the axis, or is not known."""
    if report["x_name"] == "documents":
        return ""
    places: dict[int, list[str]] = {}
    by_x: dict[str, set[int]] = {}
    for row in report.get("documents", {}).values():
        for x, n in row.items():
            by_x.setdefault(x, set()).add(n)
    alike = all(len(of) == 1 for of in by_x.values())  # the same in all panels
    for panel, row in report.get("documents", {}).items():
        for x, n in row.items():
            places.setdefault(n, []).append(x_label(x) if alike else f"{panel} at {x_label(x)}")
    if len(places) <= 1:
        return "".join(f"A call scored {n:,} documents." for n in places)
    if alike:
        where = (f"{n:,} at {', '.join(in_order(of))}" for n, of in places.items())
        return f"Documents that a call scored, by {report['x_name']}: {'; '.join(where)}."
    return f"Documents that a call scored: {'; '.join(f'{n:,} ({_some(of)})' for n, of in places.items())}."


def model_line(model: dict[str, Any]) -> str:
    facts = (f"{name} {number(value)}" for name, value in model.items() if name != "model")
    return f"{model['model']}; {', '.join(facts)}"


def _panel(report: dict[str, Any], here: Values, panel: str) -> list[str]:
    """One panel's table, with x as columns if they fit, else as rows."""
    there: Values = report["paper"]["values"]
    xs, labels = axis(here, there, panel), in_order(here.get(panel, {}), there.get(panel, {}))
    told = [label for label in labels if any(v is not None for v in there.get(panel, {}).get(label, {}).values())]
    cell = {
        (label, x, side): _cell(values, panel, label, x, report)
        for side, values in (("here", here), ("paper", there))
        for label in labels
        for x in xs
    }
    if len(xs) <= ABREAST:
        columns = [(x, side) for x in xs for side in ("here", "paper")]
        head = [report["x_name"], *(f"{x_label(x)}, {side}" for x, side in columns)]
        rows = [[label, *(cell[label, x, side] for x, side in columns)] for label in labels]
    else:
        places = [(label, side) for label in labels for side in ("here", "paper") if side == "here" or label in told]
        head = [report["x_name"], *(f"{label}, {side}" if label in told else label for label, side in places)]
        rows = [[x_label(x), *(cell[label, x, side] for label, side in places)] for x in xs]
    return [f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows)]


def x_label(x: str) -> str:
    return f"{int(x):,}" if x.isdigit() else x


def _cell(values: Values, panel: str, label: str, x: str, report: dict[str, Any]) -> str:
    row = values.get(panel, {}).get(label, {})
    value = row.get(x)
    if value is None:
        return "NA" if x in row else ""
    times = ratio(values, panel, label, x, report["base"], report["more_is_better"])
    return number(value) + (f" ({times:.2f}x)" if times and label != report["base"] else "")


def reasons(cells: dict[str, Any]) -> list[str]:
    """Why rows have no number, each reason once."""
    told: dict[tuple[str, str], list[str]] = {}
    for panel, rows in cells.items():
        for label, row in rows.items():
            for x, cell in row.items():
                if cell.get("reason"):
                    told.setdefault((label, cell["reason"]), []).append(f"{panel} at {x_label(x)}")
    return [f"{label}: NA, {reason} ({_some(where)})" for (label, reason), where in told.items()]


def parameters(cells: dict[str, Any]) -> list[str]:
    """The parameters that rows had."""
    told: dict[str, dict[str, list[str]]] = {}
    for panel, rows in cells.items():
        for label, row in rows.items():
            for x, cell in row.items():
                chosen = ", ".join(f"{p} = {v}" for p, v in cell.get("parameters", {}).items())
                if chosen:
                    told.setdefault(label, {}).setdefault(chosen, []).append(f"{panel} at {x_label(x)}")
    return [f"{label}: {chosen} ({_some(where)})" for label, of in told.items() for chosen, where in of.items()]


def _paper_parameters(told: dict[str, Any]) -> list[str]:
    return [
        f"{label}, {panel} at {x_label(x)}: {text}"
        for panel, rows in told.items()
        for label, row in rows.items()
        for x, text in row.items()
    ]


def _some(where: list[str]) -> str:
    places = in_order(where)
    return "; ".join(places[:3]) + (f"; and {len(places) - 3} more" if len(places) > 3 else "")
