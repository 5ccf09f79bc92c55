"""The papers' tables and figures, reproduced together with gpuqs's own engines: checked bit for bit, timed in turns.

    python bench/tables.py                  # lists them
    python bench/tables.py 002-III 004-F5   # some of them
    python bench/tables.py all              # all of them, some hours
    python bench/tables.py all --quick      # all of them with small models and batches, some minutes
    python bench/tables.py 002-III --data FOLDER   # of the real data sets, LETOR text as distributed

Each table gives Markdown, JSON and a chart in bench/results/tables/, in a folder for this processor; a quick run
writes to bench/.cache/tables-quick; results of real data sets go to a folder next to it that ends in -real. Models
are trained when a table first needs them, and kept (GPUQS_BENCH_CACHE says where), separately for each real file.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "tests"))  # the checks use the tests' forests

from baselines.compiler import compiler
from datasets import SHAPES, Shape, check
from interleave import RESULTS, processor, processor_key
from lab import counting, gpu, selection, timing
from lab.chart import draw
from lab.page import markdown
from lab.papers import paper_of
from lab.plan import QUERIES, QUICK, Scale, Table
from lab.tables import TABLES

import gpuqs
from gpuqs import cpu_fallback
from gpuqs.errors import InputError

BY_NAME = {table.name: table for table in TABLES}
MADE_UP, REAL = "made-up documents, like the papers' in shape alone", "documents of the real data sets"
LIBRARIES = ("lightgbm", "catboost", "numpy")


def report_of(table: Table, scale: Scale, data: Path | None) -> dict[str, Any]:
    """Measure a table; return the data of its page, chart and JSON."""
    load = f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors as it began"
    measured = selection.measure if table.selects else timing.measure
    cells, models = measured(table, scale, data)
    notes = list(table.notes)
    timed = set(cells)
    if table.counted:
        cells |= counting.count(table.counted, scale, data)
        notes += counting.notes(table.counted)
    return {
        "name": table.name,
        "title": table.title,
        "base": table.base,
        "unit": "" if table.selects else table.unit.name,
        "more_is_better": table.unit is QUERIES,
        "counted": sorted(cells.keys() - timed),
        "x_name": table.x_name,
        "documents": documents(table, scale),
        "quick": scale.quick,
        "processor": processor(),
        "versions": versions(),
        "load": load,
        "data": MADE_UP if data is None else REAL,
        "notes": notes,
        "models": models,
        "cells": {
            panel: {label: {x: asdict(cell) for x, cell in row.items()} for label, row in rows.items()}
            for panel, rows in cells.items()
        },
        "paper": paper_of(table.name),
    }


def documents(table: Table, scale: Scale) -> dict[str, dict[str, int]]:
    """Documents scored per call, by panel and x of the timed points."""
    found: dict[str, dict[str, int]] = {}
    for point in scale.reduced(table.points):
        found.setdefault(point.panel, {})[str(point.x)] = point.documents
    return found


def shapes_of(table: Table) -> list[Shape]:
    """The data sets of a table's points."""
    points = (*table.points, *(table.counted.points if table.counted else ()))
    return [SHAPES[name] for name in dict.fromkeys(point.model.shape for point in points)]


def usual_folder(quick: bool, real: bool) -> Path:
    """Default folder of results, different for real data and made-up documents."""
    folder = Path(__file__).parent / ".cache" / "tables-quick" if quick else RESULTS / "tables" / processor_key()
    return folder.with_name(f"{folder.name}-real") if real else folder


def versions() -> str:
    told = [f"gpuqs {gpuqs.__version__}", cpu_fallback.available_isas()[0], compiler()[1]]
    told += [f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES if importlib.util.find_spec(name)]
    if gpu.absent() is None:
        told.append(gpu.name())
    return ", ".join([*told, f"Python {platform.python_version()}"])


def write(report: dict[str, Any], folder: Path) -> Path:
    """Write a table's JSON, page and chart; return the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = folder / str(report["name"])
    stem.with_suffix(".json").write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n")
    page = stem.with_suffix(".md")
    page.write_text(markdown(report))
    draw(report, stem.with_suffix(".png"))
    return page


def main(given: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help='names as listed, or "all"')
    parser.add_argument("--quick", action="store_true", help="small models and batches; all tables where none is named")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="where MSLR-WEB30K, Yahoo's set 1, Istella lie")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="where results go")
    args = parser.parse_args(given)
    names = list(BY_NAME) if "all" in args.tables or (args.quick and not args.tables) else args.tables
    if unknown := [name for name in names if name not in BY_NAME]:
        parser.error(f"no table {', '.join(unknown)}; there are {', '.join(BY_NAME)}")
    if not names:
        print(*(f"{table.name:<8} {table.title}" for table in TABLES), sep="\n")
    out = args.out or usual_folder(args.quick, args.data is not None)
    try:
        if args.data is not None:  # fail now, not after hours of other tables
            check((shape for name in names for shape in shapes_of(BY_NAME[name])), args.data)
        for name in names:
            start = time.perf_counter()
            page = write(report_of(BY_NAME[name], QUICK if args.quick else Scale(), args.data), out)
            print(f"{name}: {page} ({time.perf_counter() - start:.0f} s)", flush=True)
    except InputError as problem:
        raise SystemExit(f"{Path(__file__).name}: {problem}") from None


if __name__ == "__main__":
    main()
