"""Compiles kernels to machine code with NVRTC, with no GPU, and says what the machine code does."""

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
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from gpuqs.devices.sources import compile_options, source
from gpuqs.engines.gpu.kernels import every_kernel

#: Compute capabilities, and the threads that a multiprocessor of each holds.
ARCHITECTURES = {75: 1024, 80: 2048, 86: 1536, 89: 1536, 90: 2048, 100: 2048, 120: 1536}


@dataclass(frozen=True)
class Facts:
    """What one kernel's machine code takes and does."""

    registers: int
    stack: int
    local: int
    spills: int
    opcodes: dict[str, int]

    def count(self, *prefixes: str) -> int:
        """Instructions whose opcode begins with one of ``prefixes``."""
        return sum(n for opcode, n in self.opcodes.items() if opcode.startswith(prefixes))

    @property
    def spin_loops(self) -> int:
        return sum(n for opcode, n in self.opcodes.items() if "SPIN" in opcode or ".CAS" in opcode)


def why_not() -> str | None:
    """None where kernels can be compiled and disassembled here, else what is missing."""
    try:
        from cuda.bindings import nvrtc

        nvrtc.nvrtcVersion()
    except (ImportError, RuntimeError) as error:
        return f"NVRTC is missing ({error}): pip install cuda-bindings nvidia-cuda-nvrtc"
    for tool in ("cuobjdump", "nvdisasm"):
        if not _tool(tool).exists():
            return f"{tool} is missing: pip install nvidia-cuda-{tool}"
    return None


def _tool(name: str) -> Path:
    return Path(sysconfig.get_path("platlib"), "nvidia", "cu13", "bin", name)


def compile_cubin(
    file: str, names: Sequence[str], architecture: int, options: Sequence[str]
) -> tuple[bytes, dict[str, str], str]:
    """Machine code, the kernels' names in it, and the compiler's log."""
    from cuda.bindings import nvrtc

    def checked(result: tuple) -> object:
        if result[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise RuntimeError(f"NVRTC: {result[0].name}")
        return result[1] if len(result) > 1 else None

    program = checked(nvrtc.nvrtcCreateProgram(source(file).encode(), file.encode(), 0, [], []))
    try:
        for name in names:
            checked(nvrtc.nvrtcAddNameExpression(program, name.encode()))
        options = [*options, f"-arch=sm_{architecture}", "--ptxas-options=-v"]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [o.encode() for o in options])
        size = checked(nvrtc.nvrtcGetProgramLogSize(program))
        log = bytes(size + 2)  # never the one byte that CPython shares
        checked(nvrtc.nvrtcGetProgramLog(program, log))
        text = log[:size].rstrip(b"\0").decode()
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise RuntimeError(f"{file} does not compile for sm_{architecture}:\n{text[:4000]}")
        lowered = {
            name: checked(nvrtc.nvrtcGetLoweredName(program, name.encode())).decode() for name in names
        }
        size = checked(nvrtc.nvrtcGetCUBINSize(program))
        code = bytes(size + 2)
        checked(nvrtc.nvrtcGetCUBIN(program, code))
        return code[:size], lowered, text
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def facts_of(file: str, architecture: int) -> dict[str, Facts]:
    """Facts about every kernel of a file; kept between runs."""
    from cuda.bindings import nvrtc

    names = every_kernel()[file]
    by_options: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        by_options.setdefault(compile_options(ARCHITECTURES[architecture], name), []).append(name)
    key = repr((source(file), by_options, architecture, nvrtc.nvrtcVersion()))
    key += Path(__file__).read_text()
    digest = hashlib.sha256(key.encode()).hexdigest()[:20]
    user = os.getuid() if hasattr(os, "getuid") else "user"
    kept = Path(tempfile.gettempdir(), f"gpuqs-build-gate-{user}", f"{file}-{architecture}-{digest}.json")
    if not kept.exists():
        facts: dict[str, dict] = {}
        for options, group in by_options.items():
            code, lowered, log = compile_cubin(file, group, architecture, options)
            by_symbol = _inspect(code, log)
            facts |= {name: asdict(by_symbol[symbol]) for name, symbol in lowered.items()}
        kept.parent.mkdir(parents=True, exist_ok=True)
        staged = kept.with_suffix(f".{os.getpid()}")
        staged.write_text(json.dumps(facts))
        staged.replace(kept)
    return {name: Facts(**facts) for name, facts in json.loads(kept.read_text()).items()}


def _inspect(code: bytes, log: str) -> dict[str, Facts]:
    environment = dict(os.environ, PATH=f"{_tool('nvdisasm').parent}{os.pathsep}{os.environ.get('PATH', '')}")

    def run(*command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
        return done.stdout

    with tempfile.TemporaryDirectory() as folder:
        cubin = Path(folder, "kernels.cubin")
        cubin.write_bytes(code)
        usage = run(str(_tool("cuobjdump")), "--dump-resource-usage", str(cubin))
        listing = run(str(_tool("nvdisasm")), "-c", str(cubin))
    opcodes = _count_opcodes(listing)
    spills = _spilled_bytes(log)
    pattern = r"Function (\S+):\s+REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)"
    return {
        symbol: Facts(int(registers), int(stack), int(local), spills[symbol], dict(opcodes[symbol]))
        for symbol, registers, stack, local in re.findall(pattern, usage)
    }


def _count_opcodes(listing: str) -> dict[str, Counter[str]]:
    """Opcodes, with their modifiers, by kernel."""
    counts: dict[str, Counter[str]] = {}
    current: Counter[str] = Counter()
    for line in listing.splitlines():
        section = re.match(r"\.text\.(\S+):", line)
        if section:
            current = counts.setdefault(section[1], Counter())
            continue
        instruction = re.search(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", line)
        if instruction:
            current[instruction[1]] += 1
    return counts


def _spilled_bytes(log: str) -> dict[str, int]:
    """Bytes that ptxas says it spilled, by kernel."""
    spills: dict[str, int] = {}
    symbol = ""
    for line in log.splitlines():
        entry = re.search(r"Compiling entry function '(\S+)'", line)
        if entry:
            symbol = entry[1]
        found = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line)
        if found:
            spills[symbol] = int(found[1]) + int(found[2])
    return spills


if __name__ == "__main__":
    for chosen in sys.argv[1:] or every_kernel():
        for arch in ARCHITECTURES:
            for kernel, facts in facts_of(chosen, arch).items():
                total = sum(facts.opcodes.values())
                print(f"sm_{arch} {facts.registers:3d} registers {total:5d} instructions  {kernel}")
