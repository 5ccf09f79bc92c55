"""The JIT's encoder built as a separate program, and a disassembler to check its output independently."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

import capstone

from gpuqs.layout.bitslice import BitsliceLayout
from gpuqs.layout.programs import NodePrograms

KERNELS = Path(__file__).parents[1] / "cpu_fallback"
SOURCES = (Path(__file__).parent / "unit" / "assemble.cpp", KERNELS / "jit" / "tree_programs.cpp")
DISASSEMBLER = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)

#: Encodings, each with the register widths in bytes that it can use.
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
    """Return the machine code of each line, or its error message."""
    lines = list(lines)
    done = subprocess.run(
        [program], input="".join(f"{line}\n" for line in lines), capture_output=True, text=True, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    answers = done.stdout.splitlines()
    assert len(answers) == len(lines)
    return [answer if answer.startswith("error: ") else bytes.fromhex(answer) for answer in answers]


def trees_line(layout: BitsliceLayout) -> str:
    """Format all trees as one tree block in the form that `assemble.cpp` reads."""
    programs = layout.programs
    assert isinstance(programs, NodePrograms)
    numbers = [1 if layout.tree_leaves.max() <= 256 else 2, len(layout.tree_leaves)]
    for t, n_leaves in enumerate(layout.tree_leaves):
        levels = layout.levels[layout.level_offsets[t] : layout.level_offsets[t + 1]]
        numbers += [n_leaves, len(levels), *levels]
        if not len(levels):
            nodes = programs.nodes[programs.node_offsets[t] : programs.node_offsets[t + 1]]
            numbers += [field for node in nodes for field in node.tolist()]
    return " ".join(map(str, numbers))


def disassemble(code: bytes) -> list[str]:
    """Disassemble all of the code; no bytes may be left over."""
    read = list(DISASSEMBLER.disasm_lite(code, 0))
    assert sum(size for _, size, _, _ in read) == len(code), f"{code.hex()} is no sequence of instructions: {read}"
    return [f"{mnemonic} {operands}".strip() for _, _, mnemonic, operands in read]


def prefetches(code: bytes) -> list[tuple[int, int]]:
    """For each line prefetched by the code, or by what it calls: the offsets of the next instruction, and of the line.

    Calls get the first line in rdx, and in ecx how many there are.
    """
    found, relative = [], re.compile(r"(?:rdx, |byte )(?:ptr )?\[rip \+ (\w+)\]")
    first = (0, 0)
    for at, size, mnemonic, operands in DISASSEMBLER.disasm_lite(code, 0):
        if mnemonic.startswith("prefetch") or mnemonic == "lea":
            match = relative.fullmatch(operands)
            assert match and mnemonic in ("prefetcht1", "lea"), f"{mnemonic} {operands}"
            first = at + size, at + size + int(match[1], 0)
            if mnemonic != "lea":
                found.append(first)
        elif mnemonic == "mov" and operands.startswith("ecx, "):
            found += [(first[0], first[1] + 64 * line) for line in range(int(operands[5:], 0))]
    return found
