"""The command as a process: signals at every point, full disks, closed pipes, file names that are not valid text."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import termios
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpuqs
from gpuqs.forest import Forest

MAIN = "from gpuqs.cli import main; main()"
OLD = b"older scores"
N = 20_000

#: Limits under which a process that reads or copies endlessly fails soon.
LIMITED = (
    "import resource; resource.setrlimit(resource.RLIMIT_AS, (1 << 32, 1 << 32)); "
    "resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 26, 1 << 26)); "
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of three features, and documents with more scores than pipes and buffers hold."""
    folder = tmp_path_factory.mktemp("inputs")
    forest = Forest(
        n_features=3,
        node_offsets=np.array([0, 1]),
        leaf_offsets=np.array([0, 2]),
        feature=np.array([0], np.int32),
        threshold=np.zeros(1),
        left=np.array([-1], np.int32),
        right=np.array([-2], np.int32),
        routing=np.zeros(1, np.uint8),
        leaf_value=np.array([[0.125], [0.75]]),
    )
    gpuqs.from_model(forest).save(folder / "model")
    X = np.random.default_rng(0).normal(size=(N, 3))
    np.save(folder / "x.npy", X)
    np.savetxt(folder / "x.csv", X, "%.6f", delimiter=",")
    (folder / "x.svm").write_text("".join(f"1 0:{a:.6f} 2:{b:.6f}\n" for a, _, b in X))
    return folder


@pytest.fixture(scope="module")
def expected(folder: Path) -> bytes:
    """The scores as text; they are the same for all document files in the folder."""
    X = np.load(folder / "x.npy")
    return b"".join(b"0.125\n" if x <= 0 else b"0.75\n" for x in X[:, 0])


def run(*arguments: object, before: str = "", **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run the command as a separate process."""
    options = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **options}
    command = [sys.executable, "-c", before + MAIN, *(os.fsencode(str(a)) for a in arguments)]
    return subprocess.run(command, timeout=100, **options)


def one_line(stderr: bytes) -> str:
    text = stderr.decode()
    assert text.startswith("Error: ") and text.count("\n") == 1 and "fault of gpuqs" not in text, text
    return text


def old_scores(folder: Path, name: str = "scores.npy") -> Path:
    (folder / name).write_bytes(OLD)
    return folder / name


def as_before(out: Path) -> bool:
    return out.read_bytes() == OLD and os.listdir(out.parent) == [out.name]


# -- standard input, output and errors -------------------------------------------------------


@pytest.mark.parametrize("data", ["x.npy", "x.csv", "x.svm"])
@pytest.mark.parametrize("how", ["pipe", "file", "fifo"])
def test_documents_from_a_stream(folder: Path, expected: bytes, tmp_path: Path, data: str, how: str) -> None:
    content = (folder / data).read_bytes()
    if how == "pipe":
        done = run("score", folder / "model", "-", stdin=None, input=content)
    elif how == "file":
        with open(folder / data, "rb") as file:
            done = run("score", folder / "model", "-", stdin=file)
    else:
        os.mkfifo(tmp_path / "fifo")
        writer = threading.Thread(target=(tmp_path / "fifo").write_bytes, args=(content,))
        writer.start()
        done = run("score", folder / "model", tmp_path / "fifo")
        writer.join()
    assert done.returncode == 0 and done.stdout == expected, done.stderr


def test_a_parquet_file_from_a_pipe(folder: Path, expected: bytes, tmp_path: Path) -> None:
    import pyarrow
    from pyarrow import parquet

    X = np.load(folder / "x.npy")
    parquet.write_table(pyarrow.table({name: X[:, at] for at, name in enumerate("abc")}), tmp_path / "x.parquet")
    done = run("score", folder / "model", "-", stdin=None, input=(tmp_path / "x.parquet").read_bytes())
    assert done.returncode == 0 and done.stdout == expected


def test_an_array_in_fortran_order_from_a_pipe(folder: Path, expected: bytes, tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", np.asfortranarray(np.load(folder / "x.npy")))
    content = (tmp_path / "f.npy").read_bytes()
    assert run("score", folder / "model", tmp_path / "f.npy").stdout == expected
    assert run("score", folder / "model", "-", stdin=None, input=content).stdout == expected
    cut = run("score", folder / "model", "-", stdin=None, input=content[:-1])
    assert (cut.returncode, cut.stdout) == (1, b"") and "standard input: " in one_line(cut.stderr)


@pytest.mark.parametrize("command", ["score", "info"])
def test_a_model_from_a_pipe(folder: Path, expected: bytes, command: str) -> None:
    more = [folder / "x.csv"] if command == "score" else []
    content = (folder / "model").read_bytes()
    done = run(command, "-", *more, stdin=None, input=content)
    assert done.returncode == 0, done.stderr
    if command == "score":
        assert done.stdout == expected
    cut = run(command, "-", *more, stdin=None, input=content[:-1])
    assert (cut.returncode, cut.stdout) == (1, b"") and "standard input: the file is cut short" in one_line(cut.stderr)


def unread(descriptor: int) -> int:
    """Number of unread bytes in a pipe or a socket."""
    return int.from_bytes(fcntl.ioctl(descriptor, termios.FIONREAD, bytes(4)), sys.byteorder)


@pytest.mark.parametrize("what", ["x.npy", "x.csv", "x.svm", "model"])
@pytest.mark.parametrize("how", ["pipe", "socket"])
def test_an_input_that_is_set_not_to_wait(folder: Path, expected: bytes, tmp_path: Path, what: str, how: str) -> None:
    """A non-blocking input that has no data yet has not ended."""
    out = old_scores(tmp_path, "scores.txt")
    content = (folder / what).read_bytes()
    cut = min(len(content) // 2, 40_000)
    read, write = os.pipe() if how == "pipe" else (end.detach() for end in socket.socketpair())
    os.set_blocking(read, False)
    inputs = ["-", "x.csv"] if what == "model" else ["model", "-"]
    command = [sys.executable, "-c", MAIN, "score", *inputs, "-o", str(out)]
    with subprocess.Popen(command, cwd=folder, stdin=read, stderr=subprocess.PIPE) as process:
        with open(write, "wb", buffering=0) as writer:
            writer.write(content[:cut])
            while unread(read) and process.poll() is None:
                time.sleep(0.01)
            time.sleep(0.3)  # meanwhile the command asks for more
            os.close(read)
            writer.write(content[cut:])
        assert process.stderr is not None
        said = process.stderr.read()
    assert process.returncode == 0 and out.read_bytes() == expected, said


@pytest.mark.parametrize("out", ["-", "/dev/stdout"])
def test_an_output_that_is_set_not_to_wait(folder: Path, expected: bytes, out: str) -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    command = [sys.executable, "-c", MAIN, "score", "model", "x.csv", "-o", out]
    with subprocess.Popen(command, cwd=folder, stdout=write, stderr=subprocess.PIPE) as process:
        while unread(read) < 1 << 16 and process.poll() is None:  # until it is full
            time.sleep(0.01)
        time.sleep(0.3)
        os.close(write)
        with open(read, "rb") as reader:
            assert reader.read() == expected
    assert process.returncode == 0


def test_errors_that_are_set_not_to_wait(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "scores.txt"
    read, write = os.pipe()
    os.set_blocking(write, False)
    os.write(write, bytes(1 << 16))
    command = [sys.executable, "-c", MAIN, "score", "model", "x.csv", "-o", str(out)]
    with subprocess.Popen(command, cwd=folder, stderr=write) as process:
        os.close(write)
        while not out.exists() and process.poll() is None:
            time.sleep(0.01)
        time.sleep(0.3)
        with open(read, "rb") as reader:
            assert reader.read().lstrip(b"\0").count(b"\n") == 2
    assert process.returncode == 0


def test_nothing_but_scores_on_standard_output(folder: Path) -> None:
    dash = run("score", folder / "model", folder / "x.csv", "-o", "-")
    assert len([float(line) for line in dash.stdout.splitlines()]) == N
    assert dash.stderr.count(b"\n") == 2


def test_closed_standard_input(folder: Path) -> None:
    done = run("score", folder / "model", "-", stdin=None, preexec_fn=lambda: os.close(0))
    assert done.returncode == 1 and "standard input is closed" in one_line(done.stderr)


@pytest.mark.parametrize("arguments", [["score", "model", "x.csv"], ["info", "model"], ["formats"], ["--help"]])
def test_closed_and_full_standard_output(folder: Path, arguments: list[str]) -> None:
    closed = run(*arguments, cwd=folder, stdout=None, preexec_fn=lambda: os.close(1))
    assert closed.returncode == 1
    assert one_line(closed.stderr) == "Error: standard output: Bad file descriptor\n"
    if not os.path.exists("/dev/full"):
        pytest.skip("no /dev/full here")
    with open("/dev/full", "wb") as full:
        done = run(*arguments, cwd=folder, stdout=full)
    assert done.returncode == 1
    assert one_line(done.stderr) == "Error: standard output: No space left on device\n"


def test_closed_standard_error(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "scores.txt"
    done = run("score", folder / "model", folder / "x.csv", "-o", out, stderr=None, preexec_fn=lambda: os.close(2))
    assert done.returncode == 0 and out.read_bytes().count(b"\n") == N
    done = run("score", folder / "model", tmp_path / "none", stderr=None, preexec_fn=lambda: os.close(2))
    assert (done.returncode, done.stdout) == (2, b"")


def test_a_reader_that_has_seen_enough(folder: Path) -> None:
    command = [sys.executable, "-c", MAIN, "score", "model", "x.csv"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        float(process.stdout.readline())
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == -signal.SIGPIPE


def test_names_that_are_no_text(folder: Path, tmp_path: Path) -> None:
    strange = tmp_path / os.fsdecode(b"\xff\xe9\n")
    try:
        strange.mkdir()
    except OSError:
        pytest.skip("this filesystem takes names of text alone")
    for name in ("model", "x.csv", "x.npy"):
        (strange / name).write_bytes((folder / name).read_bytes())
    import pyarrow
    from pyarrow import parquet

    parquet.write_table(pyarrow.table({name: [1.0, -1.0] for name in "abc"}), tmp_path / "x.parquet")
    (tmp_path / "x.parquet").rename(strange / "x.parquet")
    for data, out in (("x.csv", "o.txt"), ("x.npy", "o.parquet"), ("x.parquet", "o.npy")):
        done = run("score", strange / "model", strange / data, "-o", strange / out)
        assert done.returncode == 0 and (strange / out).stat().st_size, done.stderr
    assert run("info", strange / "model").returncode == 0
    (strange / "bad.csv").write_text("1,2\n")
    for arguments in (["score", strange / "model", strange / "bad.csv"], ["info", strange / "bad.csv"]):
        done = run(*arguments)
        assert (done.returncode, done.stdout) == (1, b"") and "bad.csv" in one_line(done.stderr)
    assert run("info", strange / "none").returncode == 2


# -- where scores go ------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["txt", "npy", "parquet"])
def test_scores_into_a_fifo(folder: Path, expected: bytes, tmp_path: Path, suffix: str) -> None:
    import pandas

    fifo, got = tmp_path / f"fifo.{suffix}", tmp_path / "got"
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: got.write_bytes(fifo.read_bytes()))
    reader.start()
    done = run("score", folder / "model", folder / "x.csv", "-o", fifo)
    reader.join()
    assert done.returncode == 0 and fifo.is_fifo(), done.stderr
    read = {"txt": np.loadtxt, "npy": np.load, "parquet": lambda path: pandas.read_parquet(path)["score"]}[suffix]
    np.testing.assert_array_equal(read(got), np.array(expected.split(), float))


@pytest.mark.parametrize("suffix", ["txt", "npy", "parquet"])
def test_a_fifo_whose_reader_goes(folder: Path, tmp_path: Path, suffix: str) -> None:
    fifo = tmp_path / f"fifo.{suffix}"
    os.mkfifo(fifo)
    reader = threading.Thread(target=lambda: open(fifo, "rb").close())
    reader.start()
    done = run("score", folder / "model", folder / "x.npy", "-o", fifo)
    reader.join()
    assert done.returncode == 1 and one_line(done.stderr) == f"Error: {fifo}: Broken pipe\n"
    assert fifo.is_fifo()


def test_standard_output_by_its_name(folder: Path, tmp_path: Path) -> None:
    with open(tmp_path / "log", "wb") as log:
        log.write(b"before\n")
        log.flush()
        done = run("score", folder / "model", folder / "x.csv", "-o", "/dev/stdout", stdout=log)
    assert done.returncode == 0 and (tmp_path / "log").read_bytes().startswith(b"before\n0.")


@pytest.mark.parametrize(
    ("suffix", "room"), [("txt", 0), ("txt", 99_999), ("npy", 99_999), ("parquet", 0), ("parquet", 99)]
)
def test_a_disk_that_fills_up(folder: Path, tmp_path: Path, suffix: str, room: int) -> None:
    out = old_scores(tmp_path, f"scores.{suffix}")
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, {room})); "
    done = run("score", folder / "model", folder / "x.npy", "-o", out, before=limit)
    assert done.returncode == 1 and one_line(done.stderr) == f"Error: {out}: File too large\n"
    assert as_before(out)


# -- signals --------------------------------------------------------------------------------

#: Run the command with a signal at the n-th call of a function of gpuqs, for n = 1, 1 + step, ... until one run ends.
#: What each run did goes to standard output: n, how it ended, and its lines on standard error.
AT_EVERY_CALL = """
import os, signal, sys
import gpuqs.cli.score, gpuqs.cli.commands, gpuqs.readers, gpuqs.files, gpuqs.formats.native
from gpuqs.cli import main
from gpuqs.cli.endings import Commands
list(gpuqs.formats.readers())  # imported once, here
number, step, log, out, *arguments = sys.argv[1:]
number, step = getattr(signal, number), int(step)
sys.argv = ["gpuqs", *arguments]

def scoring(n):
    left = n
    def call(frame, event, argument):
        nonlocal left
        if event == "call" and "gpuqs" in frame.f_code.co_filename:
            left -= 1
            if left == 0:
                sys.setprofile(None)
                os.kill(os.getpid(), number)
    invoke = Commands.invoke
    def counted(self, ctx):
        sys.setprofile(call)
        return invoke(self, ctx)
    Commands.invoke = counted
    main()

n = 1
while True:
    child = os.fork()
    if child == 0:
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
        scoring(n)
        os._exit(77)
    status = os.waitpid(child, 0)[1]
    folder = os.path.dirname(out)
    with open(out, "rb") as scores, open(log) as lines:
        print(n, os.waitstatus_to_exitcode(status), scores.read() == b"older scores", os.listdir(folder), flush=True)
        print(repr(lines.read()), flush=True)
    if os.waitstatus_to_exitcode(status) == 0:
        break
    n += step
"""


@pytest.mark.parametrize(
    ("number", "data", "step"),
    [("SIGTERM", "x.npy", 37), ("SIGTERM", "x.svm", 47), ("SIGINT", "x.npy", 97), ("SIGHUP", "x.npy", 97)],
)
def test_a_signal_at_every_point(folder: Path, tmp_path: Path, number: str, data: str, step: int) -> None:
    (tmp_path / "out").mkdir()
    out = old_scores(tmp_path / "out")
    arguments = [number, str(step), tmp_path / "log", out, "score", folder / "model", folder / data, "-o", out]
    command = [sys.executable, "-c", AT_EVERY_CALL, *map(str, arguments), "--threads", "1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    stopped = 0
    for how, said in zip(lines[:-2:2], lines[1:-2:2], strict=True):
        _, status, rest = how.split(" ", 2)
        assert int(status) == -getattr(signal, number), (how, said)
        stopped += 1
        assert rest == "True ['scores.npy']", how
        assert said.endswith(f"Error: stopped by {number}\\n'") and "Traceback" not in said, (how, said)
    assert stopped > 5
    assert lines[-2].endswith("0 False ['scores.npy']")


def test_a_hangup_that_is_ignored_stays_so(folder: Path, tmp_path: Path) -> None:
    hang_up = (
        "import os, signal; signal.signal(signal.SIGHUP, signal.SIG_IGN); import gpuqs.cli.score as s; "
        "real = s.load_model; s.load_model = lambda *given: (os.kill(os.getpid(), signal.SIGHUP), real(*given))[1]; "
    )
    done = run("score", folder / "model", folder / "x.csv", "-o", tmp_path / "scores.txt", before=hang_up)
    assert done.returncode == 0, done.stderr


def test_a_wait_for_a_fifo_can_be_stopped(folder: Path, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    command = [sys.executable, "-c", MAIN, "score", "model", "-", "-o", str(tmp_path / "fifo")]
    with subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(b"1,2,3\n" * 100)
        process.stdin.close()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(2)  # it waits for a reader of the scores
        process.terminate()
        assert one_line(process.stderr.read()) == "Error: stopped by SIGTERM\n"
    assert process.returncode == -signal.SIGTERM


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize(
    ("number", "data"), [("SIGTERM", "x.csv"), ("SIGINT", "x.csv"), ("SIGALRM", "x.csv"), ("SIGTERM", "x.svm")]
)
def test_a_wait_for_documents_can_be_stopped(
    folder: Path, tmp_path: Path, number: str, data: str, blocking: bool
) -> None:
    out = old_scores(tmp_path)
    read, write = os.pipe()
    os.set_blocking(read, blocking)
    command = [sys.executable, "-c", MAIN, "score", "model", "-", "-o", str(out)]
    with (
        subprocess.Popen(command, cwd=folder, stdin=read, stderr=subprocess.PIPE) as process,
        open(write, "wb", buffering=0) as documents,
    ):
        assert process.stderr is not None
        os.close(read)
        documents.write((folder / data).read_bytes())
        while len(os.listdir(tmp_path)) == 1 and process.poll() is None:  # until it reads documents
            time.sleep(0.01)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.5)
        process.send_signal(getattr(signal, number))
        try:
            assert process.wait(20) == -getattr(signal, number)
        finally:
            process.kill()
        assert one_line(process.stderr.read()) == f"Error: stopped by {number}\n"
    assert as_before(out)


def test_the_timer_is_left_to_who_set_it(folder: Path) -> None:
    timed = (
        "import signal, gpuqs; signal.setitimer(signal.ITIMER_REAL, 5e5); real = gpuqs.load\n"
        "def load(*given, **named):\n"
        "    assert signal.getitimer(signal.ITIMER_REAL)[0] > 1e5\n"
        "    return real(*given, **named)\n"
        "gpuqs.load = load\n"
    )
    done = run("info", folder / "model", before=timed)
    assert done.returncode == 0, done.stderr


def test_a_signal_of_a_forked_child_is_its_own(folder: Path) -> None:
    forking = (
        "import os, signal, time, gpuqs; real = gpuqs.load\n"
        "def load(*given, **named):\n"
        "    if os.fork() == 0:\n"
        "        try: os.kill(os.getpid(), signal.SIGTERM)\n"
        "        finally: os._exit(0)\n"
        "    os.wait()\n"
        "    time.sleep(1.2)\n"
        "    return real(*given, **named)\n"
        "gpuqs.load = load\n"
    )
    done = run("info", folder / "model", before=forking)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("module", ["gpuqs.cli.process", "click"])
def test_an_interrupt_while_the_command_is_imported(folder: Path, module: str) -> None:
    interrupt = (
        "import os, signal, sys, importlib.abc as abc\n"
        "class Finder(abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        f"        if name == {module!r}: os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Finder())\n"
    )
    done = run("info", folder / "model", before=interrupt)
    assert done.returncode == -signal.SIGINT
    assert done.stderr in (b"", b"Error: stopped by SIGINT\n")


@pytest.mark.parametrize("columns", ["0", "9" * 5000])
def test_a_terminal_of_an_odd_size(folder: Path, columns: str) -> None:
    done = run("info", folder / "model", env={**os.environ, "COLUMNS": columns})
    assert done.returncode == 0 and b"bitslice" in done.stdout, done.stderr


#: Send `times` signals inside callbacks of weak references, which no exception can leave.
SWALLOWED = """
import os, signal, weakref, gpuqs
real, times = gpuqs.load, {times}
class Thing: pass
def stopped(_):
    os.kill(os.getpid(), signal.SIGTERM)
    raise AssertionError
def load(*given, **named):
    for _ in range(times):
        thing = Thing()
        reference = weakref.ref(thing, stopped)
        del thing
    return real(*given, **named)
gpuqs.load = load
"""


@pytest.mark.parametrize("command", ["score", "info"])
def test_a_signal_whose_exception_is_swallowed(folder: Path, tmp_path: Path, command: str) -> None:
    out = old_scores(tmp_path)
    more = [folder / "x.npy", "-o", out] if command == "score" else []
    done = run(command, folder / "model", *more, before=SWALLOWED.format(times=1))
    assert (done.returncode, done.stderr) == (-signal.SIGTERM, b"Error: stopped by SIGTERM\n")
    assert as_before(out)


def test_a_signal_after_the_scores_are_in_place(folder: Path, expected: bytes, tmp_path: Path) -> None:
    """The requested scores are complete, so the exit status must be success."""
    out = old_scores(tmp_path, "scores.txt")
    late = "import os, signal, gpuqs.cli.score as s; s._say = lambda line: os.kill(os.getpid(), signal.SIGTERM)\n"
    done = run("score", folder / "model", folder / "x.npy", "-o", out, before=late)
    assert (done.returncode, done.stderr) == (0, b"")
    assert out.read_bytes() == expected


def test_a_signal_that_was_swallowed_as_the_last_score_was_written(folder: Path, expected: bytes) -> None:
    late = (
        "import contextlib, os, signal, gpuqs.cli.score as s\n"
        "def last(real=s.stop_no_more):\n"
        "    with contextlib.suppress(BaseException): os.kill(os.getpid(), signal.SIGTERM)\n"
        "    real()\n"
        "s.stop_no_more = last\n"
    )
    done = run("score", folder / "model", folder / "x.npy", before=late)
    assert (done.returncode, done.stdout) == (0, expected), done.stderr


@pytest.mark.parametrize("when", ["put in place", "told"])
def test_a_signal_at_the_very_end(folder: Path, tmp_path: Path, when: str) -> None:
    """While the file is moved into place, and while the interpreter shuts down."""
    out = old_scores(tmp_path)
    late = {
        "put in place": "import os, signal, gpuqs.files as f\n"
        "real = f._put_in_place\n"
        "def put(*files):\n"
        "    os.kill(os.getpid(), signal.SIGTERM); real(*files); os.kill(os.getpid(), signal.SIGTERM)\n"
        "f._put_in_place = put\n",
        "told": "import atexit, os, signal; atexit.register(lambda: os.kill(os.getpid(), signal.SIGTERM))\n",
    }[when]
    done = run("score", folder / "model", folder / "x.npy", "-o", out, before=late)
    assert done.returncode == 0 and b"stopped" not in done.stderr, done.stderr
    assert len(np.load(out)) == N and [*tmp_path.iterdir()] == [out]


def test_a_signal_while_what_fails_is_put_in_place(folder: Path, tmp_path: Path) -> None:
    out = old_scores(tmp_path)
    late = (
        "import os, signal, gpuqs.files as f\n"
        "def put(*files):\n"
        "    os.kill(os.getpid(), signal.SIGTERM); raise OSError(28, 'No space left on device')\n"
        "f._put_in_place = put\n"
    )
    done = run("score", folder / "model", folder / "x.npy", "-o", out, before=late)
    assert done.returncode == -signal.SIGTERM and as_before(out) and [*tmp_path.iterdir()] == [out]


def test_a_signal_after_one_that_was_swallowed_is_no_repeat(folder: Path, tmp_path: Path) -> None:
    """The second signal raises, too, instead of being ignored; otherwise the callback's next line would fail."""
    done = run("info", folder / "model", before=SWALLOWED.format(times=2))
    assert (done.returncode, done.stderr) == (-signal.SIGTERM, b"Error: stopped by SIGTERM\n")


#: A wait that begins after a signal whose exception was swallowed, and one that begins after a signal that Python has
#: not handled yet: no Python code runs between the calls that `map` makes.
WAITS_AFTER = {
    "swallowed": "stop()",
    "unseen": "list(map(operator.methodcaller('__call__'), [terminate, wait]))",
}
WAITING = """
import ctypes, functools, operator, os, signal, weakref, gpuqs
class Thing: pass
def stop():
    thing = Thing()
    reference = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGTERM))
    del thing
terminate = functools.partial(ctypes.CDLL(None).kill, os.getpid(), int(signal.SIGTERM))
wait = functools.partial(os.read, os.pipe()[0], 1)
def load(*given, **named):
    {before}
    wait()
gpuqs.load = load
"""


@pytest.mark.parametrize("before", WAITS_AFTER)
def test_a_wait_that_begins_after_a_signal(folder: Path, before: str) -> None:
    done = run("info", folder / "model", before=WAITING.format(before=WAITS_AFTER[before]))
    assert (done.returncode, done.stderr) == (-signal.SIGTERM, b"Error: stopped by SIGTERM\n")


def test_who_cleans_up_after_a_signal_is_left_alone(folder: Path) -> None:
    """No second exception interrupts the cleanup, however long it takes."""
    slow = (
        "import os, signal, time, gpuqs\n"
        "def load(*given, **named):\n"
        "    try: os.kill(os.getpid(), signal.SIGTERM)\n"
        "    finally:\n"
        "        for _ in range(3): time.sleep(0.6)\n"
        "        os.write(2, b'cleaned. ')\n"
        "gpuqs.load = load\n"
    )
    done = run("info", folder / "model", before=slow)
    assert (done.returncode, done.stderr) == (-signal.SIGTERM, b"cleaned. Error: stopped by SIGTERM\n")


@pytest.mark.parametrize("arguments", [["info", "model"], ["formats"], ["--help"], ["score", "model", "x.csv"]])
def test_a_reader_that_has_gone_before(folder: Path, arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    with open(write, "wb") as gone:
        done = run(*arguments, cwd=folder, stdout=gone)
    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")


@pytest.mark.parametrize(
    ("arguments", "appended"),
    [
        (["score", "model", "x.csv"], "x.csv"),
        (["score", "model", "x.csv", "-o", "-"], "x.csv"),
        (["score", "model", "x.csv"], "model"),
        (["info", "model"], "model"),
    ],
)
def test_standard_output_is_no_input(folder: Path, tmp_path: Path, arguments: list[str], appended: str) -> None:
    for name in ("model", "x.csv"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with open(tmp_path / appended, "ab") as output:
        done = run(*arguments, cwd=tmp_path, stdout=output)
    assert done.returncode == 2 and "standard output is also the input" in one_line(done.stderr)
    for name in ("model", "x.csv"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize("command", ["score", "info", "verify"])
@pytest.mark.parametrize("appended", ["model", "x.npy", "scores"])
def test_standard_error_is_no_other_file(folder: Path, tmp_path: Path, command: str, appended: str) -> None:
    """If standard error is an input or output file, nothing is written to it: errors go to standard output."""
    arguments = {"info": ["model"], "verify": ["model", "x.npy"], "score": ["model", "x.npy", "-o", "scores"]}[command]
    before = {name: (folder / name).read_bytes() for name in ("model", "x.npy")} | {"scores": OLD}
    for name, content in before.items():
        (tmp_path / name).write_bytes(content)
    with open(tmp_path / appended, "ab") as errors:
        done = run(command, *arguments, cwd=tmp_path, stderr=errors)
        both = run(command, *arguments, cwd=tmp_path, stdout=errors, stderr=errors)
    if appended in arguments:
        what = "--out scores" if appended == "scores" else f"the input {appended}"
        assert (done.returncode, both.returncode) == (2, 2)
        assert f"Error: standard error is also {what}" in done.stdout.decode()
        assert {name: (tmp_path / name).read_bytes() for name in before} == before
    else:
        assert 2 not in (done.returncode, both.returncode)


@pytest.mark.parametrize(
    ("arguments", "appended"),
    [
        (["score", "model", "x.csv", "--threads", "0"], "x.csv"),
        (["score", "model", "x.csv", "-o", ""], "x.csv"),
        (["score", "none", "x.csv"], "x.csv"),
        (["info", "model", "--bad"], "model"),
        (["score", "model", "x.csv", "-oscores", "--bad"], "scores"),
        (["score", "model", "x.csv", "--out=scores", "--bad"], "scores"),
        (["score", "model", "x.csv", "--bad"], "x.csv.query"),
        (["score", "none", "-"], "x.csv"),
    ],
)
def test_wrong_arguments_are_told_to_no_file_among_them(
    folder: Path, tmp_path: Path, arguments: list[str], appended: str
) -> None:
    before = {name: (folder / name).read_bytes() for name in ("model", "x.csv")} | {"scores": OLD, "x.csv.query": b"9"}
    for name, content in before.items():
        (tmp_path / name).write_bytes(content)
    with open(tmp_path / appended, "ab") as errors, open(tmp_path / "x.csv", "rb") as documents:
        done = run(*arguments, cwd=tmp_path, stdin=documents, stderr=errors)
        both = run(*arguments, cwd=tmp_path, stdin=documents, stdout=errors, stderr=errors)
    assert (done.returncode, both.returncode) == (2, 2)
    assert done.stdout.startswith(b"Error: ") and done.stdout.count(b"\n") == 1
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_scores_and_messages_in_one_log(folder: Path, tmp_path: Path) -> None:
    for out in ("-", "/dev/stdout"):
        with open(tmp_path / "log", "wb") as log:
            done = run("score", folder / "model", folder / "x.csv", "-o", out, stdout=log, stderr=log)
        assert done.returncode == 0 and (tmp_path / "log").read_bytes().count(b"\n") == N + 2


@pytest.mark.parametrize("format", ["parquet", None])
def test_documents_from_a_device_that_never_ends(folder: Path, format: str | None) -> None:
    done = run("score", folder / "model", "/dev/zero", *(["--format", format] if format else []), before=LIMITED)
    assert done.returncode == 1 and "/dev/zero" in one_line(done.stderr) and "memory" not in done.stderr.decode()


@pytest.mark.parametrize(("command", "stdin"), [("info", False), ("info", True), ("verify", False), ("verify", True)])
def test_a_model_from_a_device_that_never_ends(command: str, stdin: bool) -> None:
    with open("/dev/zero", "rb") as zeros:
        done = run(command, "-" if stdin else "/dev/zero", stdin=zeros, before=LIMITED)
    name = "standard input" if stdin else "/dev/zero"
    assert done.returncode == 1 and f"{name}: is in no format that gpuqs reads" in one_line(done.stderr)
