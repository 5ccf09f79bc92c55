"""Imports run one way: a module imports from rooms below its own, and no two modules import each other.

`python tests/unit/test_imports.py` prints the table of docs/architecture.md.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "gpuqs"

#: The rooms, lowest first; rooms in the same line do not import each other.
LEVELS = [
    {"cpu_fallback", "errors", "cache_lines", "kept", "version"},
    {"forks", "streams", "text_hashes", "ctr_groups"},
    {"files", "ctrs"},
    {"schema", "forest_arrays", "forest_checks"},
    {"forest"},
    {"links"},
    {"layout", "formats", "ranking", "arrays", "threads"},
    {"devices", "outputs", "readers"},
    {"engines", "keywords", "told_categories"},
    {"tuning"},
    {"explanation"},
    {"programs", "scoring", "chooser", "chunks", "encoded", "repeated_calls"},
    {"placement", "plain_calls", "stages"},
    {"calls", "tune"},
    {"model"},
    {"loading"},
    {"gpuqs"},
    {"verify", "sklearn", "demo"},
    {"cli"},
    {"__main__"},
]
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}


def name_of(path: Path) -> str:
    parts = ("gpuqs", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in PACKAGE.rglob("*.py") if "cpu_fallback" not in path.parts}


def room_of(module: str) -> str:
    return module.split(".")[1] if "." in module else module


def imports(tree: ast.AST, when_called: bool = True) -> Iterator[str]:
    """Names of imports, except those only for types; with or without imports inside functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            yield from imports(ast.Module(node.orelse, []), when_called)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports name their modules in full"
            for alias in node.names:
                of_module = f"{node.module}.{alias.name}" in (*MODULES, "gpuqs.cpu_fallback")
                yield f"{node.module}.{alias.name}" if of_module else str(node.module)
        elif when_called or not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            yield from imports(node, when_called)


def ours(module: str, source: str | None = None, when_called: bool = True) -> set[str]:
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8") if source is None else source)
    return {name for name in imports(tree, when_called) if name.split(".")[0] == "gpuqs"} - {module}


def upward(module: str, source: str | None = None) -> list[str]:
    here = room_of(module)
    return [
        name
        for name in sorted(ours(module, source))
        if room_of(name) != here and LEVEL[room_of(name)] >= LEVEL[here]
    ]


def drawing() -> str:
    """Every room with those that it imports from, the highest first; a blank line between levels."""
    lines = []
    for rooms in LEVELS[::-1]:
        for room in sorted(rooms):
            of_room = [module for module in MODULES if room_of(module) == room]
            below = {room_of(name) for module in of_room for name in ours(module)} - {room}
            lines.append(f"{room:<13} {' '.join(sorted(below, key=lambda name: (-LEVEL[name], name)))}".rstrip())
        lines.append("")
    return "\n".join(lines[:-1])


def test_the_page_shows_what_imports_what() -> None:
    assert f"```text\n{drawing()}\n```" in (PACKAGE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_every_room_has_its_level() -> None:
    assert {room_of(module) for module in MODULES} == LEVEL.keys() - {"cpu_fallback"}


@pytest.mark.parametrize("module", sorted(MODULES))
def test_no_import_goes_up(module: str) -> None:
    assert upward(module) == []


def test_no_circle() -> None:
    graph = {module: ours(module, when_called=False) & MODULES.keys() for module in MODULES}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as circle:
        pytest.fail(f"circular imports: {' -> '.join(circle.args[1])}")


@pytest.mark.parametrize(
    ("module", "source", "seen"),
    [
        ("gpuqs.forest", "from gpuqs import engines", ["gpuqs.engines"]),
        ("gpuqs.engines.walk", "def f():\n    from gpuqs.model import Model", ["gpuqs.model"]),
        ("gpuqs.layout.ranks", "import gpuqs.engines.base", ["gpuqs.engines.base"]),
        ("gpuqs.forest", "if TYPE_CHECKING:\n    import gpuqs.model", []),
        ("gpuqs.model", "from gpuqs.forest import Forest", []),
    ],
)
def test_upward_imports_are_seen(module: str, source: str, seen: list[str]) -> None:
    assert upward(module, source) == seen


def test_no_other_module_is_shadowed() -> None:
    """Compiled modules occupy only names below gpuqs: names such as arrow and sparse belong to other packages."""
    code = """
import importlib, pkgutil, sys
import gpuqs.cpu_fallback as compiled
for module in pkgutil.walk_packages(compiled.__path__):
    importlib.import_module(f"gpuqs.cpu_fallback.{module.name}")
    assert sys.modules[f"gpuqs.cpu_fallback.{module.name}"].__name__ == f"gpuqs.cpu_fallback.{module.name}"
own = [name for name, module in sys.modules.items() if "gpuqs" in (getattr(module, "__file__", None) or "")]
assert len(own) > 10 and all(name.partition(".")[0] == "gpuqs" for name in own), own
"""
    subprocess.run([sys.executable, "-c", code], check=True, cwd="/")



if __name__ == "__main__":
    print(drawing())
