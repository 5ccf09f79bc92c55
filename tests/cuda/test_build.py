"""The build gate: every kernel compiles for every architecture, and its machine code is what it should be."""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path

import machine_code
import nvrtc_build
import pytest
from made_up_device import made_up_device

from gpuqs.devices import nvrtc, sources
from gpuqs.engines.gpu.kernels import every_kernel, registers

MISSING = nvrtc_build.why_not()
if MISSING is not None and os.environ.get("GPUQS_GATE") == "required":
    raise RuntimeError(MISSING)
needs_nvrtc = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@needs_nvrtc
@pytest.mark.parametrize("architecture", nvrtc_build.ARCHITECTURES)
@pytest.mark.parametrize("file", every_kernel())
def test_machine_code(file: str, architecture: int) -> None:
    facts = nvrtc_build.facts_of(file, architecture)
    assert set(facts) == set(every_kernel()[file])
    for kernel, seen in facts.items():
        place = f"{kernel} on sm_{architecture}"
        budget = registers(nvrtc_build.ARCHITECTURES[architecture], kernel)
        assert sum(seen.opcodes.values()) > 20, f"{place}: the disassembly was not read"
        assert seen.flushing == [], f"{place} takes denormals for zeros"
        assert (seen.stack, seen.local) == (0, 0), f"{place} uses local memory"
        assert seen.count("LDL", "STL") == 0, f"{place} spills"
        assert seen.registers <= budget, f"{place} takes {seen.registers} registers"
        assert seen.count("RED", "ATOMG", "ATOM.") == 0, f"{place} has atomics on global memory"
        paper64 = "<u64, false, u" in kernel  # a 64-bit AND in shared memory is a loop on every device
        assert (seen.spin_loops > 0) == paper64, f"{place}: {seen.spin_loops} loops that spin"


@needs_nvrtc
def test_masks_are_one_native_instruction_each() -> None:
    for kernel, seen in nvrtc_build.facts_of("update_scores.cu", 90).items():
        if kernel.startswith("update_scores<u32"):
            assert seen.count("ATOMS.AND") > 0, kernel
            assert seen.count("ATOMS.") == seen.count("ATOMS.AND"), kernel


def test_the_gate_reads_listings() -> None:
    listing = """
.text._Zbad:
        /*0000*/                   STL [R1], R2 ;
        /*0010*/               @!P0 ATOMS.CAST.SPIN.64 P1, [R4], R6, R8 ;
        /*0020*/              @!UP2 UIADD3 UR4, UR4, 0x1, URZ ;
"""
    facts = nvrtc_build.Facts(32, 0, 0, machine_code.read_listings(listing)["_Zbad"], [])
    assert facts.opcodes == {"STL": 1, "ATOMS.CAST.SPIN.64": 1, "UIADD3": 1}
    assert (facts.count("LDL", "STL"), facts.spin_loops) == (1, 1)


FAULTS = """
extern "C" __global__ void adds(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x] + 1e-40f; }
extern "C" __global__ void keeps(const float* x, float* y) {
    float a[64], sum = 0;
#pragma unroll
    for (int i = 0; i < 64; ++i) a[i] = x[i * 32 + threadIdx.x];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < 64; ++i) sum = sum * a[i] + a[63 - i];
    y[threadIdx.x] = sum;
}
"""


@needs_nvrtc
def test_the_gate_finds_planted_faults() -> None:
    options = sources.compile_options(90, 32)

    def facts(name: str, *more: str) -> nvrtc_build.Facts:
        with nvrtc.Program(FAULTS, "faults.cu", [name], [*options, *more]) as program:
            return nvrtc_build.inspect(program)[program.symbol(name)]

    assert facts("adds").flushing == []
    assert facts("adds", "-ftz=true").flushing == ["add.rn.ftz.f32"]  # what CuPy appends
    assert facts("keeps").count("STL") > 0 and facts("keeps").stack > 0


@needs_nvrtc
@pytest.mark.parametrize("file", every_kernel())
def test_the_gate_compiles_what_a_device_loads(
    file: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Checks the options that NVRTC gets, and the PTX that it makes, when a device loads a kernel."""
    bindings = import_module("cuda.bindings.nvrtc")
    compile_program, arrived = bindings.nvrtcCompileProgram, []

    def compile_and_read(program: object, n: int, options: list[bytes]) -> tuple:
        answer = compile_program(program, n, options)
        ptx = bytearray(bindings.nvrtcGetPTXSize(program)[1] + 1)
        bindings.nvrtcGetPTX(program, ptx)
        arrived.append((tuple(option.decode() for option in options[:n]), ptx.rstrip(b"\0").decode()))
        return answer

    monkeypatch.setattr(bindings, "nvrtcCompileProgram", compile_and_read)
    monkeypatch.setenv("GPUQS_CACHE_DIR", str(tmp_path))
    name = every_kernel()[file][-1]
    kernel = made_up_device().kernel(file, name, registers(1536, name))
    assert kernel.name == name
    ((options, ptx),) = arrived
    assert options == sources.compile_options(86, registers(1536, name))
    assert list(nvrtc_build._flushing(ptx).values()) == [[]]
