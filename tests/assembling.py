"""The JIT's encoder as a program of its own, and an independent disassembler's reading of what it writes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable
from pathlib import Path

import capstone

KERNELS = Path(__file__).parents[1] / "cpu_fallback"
SOURCES = (Path(__file__).parent / "unit" / "assemble.cpp", KERNELS / "jit" / "tree_programs.cpp")
DISASSEMBLER = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)

#: Encodings, and the bytes of the words that their registers hold.
WIDTHS = [("vex", 16), ("vex", 32), ("evex", 16), ("evex", 32), ("evex", 64)]
#: A vector register's letter and a memory operand's size, by bytes.
LETTERS = {16: "x", 32: "y", 64: "z"}


def build_assembler(folder: Path) -> Path:
    """Compile the program that writes machine code."""
    program = folder / "assemble"
    flags = ["-std=c++17", "-O1", f"-I{KERNELS}", "-o", str(program)]
    subprocess.run([os.environ.get("CXX", "g++"), *flags, *map(str, SOURCES)], check=True, timeout=300)
    return program


def assemble(program: Path, lines: Iterable[str]) -> list[bytes | str]:
    """The code of each line, or the error that it ended in."""
    lines = list(lines)
    done = subprocess.run(
        [program], input="".join(f"{line}\n" for line in lines), capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    answers = done.stdout.splitlines()
    assert len(answers) == len(lines)
    return [answer if answer.startswith("error: ") else bytes.fromhex(answer) for answer in answers]


def disassemble(code: bytes) -> list[str]:
    """All instructions of the code, one after another without a rest."""
    read = list(DISASSEMBLER.disasm_lite(code, 0))
    assert sum(size for _, size, _, _ in read) == len(code), f"{code.hex()} is no sequence of instructions: {read}"
    return [f"{mnemonic} {operands}".strip() for _, _, mnemonic, operands in read]
