"""What the kernels of an instruction set leave to the linker: a table, and no function that another set might run.

Of a function with external linkage the linker keeps one copy. Older processors would crash in AVX-512's.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
from pathlib import Path

import pytest

KERNELS = Path(__file__).parents[2] / "cpu_fallback"
CMAKE = (KERNELS / "CMakeLists.txt").read_text(encoding="utf-8")
LISTS = dict(re.findall(r"^ *set\((\w+) (-.*)\)$", CMAKE, flags=re.M))
#: The compiler's flags for each instruction set, as CMake gets them.
FLAGS = {
    name: re.sub(r"\$\{(\w+)\}", lambda match: LISTS[match[1]], flags).split()
    for name, flags in re.findall(r"^ *add_instruction_set\((\w+)(.*?)\)", CMAKE, flags=re.M)
}
ARM = platform.machine() in ("aarch64", "arm64")
#: Those that can be compiled here.
HERE = [name for name in FLAGS if name == "portable" or (name == "neon") == ARM]

#: What compilers inline from -O1 on: constant members of the layouts' structs, the standard library's templates.
INLINED = re.compile(r"_ZNK5gpuqs|_ZSt|_ZNK?St|_ZN9__gnu_cxx")
#: What compilers add to code that may throw.
HARMLESS = re.compile(r"DW\.ref\.__gxx_personality_v0|__clang_call_terminate")


def left_to_the_linker(source: Path, folder: Path, flags: list[str]) -> set[str]:
    """Compile a file and return the names that it defines for others."""
    made = folder / "made.o"
    options = ["-std=c++17", "-fPIC", "-w", "-DGPUQS_QUICKSCORER", f"-I{KERNELS}", f"-I{source.parent}", *flags]
    command = [os.environ.get("CXX", "g++"), *options, "-c", str(source), "-o", str(made)]
    subprocess.run(command, check=True, timeout=600)
    listed = ["nm", "-gP", "--defined-only", str(made)]
    told = subprocess.run(listed, check=True, capture_output=True, text=True, timeout=60).stdout
    return {name for name, *_ in map(str.split, told.splitlines()) if not HARMLESS.fullmatch(name)}


def kernels_of(name: str) -> tuple[Path, str]:
    """Return the source of a set's kernels, and the name of its table."""
    return KERNELS / "isa" / name / "kernels.cpp", f"_ZN5gpuqs{len(f'kernels_{name}')}kernels_{name}E"


def test_all_instruction_sets_are_seen() -> None:
    assert FLAGS.keys() == {path.name for path in (KERNELS / "isa").iterdir()}
    assert FLAGS["portable"] == [] and "-mavx2" in FLAGS["avx2"]
    assert {"-mavx512f", "-mavx512vbmi"} <= set(FLAGS["avx512vbmi"])
    assert len(HERE) == (2 if ARM else 5)


@pytest.mark.parametrize("name", HERE)
def test_a_set_leaves_only_its_table_to_the_linker(name: str, tmp_path: Path) -> None:
    source, table = kernels_of(name)
    left = left_to_the_linker(source, tmp_path, ["-O0", *FLAGS[name]])  # -O0: no function disappears into its callers
    assert {other for other in left if not INLINED.match(other)} == {table}


def test_compilers_inline_the_rest(tmp_path: Path) -> None:
    source, table = kernels_of(HERE[-1])  # the set with most code of its own
    assert left_to_the_linker(source, tmp_path, ["-O1", *FLAGS[HERE[-1]]]) == {table}


def test_external_functions_are_seen(tmp_path: Path) -> None:
    source = tmp_path / "kernels.cpp"
    source.write_text(
        "namespace gpuqs {\n"
        "inline int in_line(int x) { return x; }\n"
        "constexpr int constant(int x) { return x; }\n"
        "template <class X> X any(X x) { return x; }\n"
        "struct Layout { int n; int member() const { return n; } void changes() { n++; } };\n"
        "static inline int inside(int x) { return x; }\n"
        "namespace { int here(Layout of) { of.changes(); return of.member(); } }\n"
        "int all(int x) { return in_line(x) + constant(x) + any(x) + inside(x) + here({x}); }\n"
        "}\n"
    )
    left = left_to_the_linker(source, tmp_path, ["-O0"])
    assert {name for name in left if not INLINED.match(name)} == {
        "_ZN5gpuqs7in_lineEi",
        "_ZN5gpuqs8constantEi",
        "_ZN5gpuqs3anyIiEET_S1_",
        "_ZN5gpuqs6Layout7changesEv",
        "_ZN5gpuqs3allEi",
    }
    assert "_ZNK5gpuqs6Layout6memberEv" in left
