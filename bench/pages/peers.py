"""Other libraries compared with gpuqs, one line each: one thread, the largest calls."""

from __future__ import annotations

from typing import Any

from pages.figures import Table, figure, paragraph, share, table, times
from pages.results import MODELS, Report, Results, is_ours, of_headline, ours_for, result_for


def largest_cell(result: Report) -> dict[str, Any]:
    """The cell with one thread and the most documents."""
    return max((c for c in result["cells"] if c["threads"] == 1), key=lambda cell: cell["documents"])


def peer_rows(report: Report) -> Table:
    """Each library and model once, a library's lines together."""
    rows = []
    for result in report["results"]:
        us = largest_cell(result)["us_per_document"]
        for contender, theirs in us.items():
            name = contender.partition(",")[0]
            if name == "LightGBM" or is_ours(contender):
                continue
            version = ".".join(report["peers"][name]["version"].split(".")[:2])
            model = result["model"] + (", `Pool` : `model.encode`" if contender.endswith("Pool") else "")
            ours = us[ours_for(contender)]
            rows.append([f"{name} {version}", model, f"{figure(theirs)} : {figure(ours)}", times(theirs / ours)])
    order = [name for name, *_ in rows]
    return sorted(rows, key=lambda row: order.index(row[0]))


def peers(results: Results) -> list[str]:
    """Other libraries on the headline's processor."""
    report = of_headline(results, "libraries")
    head = ["library", "model", "library : gpuqs", "times as fast"]
    text = (
        f"Measured on the {report['processor']} with one thread and the largest calls that were timed (tables by "
        "documents per call are below). The third column gives microseconds per document of the library and of gpuqs "
        "in the same run, the fourth how many times as fast gpuqs is. gpuqs runs with its defaults: exact scores, and "
        "`bitslice` with AVX-512, except for the fully grown trees, which run `walk`. The machine was shared, and "
        "gpuqs's times for a model differ from those in README's first table by up to "
        f"{share(apart(report, of_headline(results, 'engines')))}, so compare times only within a line."
    )
    return [*paragraph(text), *table(head, peer_rows(report))]


def apart(report: Report, with_engines: Report) -> float:
    """The largest difference between two runs' figures for gpuqs on the same model."""
    ratios = []
    for words in MODELS.values():
        ours = largest_cell(result_for(report, words))["us_per_document"]["gpuqs"]
        ratio = ours / result_for(with_engines, words)["rows"]["bitslice avx512"]["us_per_document"]
        ratios.append(max(ratio, 1 / ratio) - 1)
    return max(ratios)
