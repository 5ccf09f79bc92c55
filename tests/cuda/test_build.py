"""The build gate: every kernel compiles for every architecture, and its machine code is what it should be."""

from __future__ import annotations

import os

import nvrtc_build
import pytest

from gpuqs.devices.sources import compile_options, register_budget, source
from gpuqs.engines.gpu.kernels import every_kernel

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
        budget = register_budget(nvrtc_build.ARCHITECTURES[architecture], kernel)
        assert sum(seen.opcodes.values()) > 20, f"{place}: the disassembly was not read"
        assert seen.spills == 0, f"{place} spills {seen.spills} bytes"
        assert (seen.stack, seen.local) == (0, 0), f"{place} uses local memory"
        assert seen.count("LDL", "STL") == 0, f"{place} uses local memory"
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


def test_the_gate_sees_what_it_must_fail_on() -> None:
    listing = """
.text._Zbad:
        /*0000*/                   STL [R1], R2 ;
        /*0010*/               @!P0 ATOMS.CAST.SPIN.64 P1, [R4], R6, R8 ;
        /*0020*/              @!UP2 UIADD3 UR4, UR4, 0x1, URZ ;
"""
    opcodes = nvrtc_build._count_opcodes(listing)["_Zbad"]
    assert opcodes == {"STL": 1, "ATOMS.CAST.SPIN.64": 1, "UIADD3": 1}
    facts = nvrtc_build.Facts(32, 0, 0, 0, dict(opcodes))
    assert (facts.count("LDL", "STL"), facts.spin_loops) == (1, 1)
    log = (
        "ptxas info    : Compiling entry function '_Zbad' for 'sm_90'\n"
        "    8 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads"
    )
    assert nvrtc_build._spilled_bytes(log) == {"_Zbad": 12}


@needs_nvrtc
def test_cupy_compiles_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cupy")
    from cupy.cuda import compiler

    if not hasattr(compiler, "_get_arch_for_options_for_nvrtc"):
        pytest.skip("this CuPy asks for the architecture in another way")
    # The one thing that CuPy needs a device for is its architecture.
    monkeypatch.setattr(
        compiler, "_get_arch_for_options_for_nvrtc", lambda arch=None: ("-arch=sm_90", "cubin")
    )
    for file, names in every_kernel().items():
        options = compile_options(2048, names[0])
        cubin, lowered = compiler.compile_using_nvrtc(
            source(file), options, None, file, (names[0],), None, True
        )
        assert len(cubin) > 1000
        assert set(lowered) == {names[0]}
