"""Kernels kept on disk: found again, never mixed up; a cache that is damaged or cannot be written changes nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from made_up_device import made_up_device

from gpuqs.devices import kernel_cache, nvrtc, sources
from gpuqs.devices.bindings import bindings
from gpuqs.devices.kernel_cache import MachineCode, cached
from gpuqs.engines.gpu import kernels
from gpuqs.errors import DeviceError
from gpuqs.files import cache_folder

CODE = MachineCode("_Z5scorev", b"\x7fELF\0machine code")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("GPUQS_CACHE_DIR", str(tmp_path / "new" / "cache"))
    return tmp_path / "new" / "cache"


class Compiler:
    """Counts its calls."""

    calls = 0

    def __call__(self) -> MachineCode:
        self.calls += 1
        return CODE


def files(home: Path) -> list[Path]:
    return [path for path in home.rglob("*") if path.is_file()]


def test_a_kernel_is_compiled_once(home: Path) -> None:
    compiler = Compiler()
    assert [cached(("key", 1), compiler) for _ in range(3)] == [CODE] * 3
    assert compiler.calls == 1
    assert cached(("key", 2), lambda: MachineCode("other", b"")) == ("other", b"")
    assert cached(("key", 1), compiler) == CODE
    assert (compiler.calls, len(files(home))) == (1, 2)


@pytest.mark.parametrize("damage", ["cut", "empty", "a bit", "a folder", "unreadable"])
def test_damage_is_mended(home: Path, damage: str) -> None:
    compiler = Compiler()
    cached(("key",), compiler)
    (path,) = files(home)
    data = path.read_bytes()
    if damage == "a folder":
        path.unlink()
        path.mkdir()
    elif damage == "unreadable":
        path.chmod(0)
    else:
        bit = data[:40] + bytes([data[40] ^ 1]) + data[41:]
        path.write_bytes({"cut": data[:-1], "empty": b"", "a bit": bit}[damage])
    readable = damage == "unreadable" and os.access(path, os.R_OK)  # the superuser can
    assert cached(("key",), compiler) == CODE
    assert compiler.calls == 2 - readable
    if damage != "a folder":
        path.chmod(0o600)
        assert path.read_bytes() == data
    assert sorted(home.rglob(".*")) == []  # no part files


def used(path: Path) -> float:
    """Days since a file's last use."""
    return (time.time() - path.stat().st_mtime) / kernel_cache.DAY


def age(path: Path, days: float) -> None:
    then = time.time() - days * kernel_cache.DAY
    os.utime(path, (then, then))


def keep_in_turn(home: Path, names: str) -> dict[str, Path]:
    """Keep kernels under these names, in turn; returns the file of each."""
    found: dict[str, Path] = {}
    for name in names:
        cached((name,), lambda: CODE)
        (found[name],) = set(files(home)) - set(found.values())
    return found


def test_what_was_not_used_for_long_goes_first(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = keep_in_turn(home, "abcd")
    n_bytes = kept["a"].stat().st_size
    for days, path in zip((5, 9, 3, 7), kept.values(), strict=True):
        age(path, days)
    assert cached(("b",), Compiler()) == CODE and used(kept["b"]) < 0.1  # a use is recorded
    monkeypatch.setattr(kernel_cache, "MAX_BYTES", 3 * n_bytes)
    cached(("e",), lambda: CODE)
    assert {name for name, path in kept.items() if path.exists()} == {"b", "c"}
    assert len(files(home)) == 3
    compiler = Compiler()
    assert cached(("d",), compiler) == CODE and compiler.calls == 1


def test_what_is_too_old_goes_though_there_is_room(home: Path) -> None:
    kept = keep_in_turn(home, "abc")
    age(kept["a"], 181)
    age(kept["b"], 179)
    half = home / "kernels" / ".half written"
    lost = home / "kernels" / ".half written long ago"
    for part in (half, lost):
        part.write_bytes(b"x")
    age(lost, 181)
    (home / "kernels" / "folder").mkdir()
    cached(("new",), lambda: CODE)
    assert [path.exists() for path in (*kept.values(), half, lost)] == [False, True, True, True, False]
    assert (home / "kernels" / "folder").is_dir()


def test_one_kernel_larger_than_all_room_is_kept(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keep_in_turn(home, "ab")
    monkeypatch.setattr(kernel_cache, "MAX_BYTES", 1)
    compiler = Compiler()
    assert [cached(("c",), compiler) for _ in range(2)] == [CODE] * 2
    assert compiler.calls == 1 and len(files(home)) == 1


def test_processes_share_a_small_cache(home: Path) -> None:
    """All read, write and delete the same files: every answer is right, and the bound holds at the end."""
    code = (
        "import random, sys\n"
        "from gpuqs.devices import kernel_cache as k\n"
        "k.MAX_BYTES = 5 * 1100\n"
        "random.seed(int(sys.argv[1]))\n"
        "def made(n): return k.MachineCode(f'symbol{n}', bytes([n]) * 1000)\n"
        "for _ in range(300):\n"
        "    n = random.randrange(12)\n"
        "    assert k.cached((n,), lambda: made(n)) == made(n)\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", code, str(seed)]) for seed in range(3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert sum(path.stat().st_size for path in files(home)) <= 8 * 1100  # one under way in each process
    assert sorted(home.rglob(".*")) == []


def test_a_folder_that_cannot_be_written_is_no_matter(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.parent.mkdir()
    home.write_text("a file where the folder should be")
    compiler = Compiler()
    assert cached(("key",), compiler) == cached(("key",), compiler) == CODE
    assert compiler.calls == 2

    def full(path: Path, code: MachineCode) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(kernel_cache, "_write", full)
    assert cached(("key",), compiler) == CODE


def test_a_compiler_that_fails_leaves_nothing(home: Path) -> None:
    def fails() -> MachineCode:
        raise DeviceError("no")

    with pytest.raises(DeviceError, match="no"):
        cached(("key",), fails)
    assert not home.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="the folders of other systems")
def test_where_the_folder_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GPUQS_CACHE_DIR", "/somewhere")
    assert cache_folder() == Path("/somewhere")
    monkeypatch.setenv("GPUQS_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "gpuqs"
    monkeypatch.setenv("HOME", str(tmp_path))
    for unfit in ("", "not/absolute"):
        monkeypatch.setenv("XDG_CACHE_HOME", unfit)
        assert cache_folder() == tmp_path / ".cache" / "gpuqs"
    monkeypatch.setattr(Path, "home", lambda: Path("~a user who is not there").expanduser())
    assert cache_folder() is None
    compiler = Compiler()
    assert cached(("key",), compiler) == CODE


def compiles() -> bool:
    try:
        nvrtc.version()
    except DeviceError:
        return False
    return True


needs_nvrtc = pytest.mark.skipif(not compiles(), reason="NVRTC is not here")


@needs_nvrtc
def test_a_device_compiles_a_kernel_once(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[tuple] = []
    plain = nvrtc.Program.__init__

    def count(self: nvrtc.Program, *arguments: object) -> None:
        compiled.append(arguments)
        plain(self, *arguments)

    monkeypatch.setattr(nvrtc.Program, "__init__", count)
    name = kernels.add_tree_blocks("float32")
    first, again = (made_up_device().kernel("finish_scores.cu", name, 40)._function for _ in range(2))
    assert len(compiled) == 1
    assert first.symbol == again.symbol and name.partition("<")[0] in first.symbol
    assert first.module.cubin == again.module.cubin and first.module.cubin.startswith(b"\x7fELF")

    # Everything that machine code depends on, changed one by one: each is compiled again.
    made_up_device(compute_capability=(9, 0)).kernel("finish_scores.cu", name, 40)
    made_up_device().kernel("finish_scores.cu", name, 32)
    made_up_device().kernel("finish_scores.cu", kernels.add_tree_blocks("float64"), 40)
    source = sources.source("finish_scores.cu")
    monkeypatch.setattr(sources, "source", lambda file: source + "// changed\n")
    made_up_device().kernel("finish_scores.cu", name, 40)
    monkeypatch.setattr(nvrtc, "version", lambda: (99, 0))
    made_up_device().kernel("finish_scores.cu", name, 40)
    assert len(compiled) == len(files(home)) == 6


@needs_nvrtc
def test_what_does_not_compile_is_told() -> None:
    with pytest.raises(DeviceError, match=r"(?s)wrong\.cu does not compile \(NVRTC_ERROR_COMPILATION.*int x = ;"):
        nvrtc.Program("__global__ void k() { int x = ; }", "wrong.cu", ["k"], ["--gpu-architecture=sm_80"])


def test_machine_code_of_jetsons_is_for_jetsons(monkeypatch: pytest.MonkeyPatch) -> None:
    known = SimpleNamespace(nvrtcGetSupportedArchs=lambda: (0, [70, 72, 80, 86, 87, 100, 101]))
    monkeypatch.setattr(nvrtc, "bindings", {"nvrtc": known}.__getitem__)
    monkeypatch.setattr(nvrtc, "version", lambda: (12, 8))
    for capability, number in (((7, 5), 70), ((7, 2), 72), ((8, 8), 86), ((8, 7), 87), ((10, 3), 100), ((10, 1), 101)):
        assert nvrtc.architecture.__wrapped__(capability) == number


@needs_nvrtc
def test_architectures() -> None:
    known = bindings("nvrtc").nvrtcGetSupportedArchs()[1]
    assert all(nvrtc.architecture(divmod(number, 10)) == number for number in known)
    assert nvrtc.architecture((8, 5)) == 80  # machine code of sm_80 runs there
    for capability in ((3, 0), (99, 0)):
        with pytest.raises(DeviceError, match=r"does not compile for compute capability .*\.0; pip install --upgrade"):
            nvrtc.architecture(capability)


def test_without_nvrtc(monkeypatch: pytest.MonkeyPatch) -> None:
    nvrtc.version.cache_clear()
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvrtc", None)
    with pytest.raises(DeviceError, match=r"needs cuda-python.*pip install 'gpuqs\[cuda13\]'"):
        nvrtc.version()
    nvrtc.version.cache_clear()
