"""The JSON files of bench/results/, by kind and by where they were measured."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pages.figures import figure

FOLDER = Path(__file__).parents[1] / "results"
#: The processor of README's first table, as file names spell it.
HEADLINE = "intel-r-xeon-r-processor"
#: The models of that table, by words in their names.
MODELS = {
    "1,000 trees x 64 leaves": "LightGBM LambdaMART 1,000 x 64",
    "1,000 x 32": "LightGBM LambdaMART 1,000 x 32",
    "20,000 x 64": "LightGBM 20,000 x 64",
}
Report = dict[str, Any]


@dataclass(frozen=True)
class Results:
    """Reports by kind ("engines", "libraries", ...) and processor, as the names of their files have them."""

    reports: dict[tuple[str, str], Report]

    @classmethod
    def read(cls, folder: Path = FOLDER) -> Results:
        found = {}
        for path in sorted(folder.glob("*-*.json")):
            kind, _, processor = path.stem.partition("-")
            report = json.loads(path.read_text(encoding="utf-8"))
            if {"processor", "gpu"} & report.keys():  # other reports do not belong to a machine
                found[kind, processor] = report
        return cls(found)

    def get(self, kind: str, processor: str) -> Report | None:
        return self.reports.get((kind, processor))

    def processors(self) -> list[str]:
        """The processors, the headline's first."""
        of = {processor for (_, processor), report in self.reports.items() if "processor" in report}
        return sorted(of, key=lambda name: (name != HEADLINE, name))

    def gpus(self) -> dict[str, Report]:
        """The reports of GPUs, by the GPU's name in file names."""
        return {gpu: report for (kind, gpu), report in self.reports.items() if kind == "gpu"}

    def name(self, processor: str) -> str:
        """The processor's name in the reports."""
        return next(report["processor"] for (_, of), report in self.reports.items() if of == processor)


def of_headline(results: Results, kind: str) -> Report:
    """The report of a kind for the headline's processor."""
    return results.reports[kind, HEADLINE]


def result_for(report: Report, words: str) -> Report:
    """A report's result for the model whose name has these words."""
    (found,) = (result for result in report["results"] if words in result["model"])
    return found


def short_version(versions: str, package: str) -> str:
    """For example "4.7" from "gpuqs 0.1.0, LightGBM 4.7.0"."""
    found = re.search(rf"{package} (\d+\.\d+)", versions)
    return found[1] if found else ""


def ours_for(contender: str) -> str:
    """The gpuqs contender that does the same work as the given one."""
    return "gpuqs, encoded" if contender.endswith("Pool") else "gpuqs"


def is_ours(contender: str) -> bool:
    return contender.startswith("gpuqs")


def time_in(cell: Report, contender: str) -> str:
    """A contender's time in a cell of bench/libraries.py, with the number of documents if it was reduced."""
    if contender not in cell["us_per_document"]:
        return ""
    fewer = cell["fewer_documents"].get(contender)
    return figure(cell["us_per_document"][contender]) + (f" (of {fewer:,})" if fewer else "")
