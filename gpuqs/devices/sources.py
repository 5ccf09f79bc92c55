"""The device code: where its sources lie, and how each kernel is compiled."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Traversable

#: Registers a thread that scores several documents needs not to spill.
SEVERAL_DOCUMENTS_REGISTERS = 40
#: And one that keeps several loads under way.
TRANSPOSE_REGISTERS = 40
#: And one that does so while it searches thresholds for several documents.
RANK_REGISTERS = 48
#: And one that takes logarithms of exponentials: too short to need many threads.
LINK_REGISTERS = 64
#: And one of the bit-sliced engine that has eight nodes' words under way, or a document word's leaf numbers.
WORD_REGISTERS = 64
#: And one that keeps the sums of 32 documents.
SUMS_REGISTERS = 128
#: And one that walks, or has the next values ready that it adds.
WALK_REGISTERS = 40


def source_folder() -> Traversable:
    """The folder of the .cu files: in the installed package, or beside it in a checkout."""
    package = files("gpuqs")
    installed = package / "cuda"
    return installed if installed.is_dir() else package / ".." / "cuda"


@cache
def source(file: str) -> str:
    """The text of a .cu file with its own headers put in, so that caches keyed by it see every change."""
    seen: set[str] = set()

    def expand(name: str) -> str:
        if name in seen:
            return ""
        seen.add(name)
        text = (source_folder() / name).read_text(encoding="utf-8").replace("#pragma once\n", "")
        return re.sub(r'^#include "([\w.]+)"\n', lambda m: expand(m[1]), text, flags=re.MULTILINE)

    return expand(file)


def register_budget(threads_per_multiprocessor: int, name: str) -> int:
    """Registers a thread may take, so that a multiprocessor's 65,536 do for all its threads."""
    filled = 65536 // threads_per_multiprocessor // 8 * 8
    if name.startswith("update_scores") and name.split(", ")[-2] != "1":
        return max(filled, SEVERAL_DOCUMENTS_REGISTERS)
    if name.startswith(("decode_predicates", "slots", "steps", "sum_exact")):
        return max(filled, WORD_REGISTERS)
    if name.startswith("walk"):
        return max(filled, WALK_REGISTERS)
    if name.startswith("sum_fast"):
        return max(filled, SUMS_REGISTERS)
    if name.startswith("apply_link"):
        return max(filled, LINK_REGISTERS)
    if name.startswith("rank_documents"):
        return max(filled, RANK_REGISTERS)
    return max(filled, TRANSPOSE_REGISTERS) if name.startswith("transpose") else filled


def compile_options(architecture: int, threads_per_multiprocessor: int, name: str) -> tuple[str, ...]:
    """All of NVRTC's options for a kernel, for ``architecture`` as 86.

    With --fmad=true, sums would differ in the last bit from the CPU's; with --ftz=true, float32 denormals would be
    zeros; without --prec-div=true, averages of float32 would differ.
    """
    budget = register_budget(threads_per_multiprocessor, name)
    return (
        "--std=c++17",
        "--fmad=false",
        "--ftz=false",
        "--prec-div=true",
        f"--maxrregcount={budget}",
        f"--gpu-architecture=sm_{architecture}",
    )
