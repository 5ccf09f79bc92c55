"""Everything that pages of docs/ and README name exists: files, folders, link targets, make targets."""

from __future__ import annotations

import inspect
import re
from fnmatch import fnmatch
from pathlib import Path

import pytest

from gpuqs.engines import Engine

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md", ROOT / "bench" / "README.md"]
ROOMS = ("gpuqs", "cpu_fallback", "cuda", "tests", "bench", "docs", ".ci")
SUFFIXES = "py|pyi|pyx|pxd|pxi|c?pp|hpp|inl|cuh?|md|svg|toml|json"

#: Path of every file and folder, with a leading slash.
THERE = [f"/{path.relative_to(ROOT)}" for path in ROOT.glob("*.*")]
THERE += [
    f"/{path.relative_to(ROOT)}" for room in ROOMS for path in (ROOT / room, *(ROOT / room).rglob("*")) if path.exists()
]

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def paths_in(text: str) -> set[str]:
    """Text in backticks that looks like one of our files or folders; NAME stands for any name."""
    outside_blocks = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    named = re.findall(rf"`((?:[\w.*-]+/)*[\w*-]+\.(?:{SUFFIXES})|(?:[\w.*-]+/)+)(?:::\w+)?`", outside_blocks)
    return {name.replace("NAME", "*") for name in named}


def is_there(path: str) -> bool:
    return any(fnmatch(known, f"*/{path.rstrip('/')}") for known in THERE)


@every_page
def test_every_path_named_is_there(page: Path) -> None:
    assert [path for path in sorted(paths_in(text_of(page))) if not is_there(path)] == []


def test_paths_are_seen() -> None:
    text = "`gpuqs/x.py`, `isa/*/y.inl`, `isa/NAME/`, `z.cu`, `tests/a.py::test_b`, `model.txt`, `np.zeros`\n"
    text += "```sh\n`w.py`\n```\n"
    assert paths_in(text) == {"gpuqs/x.py", "isa/*/y.inl", "isa/*/", "z.cu", "tests/a.py"}
    assert is_there("gpuqs/model.py") and is_there("isa/*/search.inl") and is_there("jit/")
    assert not is_there("gpuqs/utils.py") and not is_there("odel.py")


@every_page
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!http)([^)#]*)(?:#([^)]*))?\)", text_of(page))
    for path, heading in links:
        target = page.parent / path if path else page
        assert target.exists(), path
        if heading:
            headings = re.findall(r"^#+ (.*)$", text_of(target), re.M)
            assert heading in {re.sub(r"[^\w -]", "", line).lower().replace(" ", "-") for line in headings}


@every_page
def test_what_make_runs_is_there(page: Path) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.M)
    assert set(re.findall(r"`make ([\w-]+)", text_of(page))) <= set(targets)


def test_readme_leads_to_every_page() -> None:
    linked = set(re.findall(r"\]\(docs/([\w-]+\.md)\)", text_of(ROOT / "README.md")))
    assert linked == {page.name for page in PAGES} - {"README.md"}


def test_the_interface_of_engines_is_that_of_the_code() -> None:
    """The page lists each method that an engine must implement, with its parameters in order."""
    text = text_of(ROOT / "docs" / "adding-an-engine.md")
    told = dict(re.findall(r"^ *\| `(\w+)\((.*)\)` \|", text, re.M))
    for name, parameters in told.items():
        _, *names = inspect.signature(getattr(Engine, name)).parameters
        assert parameters.replace("*, ", "").split(", ") == names, name
    assert Engine.__abstractmethods__ | {"cold"} == told.keys()


@pytest.mark.parametrize("room", ["layout", "engines"])
def test_every_file_of_layouts_and_engines_is_told(room: str) -> None:
    (told,) = re.findall(
        rf"^- \*\*`gpuqs/{room}/`\*\*(.*?)^- \*\*", text_of(ROOT / "docs" / "architecture.md"), re.M | re.S
    )
    files = {path.name for path in (ROOT / "gpuqs" / room).glob("*.py")} - {"__init__.py", "parameters.py"}
    assert files <= set(re.findall(r"`(\w+\.py)`", told))


def test_the_newcomers_answers() -> None:
    """Each answer names an existing file and a string to look for in it."""
    rows = re.findall(r"^\| ([^|]*\?) \| `([^`]+)` \| `([^`]+)` \|", text_of(ROOT / "docs" / "architecture.md"), re.M)
    assert len(rows) == 12
    for question, path, name in rows:
        assert re.search(rf"\b{re.escape(name)}\b", (ROOT / path).read_text(encoding="utf-8")), question
