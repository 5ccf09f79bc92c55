"""docs/environment.md lists every variable of the environment that gpuqs reads, and no other."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT.joinpath("docs", "environment.md").read_text(encoding="utf-8")
#: What reads a variable: Python's and C's ways, and our own of Cython.
_READ = re.compile(r"""(?:environ\.get\(|environ\[|getenv\(|environment\()\s*(?:std::)?"(\w+)\"""")


def files(*rooms: str) -> list[Path]:
    suffixes = (".py", ".pyx", ".pxi", ".cpp", ".hpp", ".inl")
    return [path for room in rooms for path in (ROOT / room).rglob("*") if path.suffix in suffixes]


def read_in(*rooms: str) -> set[str]:
    """The variables that the code of some folders reads, by their names, and all that begin as ours do."""
    found: set[str] = set()
    for path in files(*rooms):
        text = path.read_text(encoding="utf-8")
        found |= set(_READ.findall(text)) | set(re.findall(r"\"(GPUQS_[A-Z_]+)\"", text))
    return found


def tables() -> list[set[str]]:
    """What the page's two tables list: read while gpuqs runs, and in development."""
    used, _, developing = PAGE.partition("for development alone:")
    return [set(re.findall(r"^\| `(\w+)` \|", text, re.M)) for text in (used, developing)]


def test_every_variable_that_is_read_is_in_the_table() -> None:
    read = read_in("gpuqs", "cpu_fallback", "cuda")
    assert len(files("gpuqs", "cpu_fallback", "cuda")) > 150
    assert {"GPUQS_ISA", "GPUQS_DUMP_CODE", "GPUQS_DEBUG", "OMP_NUM_THREADS"} <= read
    assert tables()[0] == read


def test_variables_of_development_are_in_theirs() -> None:
    benches = read_in("bench", "tests/cuda") | set(_READ.findall(ROOT.joinpath("tests", "real_data.py").read_text()))
    assert tables()[1] == {name for name in benches if name.startswith("GPUQS_")} - tables()[0]
