"""docs/environment.md lists exactly the environment variables that gpuqs reads."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT.joinpath("docs", "environment.md").read_text(encoding="utf-8")
#: Calls that read a variable: Python's, C's and our own in Cython.
_READ = re.compile(r"""(?:environ\.get\(|environ\[|getenv\(|environment\()\s*(?:std::)?"(\w+)\"""")


def files(*rooms: str) -> list[Path]:
    suffixes = (".py", ".pyx", ".pxi", ".cpp", ".hpp", ".inl")
    return [path for room in rooms for path in (ROOT / room).rglob("*") if path.suffix in suffixes]


def read_in(*rooms: str) -> set[str]:
    """The variables that the code in some folders reads, including all names with our prefix."""
    found: set[str] = set()
    for path in files(*rooms):
        text = path.read_text(encoding="utf-8")
        found |= set(_READ.findall(text)) | set(re.findall(r"\"(GPUQS_[A-Z_]+)\"", text))
    return found


def tables() -> list[set[str]]:
    """The variables in the page's two tables: read at run time, and in development."""
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
