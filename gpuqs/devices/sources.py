"""The device code: where its sources lie, and how each kernel is compiled."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Traversable


def source_folder() -> Traversable:
    """The folder of the .cu files: in the installed package, or next to it in a checkout."""
    package = files("gpuqs")
    installed = package / "cuda"
    return installed if installed.is_dir() else package / ".." / "cuda"


@cache
def source(file: str) -> str:
    """The source of a .cu file with gpuqs's own headers inlined, so that caches keyed by it see every change."""
    seen: set[str] = set()

    def expand(name: str) -> str:
        if name in seen:
            return ""
        seen.add(name)
        text = (source_folder() / name).read_text(encoding="utf-8").replace("#pragma once\n", "")
        return re.sub(r'^#include "([\w.]+)"\n', lambda m: expand(m[1]), text, flags=re.MULTILINE)

    return expand(file)


def compile_options(architecture: int, registers: int) -> tuple[str, ...]:
    """All of NVRTC's options: ``registers`` is the upper limit per thread, ``architecture`` a number such as 86.

    With --fmad=true, sums would differ in the last bit from the CPU's; with --ftz=true, float32 denormals would be
    zeros; without --prec-div=true, averages of float32 would differ.
    """
    return (
        "--std=c++17",
        "--fmad=false",
        "--ftz=false",
        "--prec-div=true",
        f"--maxrregcount={registers}",
        f"--gpu-architecture=sm_{architecture}",
    )
