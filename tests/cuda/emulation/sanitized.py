"""Runs planted bugs or the real kernels in a separate process with a sanitizer's library preloaded.

python -m emulation.sanitized thread planted missing_barrier
python -m emulation.sanitized address kernels "bitslice_gpu and links"
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np

from emulation.module import EmulatedModule, EmulationError, runtime_library

HERE = Path(__file__).parent
PLANTED = HERE / "planted.cu"
#: What each sanitizer's report begins with.
REPORTS = {"thread": "WARNING: ThreadSanitizer", "address": "ERROR: AddressSanitizer"}
#: The real kernels, by the engines that launch them.
PARTS = ("qs_gpu and walk_gpu", "bitslice_gpu and links")


def planted_kernels() -> list[str]:
    """Names of the kernels in planted.cu."""
    lines = PLANTED.read_text().splitlines()
    return [line.split("void ")[1].split("(")[0] for line in lines if line.startswith("__global__ void ")]


def run_planted(name: str, order: str = "forward", seed: int = 0, sanitizer: str = "") -> np.ndarray:
    """One launch of a planted kernel; returns its output."""
    module = EmulatedModule(PLANTED, planted_kernels(), order, seed, sanitizer)
    out = np.zeros(128, np.int32)
    module.get_function(name)((2,), (64,), (out, np.int32(1)), shared_mem=64 * 4)
    return out


def run_kernels(sanitizer: str, part: str) -> None:
    """Run every form of the real kernels of one of `PARTS` on small forests, and check the answers."""
    from forests import probing_documents, random_forest
    from gpu_conformance import CASES, check, check_bits, check_walks

    from emulation.device import RTX3090, EmulatedDevice
    from gpuqs.engines.gpu.bitslice_placed import BitsliceSettings
    from gpuqs.engines.gpu.links import apply_link
    from gpuqs.engines.gpu.walk_placed import WalkSettings

    wanted = (
        "paper's 32",
        "paper's 64",
        "many",
        "four documents",
        "classes",
        "vector leaves",
        "category sets, ",
        "float32 docu",
        "31 ",
    )
    cases = [case for case in CASES if case.name.startswith(wanted)]

    def run_documents(device: EmulatedDevice) -> None:
        for case in cases:
            forest, documents = case.make()
            # Few documents, because ThreadSanitizer's fibers are slow to make.
            check(device, forest, documents[:3], case.settings)
            for shared in (1, None):
                check_walks(device, forest, documents[:2], WalkSettings(part_trees=7, threads=128, shared=shared))

    def run_blocks(device: EmulatedDevice) -> None:
        # ThreadSanitizer mistakes stacks that thread blocks use in turn for memory that they share, so a launch has one
        # block, with more than one word of documents and more than 32 trees, so that tiles of shared memory alternate.
        one, two = (BitsliceSettings(words, warp_trees=10, summed=each) for words, each in ((1, 1), (2, 4)))
        for max_leaves in (8, 70):
            rng = np.random.default_rng(1)
            forest = random_forest(rng, n_trees=40, max_leaves=max_leaves, n_features=2, n_thresholds=15)
            for chosen in (one, two):
                check_bits(device, forest, probing_documents(rng, forest, 200), chosen)
            check_bits(device, forest, probing_documents(rng, forest, 100), BitsliceSettings(2, warp_trees=10))
        sums = device.from_host(np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32))
        with device.active():
            for link, width in (("softmax", 4), ("argmax", 1)):
                apply_link(device, link, 1.0, 3.0, sums, device.empty((3, width), np.float32))

    def run(device: EmulatedDevice) -> EmulatedDevice:
        (run_documents if part == PARTS[0] else run_blocks)(device)
        device.wait()
        return device

    # One multiprocessor, which few thread blocks fill, so that no work for one block is split among several.
    single = replace(RTX3090, multiprocessors=1)
    launched = set(run(EmulatedDevice("random", attributes=single)).launched)
    run(EmulatedDevice("random", sanitizer, launched, attributes=single))


def in_own_process(sanitizer: str, *what: str) -> subprocess.CompletedProcess[str]:
    """Run this module with a sanitizer preloaded."""
    environment = dict(
        os.environ,
        LD_PRELOAD=runtime_library(sanitizer),
        TSAN_OPTIONS="exitcode=66",
        ASAN_OPTIONS="detect_leaks=0:detect_stack_use_after_return=0",
        PYTHONMALLOC="malloc",
        OPENBLAS_NUM_THREADS="1",
        PYTHONPATH=os.pathsep.join(path for path in sys.path if path),
    )
    command = [sys.executable, "-m", "emulation.sanitized", sanitizer, *what]
    if sanitizer == "thread" and shutil.which(
        "setarch"
    ):  # ThreadSanitizer needs its memory at fixed addresses
        command = ["setarch", platform.machine(), "-R", *command]
    # Not from the checkout, whose gpuqs has no compiled modules.
    here = Path(__file__).parent
    return subprocess.run(command, env=environment, cwd=here, capture_output=True, text=True, timeout=600)


if __name__ == "__main__":
    _, sanitizer, what, *names = sys.argv
    try:
        if what == "planted":
            for name in names:
                run_planted(name, sanitizer=sanitizer)
        else:
            run_kernels(sanitizer, *names)
    except EmulationError as error:
        sys.exit(f"EmulationError: {error}")
    print("finished")
