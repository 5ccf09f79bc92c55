"""Compiles kernels to machine code with NVRTC, without a GPU, and extracts facts about the machine code."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

import machine_code
from machine_code import Code

from gpuqs.devices import nvrtc, sources
from gpuqs.engines.gpu.kernels import every_kernel, registers
from gpuqs.errors import DeviceError
from gpuqs.forks import lazy

#: Threads that a multiprocessor holds, by compute capability.
ARCHITECTURES = {75: 1024, 80: 2048, 86: 1536, 89: 1536, 90: 2048, 100: 2048, 120: 1536}


@dataclass(frozen=True)
class Facts:
    """Resources and instructions of one kernel's machine code.

    ``code``: as `machine_code.read_listings` gives it; ``flushing``: instructions of its PTX that flush denormals.
    """

    registers: int
    stack: int
    local: int
    code: list[str]
    flushing: list[str]

    @lazy
    def opcodes(self) -> Counter[str]:
        """Instructions by opcode, with its modifiers."""
        return Counter(Code(self.code).opcodes)

    def count(self, *prefixes: str) -> int:
        """Instructions whose opcode begins with one of ``prefixes``."""
        return sum(n for opcode, n in self.opcodes.items() if opcode.startswith(prefixes))

    @property
    def spin_loops(self) -> int:
        return sum(n for opcode, n in self.opcodes.items() if "SPIN" in opcode or ".CAS" in opcode)


def why_not() -> str | None:
    """None where kernels can be compiled and disassembled here, else what is missing."""
    try:
        nvrtc.version()
    except DeviceError as error:
        return str(error)
    for tool in ("cuobjdump", "nvdisasm"):
        if not _tool(tool).exists():
            return f"{tool} is missing: pip install nvidia-cuda-{tool}"
    return None


def _tool(name: str) -> Path:
    return Path(sysconfig.get_path("platlib"), "nvidia", "cu13", "bin", name)


def facts_of(file: str, architecture: int, names: tuple[str, ...] | None = None) -> dict[str, Facts]:
    """Facts about some or every kernel of a file; kept between runs."""
    by_options: dict[tuple[str, ...], list[str]] = {}
    for name in names or every_kernel()[file]:
        options = sources.compile_options(architecture, registers(ARCHITECTURES[architecture], name))
        by_options.setdefault(options, []).append(name)
    key = repr((sources.source(file), by_options, nvrtc.version()))
    key += Path(__file__).read_text() + Path(machine_code.__file__).read_text()
    digest = hashlib.sha256(key.encode()).hexdigest()[:20]
    user = os.getuid() if hasattr(os, "getuid") else "user"
    kept = Path(tempfile.gettempdir(), f"gpuqs-build-gate-{user}", f"{file}-{architecture}-{digest}.json")
    if not kept.exists():
        facts: dict[str, dict] = {}
        for options, group in by_options.items():
            with nvrtc.Program(sources.source(file), file, group, options) as program:
                by_symbol = inspect(program)
                facts |= {name: asdict(by_symbol[program.symbol(name)]) for name in group}
        kept.parent.mkdir(parents=True, exist_ok=True)
        staged = kept.with_suffix(f".{os.getpid()}")
        staged.write_text(json.dumps(facts))
        staged.replace(kept)
    return {name: Facts(**facts) for name, facts in json.loads(kept.read_text()).items()}


def inspect(program: nvrtc.Program) -> dict[str, Facts]:
    """Facts about every kernel of a program, by symbol."""
    environment = dict(os.environ, PATH=f"{_tool('nvdisasm').parent}{os.pathsep}{os.environ.get('PATH', '')}")

    def run(*command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        return done.stdout

    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder, "kernels.cubin")
        cubin.write_bytes(program.read("CUBIN"))
        usage = run(str(_tool("cuobjdump")), "--dump-resource-usage", str(cubin))
        listing = run(str(_tool("nvdisasm")), "-c", str(cubin))
    code = machine_code.read_listings(listing)
    flushing = _flushing(program.read("PTX").rstrip(b"\0").decode())
    pattern = r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)"
    return {
        symbol: Facts(int(registers), int(stack), int(local), code[symbol], flushing[symbol])
        for symbol, registers, stack, local in re.findall(pattern, usage)
    }


def _flushing(ptx: str) -> dict[str, list[str]]:
    """Instructions that flush denormals, by kernel."""
    found: dict[str, list[str]] = {}
    symbol = ""
    for line in ptx.splitlines():
        if entry := re.search(r"\.(?:entry|func) .*?(\w+)\(", line):
            symbol = entry[1]
            found[symbol] = []
        if ".ftz" in line:
            found[symbol].append(line.split()[0])
    return found


if __name__ == "__main__":
    for chosen in sys.argv[1:] or every_kernel():
        for arch in ARCHITECTURES:
            for kernel, facts in facts_of(chosen, arch).items():
                total = sum(facts.opcodes.values())
                print(f"sm_{arch} {facts.registers:3d} registers {total:5d} instructions  {kernel}")
