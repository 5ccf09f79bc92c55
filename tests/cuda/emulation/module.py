"""Compiles a .cu file with g++ and runs its kernels on NumPy arrays, as `cupy.RawModule` does on a GPU's."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
HEADER, SCHEDULER = HERE / "cuda_emulation.hpp", HERE / "scheduler.cpp"
ORDERS = ("forward", "reverse", "random")

#: Dynamic shared memory that a kernel gets without asking for more, as on a device.
DEFAULT_SHARED_BYTES = 48 << 10


class EmulationError(RuntimeError):
    """A kernel did something that is wrong on a device, or was launched wrongly."""


class Dim3(ctypes.Structure):
    _fields_ = [(axis, ctypes.c_uint) for axis in "xyz"]


class Options(ctypes.Structure):
    _fields_ = [("order", ctypes.c_int), ("seed", ctypes.c_uint), ("flush", ctypes.c_int)]


class Launch(ctypes.Structure):
    _fields_ = [
        ("grid", Dim3),
        ("block", Dim3),
        ("shared_bytes", ctypes.c_size_t),
        ("options", Options),
        ("error", ctypes.c_char_p),
        ("atomics", ctypes.c_void_p),
    ]


def _exports(source: Path, names: Sequence[str]) -> str:
    rows = "\n".join(
        f'    if (!std::strcmp(name, "{n}")) {{\n'
        f"        if (describe) return emulation::signature(&{n}, describe), 0;\n"
        f"        return emulation::launch(&{n}, arguments, *how);\n    }}"
        for n in names
    )
    return (
        f'#include "cuda_emulation.hpp"\n#include "{source.name}"\n'
        'extern "C" int emulation_call(const char* name, char* describe, void** arguments, '
        f"const emulation::Launch* how) {{\n{rows}\n    return -1;\n}}\n"
    )


def _cache() -> Path:
    user = os.getuid() if hasattr(os, "getuid") else "user"
    default = Path(tempfile.gettempdir()) / f"gpuqs-emulation-{user}"
    return Path(os.environ.get("GPUQS_EMULATION_CACHE", default))


def build(source: Path, names: Sequence[str], sanitizer: str = "") -> Path:
    """Compile ``source`` with the kernels ``names``, or find it in the cache; returns the shared object's path."""
    text = _exports(source, names)
    flags = ["-std=c++20", "-O1", "-g1", "-fPIC", "-ffp-contract=off", "-Wall", "-Wno-unknown-pragmas"]
    scheduler_flags, link = list(flags), ["-shared"]
    if sanitizer == "thread":
        flags.append("-fsanitize=thread")
        scheduler_flags.append("-DWITH_TSAN")
        link.append("-fsanitize=thread")
    elif sanitizer == "address":
        flags += ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined"]
        scheduler_flags.append("-DWITH_ASAN")
        link.append("-fsanitize=address,undefined")
    contents = [path.read_bytes() for path in (*_with_headers(source), HEADER, SCHEDULER)]
    target = _cache() / f"{source.stem}-{_key(text, contents, flags, scheduler_flags)}.so"
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    scheduler = _cache() / f"scheduler-{_key(HEADER.read_bytes(), SCHEDULER.read_bytes(), scheduler_flags)}.o"
    if not scheduler.exists():
        _make(scheduler, [*scheduler_flags, f"-I{HERE}", "-c", str(SCHEDULER)])
    with tempfile.TemporaryDirectory() as folder:
        exports = Path(folder, "exports.cpp")
        exports.write_text(text)
        _compile([*flags, f"-I{HERE}", f"-I{source.parent}", "-c", str(exports), "-o", f"{folder}/exports.o"])
        _make(target, [*link, f"{folder}/exports.o", str(scheduler)])
    return target


def _key(*what: object) -> str:
    return hashlib.sha256(repr(what).encode()).hexdigest()[:20]


def _with_headers(source: Path) -> list[Path]:
    """The file, and the files next to it that it includes."""
    files = [source]
    for path in files:
        files += [source.parent / name for name in re.findall(r'^#include "([\w.]+)"', path.read_text(), re.MULTILINE)]
    return list(dict.fromkeys(files))


def _make(target: Path, arguments: list[str]) -> None:
    """Let the compiler make a file that other processes see either complete or not at all."""
    staged = target.with_suffix(f".{os.getpid()}")
    _compile([*arguments, "-o", str(staged)])
    staged.replace(target)


def _compile(arguments: list[str]) -> None:
    done = subprocess.run([os.environ.get("CXX", "g++"), *arguments], capture_output=True, text=True)
    if done.returncode:
        raise EmulationError(f"the C++ compiler failed:\n{done.stderr[:4000]}")


def runtime_library(sanitizer: str) -> str:
    """Path of the sanitizer's run-time library, for LD_PRELOAD."""
    name = {"thread": "libtsan.so", "address": "libasan.so"}[sanitizer]
    compiler = os.environ.get("CXX", "g++")
    return subprocess.run(
        [compiler, f"-print-file-name={name}"], capture_output=True, text=True
    ).stdout.strip()


class EmulatedKernel:
    """One kernel; called like a `cupy.RawKernel`: ``kernel(grid, block, args, shared_mem=0)``.

    Attributes
    ----------
    atomics : uint64 [blocks, 32], optional
        Where launches count the atomics of each warp of each block (x fastest).
    """

    def __init__(self, module: EmulatedModule, name: str) -> None:
        self.module, self.name = module, name
        self.atomics: np.ndarray | None = None
        self.max_dynamic_shared_size_bytes = DEFAULT_SHARED_BYTES
        described = ctypes.create_string_buffer(1024)
        if module.call(name.encode(), described, None, None):
            raise KeyError(f"{name} is not among the module's name expressions")
        self.parameters = described.value.decode().split()

    def __call__(self, grid: tuple, block: tuple, args: Sequence, *, shared_mem: int = 0) -> None:
        self.prepare(grid, block, args, shared_mem)()

    def prepare(self, grid: tuple, block: tuple, args: Sequence, shared_mem: int) -> Callable[[], None]:
        """Check a launch; returns a function that runs it later and keeps the arrays' memory alive until then."""
        if len(args) != len(self.parameters):
            raise EmulationError(f"{self.name}: {len(args)} arguments, it takes {len(self.parameters)}")
        if shared_mem > self.max_dynamic_shared_size_bytes:
            raise EmulationError(f"{self.name}: {shared_mem} bytes of shared memory without opting in")
        n_threads = int(np.prod(block))
        if not 0 < n_threads <= 1024 or min(grid) < 1 or any(g > 65535 for g in grid[1:]):
            raise EmulationError(f"{self.name}: invalid launch: grid {grid}, block {block}")
        values = [self._argument(i, a, p) for i, (a, p) in enumerate(zip(args, self.parameters, strict=True))]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(v) for v in values))
        size = (Dim3(*grid, *[1] * (3 - len(grid))), Dim3(*block, *[1] * (3 - len(block))))

        def run(kept: Sequence = (values, args)) -> None:
            error = ctypes.create_string_buffer(1024)
            options = Options(ORDERS.index(self.module.order), self.module.next_seed(), self.module.flush)
            counted = None if self.atomics is None else self.atomics.ctypes.data
            how = Launch(*size, shared_mem, options, ctypes.cast(error, ctypes.c_char_p), counted)
            if self.module.call(self.name.encode(), None, pointers, ctypes.byref(how)):
                raise EmulationError(f"{self.name}: {error.value.decode()}")

        return run

    def _argument(self, index: int, value: object, parameter: str):
        place = f"{self.name}: argument {index}"
        if parameter[0] in "*&":
            if not isinstance(value, np.ndarray):
                raise EmulationError(f"{place} must be an array, not {type(value).__name__}")
            if parameter[1:] not in ("v", value.dtype.str[1:]):
                raise EmulationError(
                    f"{place} is an array of {value.dtype}, the kernel reads {parameter[1:]}"
                )
            if parameter[0] == "*" and not value.flags.writeable:
                raise EmulationError(f"{place} is written to, but read-only")
            return ctypes.c_void_p(value.ctypes.data)
        if not isinstance(value, np.generic) or value.dtype.str[1:] != parameter:
            raise EmulationError(f"{place} is {value!r}, the kernel takes {parameter}")
        return ctypes.create_string_buffer(value.tobytes(), value.itemsize)


class EmulatedModule:
    """The kernels of one .cu file.

    Parameters
    ----------
    source : Path
        The .cu file.
    names : sequence of str
        The kernels, template arguments included.
    order : {"forward", "reverse", "random"}
        Order in which the threads of a block, and the blocks, run.
    seed : int
        Seed of the random order and of the noise in shared memory.
    sanitizer : {"", "thread", "address"}
        The process must have the sanitizer's library preloaded.
    flush : bool
        Whether denormals count as zeros, as with a compiler's ``-ftz=true`` (for float32; here for float64, too).
    """

    def __init__(
        self,
        source: Path,
        names: Sequence[str],
        order: str = "forward",
        seed: int = 0,
        sanitizer: str = "",
        flush: bool = False,
    ) -> None:
        self.order, self.seed, self.flush = order, seed, flush
        library = ctypes.CDLL(str(build(source, names, sanitizer)))
        self.call = library.emulation_call
        self.call.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p]

    def next_seed(self) -> int:
        """A new seed for each launch."""
        self.seed += 1
        return self.seed

    def get_function(self, name: str) -> EmulatedKernel:
        return EmulatedKernel(self, name)
