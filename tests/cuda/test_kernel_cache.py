"""Kernels kept on disk: found again, never mixed up; a cache that is damaged or cannot be written changes nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from made_up_device import made_up_device

from gpuqs.devices import kernel_cache, nvrtc, sources
from gpuqs.devices.bindings import bindings
from gpuqs.devices.kernel_cache import MachineCode, cached, folder
from gpuqs.engines.gpu import kernels
from gpuqs.errors import DeviceError

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
    readable = damage == "unreadable" and os.access(path, os.R_OK)  # by the superuser
    assert cached(("key",), compiler) == CODE
    assert compiler.calls == 2 - readable
    if damage != "a folder":
        path.chmod(0o600)
        assert path.read_bytes() == data
    assert sorted(home.rglob(".*")) == []  # no part files


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
    assert folder() == Path("/somewhere")
    monkeypatch.setenv("GPUQS_CACHE_DIR", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert folder() == tmp_path / "gpuqs"
    monkeypatch.setenv("HOME", str(tmp_path))
    for unfit in ("", "not/absolute"):
        monkeypatch.setenv("XDG_CACHE_HOME", unfit)
        assert folder() == tmp_path / ".cache" / "gpuqs"
    monkeypatch.setattr(Path, "home", lambda: Path("~a user who is not there").expanduser())
    assert folder() is None
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
    first, again = (made_up_device().kernel("finish_scores.cu", name)._function for _ in range(2))
    assert len(compiled) == 1
    assert first.symbol == again.symbol and name.partition("<")[0] in first.symbol
    assert first.module.cubin == again.module.cubin and first.module.cubin.startswith(b"\x7fELF")

    # All that machine code follows from, changed one by one: each is compiled anew.
    made_up_device(compute_capability=(9, 0)).kernel("finish_scores.cu", name)
    made_up_device(threads_per_multiprocessor=2048).kernel("finish_scores.cu", name)
    made_up_device().kernel("finish_scores.cu", kernels.add_tree_blocks("float64"))
    source = sources.source("finish_scores.cu")
    monkeypatch.setattr(sources, "source", lambda file: source + "// changed\n")
    made_up_device().kernel("finish_scores.cu", name)
    monkeypatch.setattr(nvrtc, "version", lambda: (99, 0))
    made_up_device().kernel("finish_scores.cu", name)
    assert len(compiled) == len(files(home)) == 6


@needs_nvrtc
def test_what_does_not_compile_is_told() -> None:
    with pytest.raises(DeviceError, match=r"(?s)wrong\.cu does not compile \(NVRTC_ERROR_COMPILATION.*int x = ;"):
        nvrtc.Program("__global__ void k() { int x = ; }", "wrong.cu", ["k"], ["--gpu-architecture=sm_80"])


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
