from __future__ import annotations

import errno
import os
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

import numpy as np
import pytest

from gpuqs.cpu_fallback import file_bytes
from gpuqs.files import replacing
from gpuqs.streams import Input


def write(path: Path, data: bytes) -> None:
    with replacing(path) as file:
        file.write(data)


def fail_to_write(path: Path, data: bytes) -> None:
    with pytest.raises(KeyboardInterrupt), replacing(path) as file:
        file.write(data)
        file.flush()
        raise KeyboardInterrupt


def refuse_neighbours(monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    """Make creation of files fail in every folder, as in a read-only one; for the superuser no folder is read-only."""
    real = os.open

    def refused(path: str, flags: int, *more: int, **options: int) -> int:
        if flags & os.O_EXCL and str(path).endswith(".part"):
            raise OSError(error, os.strerror(error), path)
        return real(path, flags, *more, **options)

    monkeypatch.setattr(os, "open", refused)


def test_a_file_is_made_or_replaced(tmp_path: Path) -> None:
    path = tmp_path / "out"
    write(path, b"first, and longer")
    write(path, b"second")
    assert path.read_bytes() == b"second" and os.listdir(tmp_path) == ["out"]


def test_the_old_file_is_there_until_the_end(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    with replacing(path) as file:
        file.write(b"new" * 1_000_000)
        file.flush()
        assert path.read_bytes() == b"old"
        file.seek(0)
        file.write(b"NEW")
    assert path.read_bytes() == b"NEW" + b"new" * 999_999


@pytest.mark.parametrize("old", [b"old", None])
def test_a_failure_leaves_all_as_it_was(tmp_path: Path, old: bytes | None) -> None:
    path = tmp_path / "out"
    if old is not None:
        path.write_bytes(old)
    (tmp_path / "out.part").write_bytes(b"the user's own")
    fail_to_write(path, b"new")
    assert sorted(os.listdir(tmp_path)) == (["out", "out.part"] if old is not None else ["out.part"])
    assert (tmp_path / "out.part").read_bytes() == b"the user's own"
    assert old is None or path.read_bytes() == old


def test_a_link_is_kept(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link, target = tmp_path / "link", tmp_path / "there" / "target"
    link.symlink_to(target)
    for data in (b"made", b"replaced"):
        write(link, data)
        assert link.is_symlink() and target.read_bytes() == data
    assert os.listdir(tmp_path / "there") == ["target"]


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OSError, match="loop"):
        write(tmp_path / "loop", b"x")


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o755])
def test_permissions_are_kept(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "out"
    path.touch()
    path.chmod(mode)
    with replacing(path) as file:
        (temporary,) = tmp_path.glob(".gpuqs-*.part")
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600  # as private as the file can be
        file.write(b"x")
    assert stat.S_IMODE(path.stat().st_mode) == mode


@pytest.mark.skipif(os.geteuid() != 0, reason="only the superuser gives files away")
def test_the_owner_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.touch()
    os.chown(path, 1234, 5678)
    write(path, b"x")
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 5678)


def test_devices_are_written_to_as_they_are() -> None:
    before = os.stat(os.devnull)
    write(Path(os.devnull), b"x")
    after = os.stat(os.devnull)
    assert stat.S_ISCHR(after.st_mode) and after.st_ino == before.st_ino


def test_a_device_behind_a_link(tmp_path: Path) -> None:
    (tmp_path / "null").symlink_to(os.devnull)
    fail_to_write(tmp_path / "null", b"x")
    assert (tmp_path / "null").is_symlink() and stat.S_ISCHR(os.stat(os.devnull).st_mode)


def test_a_full_device_is_named(tmp_path: Path) -> None:
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    with pytest.raises(OSError, match="/dev/full") as caught:
        write(Path("/dev/full"), b"x")
    assert caught.value.errno == errno.ENOSPC


def test_a_fifo_is_written_to(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(path.read_bytes()))
    reader.start()
    with replacing(path) as file:
        assert not file.seekable()
        file.write(b"x" * 200_000)
    reader.join()
    assert got == [b"x" * 200_000] and stat.S_ISFIFO(path.stat().st_mode)


def test_a_fifo_whose_reader_has_gone(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    reader = threading.Thread(target=lambda: open(path, "rb").close())
    reader.start()
    with pytest.raises(BrokenPipeError, match="fifo"), replacing(path) as file:
        reader.join()
        file.write(b"x" * 200_000)
    assert stat.S_ISFIFO(path.stat().st_mode)


def test_a_descriptor_of_the_process_is_written_from_where_it_stands(tmp_path: Path) -> None:
    with open(tmp_path / "log", "wb", buffering=0) as log:
        log.write(b"before ")
        write(Path(f"/dev/fd/{log.fileno()}"), b"scores ")
        log.write(b"after")
    assert (tmp_path / "log").read_bytes() == b"before scores after"


def test_a_name_that_ends_as_a_folders(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="new/"), replacing(f"{tmp_path}/new/"):
        pass
    assert not os.listdir(tmp_path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    import socket

    with pytest.raises(IsADirectoryError, match=str(tmp_path)):
        write(tmp_path, b"x")
    with socket.socket(socket.AF_UNIX) as bound:
        here = os.getcwd()
        os.chdir(tmp_path)  # socket paths must be short
        try:
            bound.bind("socket")
        finally:
            os.chdir(here)
        with pytest.raises(OSError, match="a socket"):
            write(tmp_path / "socket", b"x")


@pytest.mark.parametrize("error", [errno.EACCES, errno.EROFS])
def test_a_writable_file_in_a_folder_that_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old, and much longer than the new one")
    inode = path.stat().st_ino
    refuse_neighbours(monkeypatch, error)
    fail_to_write(path, b"new")
    assert path.read_bytes() == b"old, and much longer than the new one"
    write(path, b"new")
    assert path.read_bytes() == b"new" and path.stat().st_ino == inode
    with pytest.raises(OSError, match="other") as caught:  # a new file cannot be created
        write(tmp_path / "other", b"x")
    assert caught.value.errno == error
    assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("error", [errno.EBUSY, errno.EXDEV, errno.EPERM, errno.EACCES])
def test_a_file_that_cannot_be_renamed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    def busy(*_: object) -> None:
        raise OSError(error, os.strerror(error))

    path = tmp_path / "out"
    path.write_bytes(b"old")
    monkeypatch.setattr(os, "replace", busy)
    write(path, b"the new one")
    assert path.read_bytes() == b"the new one" and os.listdir(tmp_path) == ["out"]


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="room cannot be asked for here")
def test_no_room_where_a_file_must_be_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, offset: int, size: int) -> None:
        os.pwrite(descriptor, b"\0", size - 1)  # up to where it got
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    path = tmp_path / "out"
    path.write_bytes(b"old")
    refuse_neighbours(monkeypatch, errno.EACCES)
    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="out") as caught:
        write(path, b"the new one")
    assert caught.value.errno == errno.ENOSPC
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["out"]


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="room cannot be asked for here")
@pytest.mark.parametrize("during", ["posix_fallocate", "copyfileobj"])
def test_a_signal_while_a_file_is_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, during: str) -> None:
    raised: list[str] = []

    def signalled(*_: object) -> None:
        raised.append("before")
        signal.raise_signal(signal.SIGINT)
        raised.append("after")

    path = tmp_path / "out"
    path.write_bytes(b"old")
    refuse_neighbours(monkeypatch, errno.EACCES)
    if during == "posix_fallocate":
        monkeypatch.setattr(os, "posix_fallocate", signalled)
    else:
        copy = shutil.copyfileobj
        monkeypatch.setattr(shutil, "copyfileobj", lambda new, old, size: (signalled(), copy(new, old, size)))
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        write(path, b"the new one")
    assert raised[:2] == ["before", "after"] and len(raised) % 2 == 0 and signal.getsignal(signal.SIGINT) is handler
    assert path.read_bytes() == b"the new one" and os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize("broken", [{2}, {1, 2}, {2, 3}])
def test_an_error_in_the_middle_of_overwriting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: set[int]
) -> None:
    """There are three copies: the old content aside, the new content over it, and the old content back."""
    calls: list[int] = []

    def fails(source: BinaryIO, target: BinaryIO, size: int) -> None:
        calls.append(len(calls) + 1)
        target.write(source.read(5))
        if calls[-1] in broken:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        target.write(source.read())

    path = tmp_path / "out"
    path.write_bytes(b"the old content")
    refuse_neighbours(monkeypatch, errno.EACCES)
    monkeypatch.setattr(shutil, "copyfileobj", fails)
    with pytest.raises(OSError, match="out") as caught:
        write(path, b"new, and longer than the old one")
    assert caught.value.errno == errno.EIO and os.listdir(tmp_path) == ["out"]
    if broken == {2}:
        assert path.read_bytes() == b"the old content" and "damaged" not in str(caught.value)
    else:
        assert "damaged" in str(caught.value)


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="room cannot be asked for here")
@pytest.mark.parametrize("at_all", ["a new file", "over an old one", "no neighbour", "a device"])
def test_an_interrupt_at_any_step_leaves_nothing_open(
    at_all: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At whatever point within a line the interrupt comes."""
    path = Path(os.devnull) if at_all == "a device" else tmp_path / "out"
    if at_all in ("over an old one", "no neighbour"):
        path.write_bytes(b"old")
    if at_all == "no neighbour":
        refuse_neighbours(monkeypatch, errno.EACCES)
    steps = 0

    def interrupt(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal steps
        if frame.f_globals["__name__"] not in ("gpuqs.files", "gpuqs.streams"):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode" and signal.getsignal(signal.SIGINT) is handler:  # otherwise it is held back
            steps += 1
            if steps == at:
                raise KeyboardInterrupt
        return interrupt

    def n_open() -> int:
        """Number of open descriptors of the written files; threads of other libraries may open their own meanwhile."""
        links = []
        for descriptor in os.listdir("/proc/self/fd"):
            with suppress(FileNotFoundError):  # the descriptor of the listing itself
                links.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        return sum(link.startswith((str(tmp_path), os.devnull)) for link in links)

    open_before, handler = n_open(), signal.getsignal(signal.SIGINT)
    traced = sys.gettrace()
    for at in range(1, 100_000):
        steps = 0
        sys.settrace(interrupt)
        try:
            write(path, b"new")
            break
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(traced)
        assert n_open() == open_before, at
        assert os.listdir(tmp_path) in ([], ["out"]), at
        if at_all != "a device" and path.exists():
            assert path.read_bytes() in (b"old", b"new")
    assert at > 100


def test_any_exception_while_room_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(descriptor: int, offset: int, size: int) -> None:
        os.pwrite(descriptor, b"\0", size - 1)
        raise KeyboardInterrupt

    path = tmp_path / "out"
    path.write_bytes(b"old")
    refuse_neighbours(monkeypatch, errno.EACCES)
    monkeypatch.setattr(os, "posix_fallocate", stopped)
    with pytest.raises(KeyboardInterrupt):
        write(path, b"the new one")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["out"]


def test_a_way_through_a_folder_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"old")
    with pytest.raises(FileNotFoundError) as caught:
        write(tmp_path / "none" / ".." / "x", b"new")
    assert caught.value.filename == str(tmp_path / "none" / ".." / "x")
    assert (tmp_path / "x").read_bytes() == b"old"


@pytest.mark.parametrize("number", ["99999999999999999999", "9" * 5000, "99999"])
def test_a_descriptor_that_cannot_be(number: str) -> None:
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        write(Path(f"/dev/fd/{number}"), b"x")
    assert caught.value.errno == errno.EBADF


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write to any file")
def test_a_file_that_may_not_be_written_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_bytes(b"old")
    path.chmod(0o444)
    with pytest.raises(PermissionError, match="out"):
        write(path, b"new")
    assert path.read_bytes() == b"old"


def test_all_of_an_input_that_is_set_not_to_wait() -> None:
    read, write = os.pipe()
    os.set_blocking(read, False)

    def feed() -> None:
        with open(write, "wb", buffering=0) as file:
            for part in (b"first ", b"second ", b"third"):
                time.sleep(0.2)
                file.write(part)

    feeder = threading.Thread(target=feed)
    feeder.start()
    try:
        with Input(read) as file:
            assert (file.read(3), file.read(), file.read()) == (b"fir", b"st second third", b"")
    finally:
        feeder.join()
        os.close(read)


def content(n: int) -> bytes:
    return np.random.default_rng(n).bytes(n)


@pytest.mark.parametrize("n_threads", [1, 2, 5])
@pytest.mark.parametrize("n", [0, 5, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (9 << 20) + 123])
def test_pages_hold_what_is_left_of_a_file(
    tmp_path: Path, n: int, n_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", str(n_threads))
    (tmp_path / "file").write_bytes(content(n))
    for start in (0, min(n, 77), n):
        with Input(tmp_path / "file") as file:
            file.seek(start)
            pages = file.read_pages()
            assert pages == content(n)[start:] and pages.readonly
            assert file.tell() == n and file.read() == b""


@pytest.mark.parametrize("change", [-(3 << 20), -5, 5, 3 << 20])
def test_pages_of_a_file_whose_size_changes(tmp_path: Path, change: int, monkeypatch: pytest.MonkeyPatch) -> None:
    n, path = 5 << 20, tmp_path / "file"
    path.write_bytes(content(n)[: n + min(change, 0)])
    told = os.stat_result((*os.stat(path)[:6], n - max(change, 0), *os.stat(path)[7:10]))
    monkeypatch.setattr(os, "fstat", lambda _: told)
    with Input(path) as file:
        assert file.read_pages() == content(n)[: n + min(change, 0)]


def test_pages_of_a_file_that_shrinks_and_grows_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    n, path, read = 5 << 20, tmp_path / "file", file_bytes.read_file
    path.write_bytes(content(n))

    def meanwhile(*asked: Any) -> int:
        os.truncate(path, 3 << 20)
        found: int = read(*asked)
        path.write_bytes(content(n))
        return found

    monkeypatch.setattr(file_bytes, "read_file", meanwhile)
    with Input(path) as file:
        assert file.read_pages() == content(n)


def test_a_size_beyond_all_memory_is_left_to_who_reads_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(content(2 << 20))
    told = os.stat_result((*os.stat(path)[:6], 1 << 60, *os.stat(path)[7:10]))
    monkeypatch.setattr(os, "fstat", lambda _: told)
    with Input(path) as file:
        assert file.read_pages() == content(2 << 20)


def test_what_cannot_be_sought_is_not_read_into_pages() -> None:
    read, write = os.pipe()
    with pytest.raises(OSError, match=os.strerror(errno.ESPIPE)):
        file_bytes.read_file(read, 0, bytearray(9))
    os.close(read)
    os.close(write)


@pytest.mark.parametrize("ask", ["f.read()", "f.read(1000)", "b''.join(iter(f.readline, b''))", "f.raw.readall()"])
def test_a_terminal_is_asked_for_its_end_once(ask: str) -> None:
    """Readers try to read again after the end; a terminal would then wait for another Ctrl-D."""
    pty = pytest.importorskip("pty")
    ours, its = pty.openpty()
    code = f"import io; from gpuqs.streams import Input; f = io.BufferedReader(Input(0)); print({ask}, f.read(9))"
    with subprocess.Popen([sys.executable, "-c", code], stdin=its, stdout=subprocess.PIPE, text=True) as process:
        os.write(ours, b"one\ntwo\n\x04")
        try:
            assert process.communicate(timeout=60)[0].strip() == r"b'one\ntwo\n' b''"
        finally:
            process.kill()
    os.close(ours)
    os.close(its)
