"""Each command failure prints one line on standard error, exits with the documented status and keeps old scores."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import gpuqs
from gpuqs.cli.commands import cli
from gpuqs.errors import InputError
from gpuqs.forest import Forest
from gpuqs.readers import FORMATS

OLD = b"older scores"


def tiny_forest() -> Forest:
    return Forest(
        n_features=3,
        node_offsets=np.array([0, 1]),
        leaf_offsets=np.array([0, 2]),
        feature=np.array([0], np.int32),
        threshold=np.zeros(1),
        left=np.array([-1], np.int32),
        right=np.array([-2], np.int32),
        routing=np.zeros(1, np.uint8),
        leaf_value=np.array([[0.25], [0.75]]),
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "model.gpuqs"
    gpuqs.from_model(tiny_forest()).save(path)
    return path


@pytest.fixture
def out(tmp_path: Path) -> Iterator[Path]:
    """Scores of an earlier run; a failure must not change them or leave anything else in their folder."""
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "scores.npy").write_bytes(OLD)
    yield folder / "scores.npy"
    assert (folder / "scores.npy").read_bytes() == OLD
    assert os.listdir(folder) == ["scores.npy"]


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def fails(status: int, *arguments: object) -> str:
    """Run a command in this process and check how it fails; return its error line."""
    result = CliRunner().invoke(cli, [str(a) for a in arguments])
    assert result.exit_code == status, result.output
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ") and result.stderr.count("\n") == 1 and result.stderr.endswith("\n")
    assert "fault of gpuqs" not in result.stderr
    return result.stderr


def npy(array: np.ndarray) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def npy_header(text: str, version: bytes = b"\x01\x00", data: bytes = bytes(72)) -> bytes:
    length = len(text).to_bytes(2 if version == b"\x01\x00" else 4, "little")
    return b"\x93NUMPY" + version + length + text.encode("latin1") + data


def npz_bomb() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("arr_0.npy", npy(np.zeros((1_000_000, 3))))
    return file.getvalue()


def parquet(**columns: object) -> bytes:
    import pyarrow
    from pyarrow import parquet

    file = io.BytesIO()
    parquet.write_table(pyarrow.table(columns), file)
    return file.getvalue()


SHAPE = "{'descr': '<f8', 'fortran_order': False, 'shape': %s, }\n"

#: Contents that are not a valid file of three features in any format.
DOCUMENTS = {
    "empty": b"",
    "zeros": bytes(5000),
    "noise": np.random.default_rng(0).bytes(5000),
    "blank": b"\n \n\n",
    "binary text": b"\xff\xfe\x00a,b\xff\n",
    "text": b"these are words\nand more of them\n",
    "markup": b"<html>\n<p>404</p>\n",
    "JSON": b'{"a": [1, 2]}\n',
    "control characters": b"\x1b[2J,\x07\r,x,y,z,1\n1\n",
    "npy, cut in its magic": npy(np.zeros((3, 3)))[:5],
    "npy, cut in its header": npy(np.zeros((3, 3)))[:60],
    "npy, cut in its values": npy(np.zeros((3, 3)))[:150],
    "npy, Fortran order, cut": npy(np.zeros((9, 3), order="F"))[:200],
    "npy, one dimension": npy(np.zeros(3)),
    "npy, no dimension": npy(np.zeros(())),
    "npy, three dimensions": npy(np.zeros((3, 3, 3))),
    "npy, other width": npy(np.zeros((3, 2))),
    "npy, objects": npy(np.full((3, 3), None)),
    "npy, structured": npy(np.zeros((3, 3), [("a", "f8"), ("ä", "f4")])),
    "npy, text": npy(np.full((3, 3), "x")),
    "npy, dates": npy(np.zeros((3, 3), "M8[s]")),
    "npy, complex": npy(np.zeros((3, 3), complex)),
    "npy, no documents": npy(np.zeros((0, 3))),
    "npy, negative shape": npy_header(SHAPE % "(-3, 3)"),
    "npy, both negative": npy_header(SHAPE % "(-3, -3)"),
    "npy, huge": npy_header(SHAPE % "(10**17, 3)"),
    "npy, huge literal": npy_header(SHAPE % "(100000000000000000000000, 3)"),
    "npy, no literal": npy_header("__import__('os').getcwd()\n"),
    "npy, deep": npy_header("(" * 5000 + ")" * 5000 + "\n"),
    "npy, signs": npy_header("-" * 9000 + "1\n"),
    "npy, version 2, no end": npy_header(SHAPE % "(3, 3)", b"\x02\x00")[:8] + b"\xff\xff\xff\xff",
    "npy, version 9": npy_header(SHAPE % "(3, 3)", b"\x09\x00"),
    "npy, bad type": npy_header("{'descr': 'zz', 'fortran_order': False, 'shape': (3, 3), }\n"),
    "npz": npz_bomb(),
    "npz, cut": npz_bomb()[:500],
    "parquet, cut": parquet(a=[1.0], b=[1.0], c=[1.0])[:100],
    "parquet, magic alone": b"PAR1",
    "parquet, hollow": b"PAR1" + bytes(64) + b"\x10\x00\x00\x00PAR1",
    "parquet, long end": b"PAR1" + bytes(64) + b"\xff\xff\xff\x7fPAR1",
    "parquet, other columns": parquet(a=[1.0]),
    "parquet, lists": parquet(a=[[1.0]], b=[1.0], c=[1.0]),
    "gzip": b"\x1f\x8b\x08\x00" + bytes(60),
    "a letter for a number": b"1,2,3\n1,x,3\n",
    "a short line": b"1,2,3\n1,2\n",
    "a letter in the first line": b"1,x,3\n1,2,3\n",
    "the columns' numbers": b"0,1,2\n1,2,3\n",
    "an open quote": b'"a,b,c\n1,2,3\n',
}


@pytest.mark.parametrize("format", [None, *FORMATS])
@pytest.mark.parametrize("what", DOCUMENTS)
def test_damaged_documents(model: Path, tmp_path: Path, out: Path, what: str, format: str | None) -> None:
    data = write(tmp_path / "data", DOCUMENTS[what])
    line = fails(1, "score", model, data, "-o", out, *(["--format", format] if format else []))
    assert str(data) in line


@pytest.mark.parametrize("command", ["info", "score", "verify"])
@pytest.mark.parametrize("what", ["empty", "zeros", "noise", "text", "markup", "JSON", "npz", "gzip", "cut", "one bit"])
def test_damaged_models(model: Path, tmp_path: Path, out: Path, command: str, what: str) -> None:
    sound = model.read_bytes()
    damaged = {"cut": sound[: len(sound) // 2], "one bit": sound[:-70] + bytes([sound[-70] ^ 1]) + sound[-69:]}
    path = write(tmp_path / "model", {**DOCUMENTS, **damaged}[what])
    more = {"score": [write(tmp_path / "x.csv", b"1,2,3\n"), "-o", out]}.get(command, [])
    assert str(path) in fails(1, command, path, *more)


@pytest.mark.parametrize("command", ["info", "score", "verify"])
@pytest.mark.parametrize("what", ["missing", "folder"])
def test_what_is_no_file(model: Path, tmp_path: Path, out: Path, command: str, what: str) -> None:
    path = tmp_path / what
    if what == "folder":
        path.mkdir()
    if command == "score":
        assert str(path) in fails(2, "score", model, path, "-o", out)
    assert str(path) in fails(2, command, path, *([path, "-o", out] if command == "score" else []))


@pytest.mark.parametrize(
    "arguments",
    [
        ["--engine", "warp"],
        ["--threads", "0"],
        ["--threads", "many"],
        ["--format", "xlsx"],
        ["--precision", "exakt"],
        ["--no-such-option"],
        ["and-a-third-file"],
    ],
)
def test_wrong_arguments(model: Path, tmp_path: Path, out: Path, arguments: list[str]) -> None:
    data = write(tmp_path / "x.csv", b"1,2,3\n")
    assert "(see " in fails(2, "score", model, data, "-o", out, *arguments)


def test_wrong_commands(model: Path) -> None:
    for arguments in (["no-such-command"], ["--no-such-option"], ["score"], ["score", model], ["score", "-", "-"]):
        fails(2, *arguments)


@pytest.mark.parametrize("place", ["no/such/folder/x.npy", "loop", "folder", "socket"])
def test_outputs_that_cannot_be(model: Path, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import socket

    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
        before = sorted(os.listdir(tmp_path))
        data = write(tmp_path.parent / f"{tmp_path.name}.csv", b"1,2,3\n")
        assert place in fails(2 if place == "folder" else 1, "score", model, data, "-o", place)
        assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize(
    ("name", "content", "options", "named"),
    [
        ("x.npy", npy(np.zeros((1, 3))), ["--one-based"], "npy, which takes no --one-based"),
        ("x.npy", npy(np.zeros((1, 3))), ["--label", "a"], "npy, which takes no --label"),
        ("x.svm", b"1 0:1\n", ["--no-header"], "svmlight, which takes no --header/--no-header"),
        ("x.svm", b"1 0:1\n", ["--query", "a"], "svmlight, which takes no --query"),
        ("x.csv", b"1,2,3\n", ["--one-based"], "csv, which takes no --one-based"),
        ("x.parquet", b"PAR1", ["--header"], "parquet, which takes no --header/--no-header"),
        ("x.csv", b"1,2,3\n", ["--format", "npy", "--header"], "npy, which takes no --header/--no-header"),
    ],
)
def test_options_of_another_format(
    model: Path, tmp_path: Path, out: Path, name: str, content: bytes, options: list[str], named: str
) -> None:
    data = write(tmp_path / name, content)
    assert f"{data} is read as {named}" in fails(2, "score", model, data, "-o", out, *options)


@pytest.mark.parametrize("option", ["--label", "--query"])
@pytest.mark.parametrize("name", ["none", ""])
@pytest.mark.parametrize("file", ["x.csv", "bare.csv", "x.parquet"])
def test_columns_that_are_not_there(model: Path, tmp_path: Path, out: Path, option: str, name: str, file: str) -> None:
    import pyarrow
    from pyarrow import parquet

    if file == "x.parquet":
        parquet.write_table(pyarrow.table({letter: [1.0] for letter in "abc"}), tmp_path / file)
    else:
        write(tmp_path / file, b"a,b,c\n" * (file == "x.csv") + b"1,2,3\n")
    assert f"no column '{name}'" in fails(2, "score", model, tmp_path / file, "-o", out, option, name)


def test_a_demo_in_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "is empty; name a folder, or . for this one" in fails(2, "demo", "--save", "")
    assert not os.listdir(tmp_path)


def test_wrong_arguments_of_verify(tmp_path: Path) -> None:
    import lightgbm

    X = np.random.default_rng(0).normal(size=(50, 3))
    path = tmp_path / "model.txt"
    lightgbm.train({"verbose": -1, "min_data_in_leaf": 5}, lightgbm.Dataset(X, X[:, 0]), 1).save_model(path)
    assert "'nope' is not one of auto, all, " in fails(2, "verify", path, "--engine", "all", "--engine", "nope")
    data = write(tmp_path / "x.npy", npy(X))
    assert "npy, which takes no --label" in fails(2, "verify", path, data, "--rows", "0", "--label", "a")


@pytest.mark.parametrize("command", ["verify", "info"])
def test_an_empty_model_on_standard_input(command: str) -> None:
    command_line = [sys.executable, "-c", "from gpuqs.cli import main; main()", command, "-"]
    done = subprocess.run(command_line, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("Error: standard input: is empty: ")


@pytest.mark.parametrize("out", ["new/", "new//", "out/new/"])
def test_an_output_that_names_a_folder(model: Path, tmp_path: Path, out: str) -> None:
    (tmp_path / "out").mkdir()
    data = write(tmp_path / "x.csv", b"1,2,3\n")
    assert "names a folder" in fails(2, "score", model, data, "-o", f"{tmp_path}/{out}")
    assert sorted(os.listdir(tmp_path)) == ["out", "x.csv"] and not os.listdir(tmp_path / "out")


def test_more_threads_than_machines_have(model: Path, tmp_path: Path) -> None:
    data = write(tmp_path / "x.csv", b"-1,2,3\n1,2,3\n")
    result = CliRunner().invoke(cli, ["score", str(model), str(data), "--threads", "99999999999"])
    assert (result.exit_code, result.stdout) == (0, "0.25\n0.75\n")


def test_a_fault_of_our_own(model: Path, tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("one\nand two")

    monkeypatch.setattr("gpuqs.model.Model.predict", broken)
    arguments = ["score", str(model), str(write(tmp_path / "x.csv", b"1,2,3\n")), "-o", str(out)]
    result = CliRunner().invoke(cli, arguments)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert result.stderr.startswith("Error: ZeroDivisionError: one and two; this is a fault of gpuqs: please report it")
    monkeypatch.setenv("GPUQS_DEBUG", "1")
    result = CliRunner().invoke(cli, arguments)
    assert "Traceback" in result.stderr and result.stderr.splitlines()[-1].startswith("Error: ZeroDivisionError")


#: Exceptions by which libraries report that they got no memory.
WITHOUT_MEMORY: dict[str, BaseException] = {
    "": MemoryError(),
    "Cannot allocate memory": OSError(errno.ENOMEM, "Cannot allocate memory"),
    "std::bad_alloc": RuntimeError("std::bad_alloc\nStack trace:"),
    "x.so: failed to map segment from shared object": ImportError("x.so: failed to map segment from shared object"),
    "can't start new thread": RuntimeError("can't start new thread"),
    "error return without exception set": SystemError("error return without exception set"),
    "f returned NULL without setting an exception": SystemError("f returned NULL without setting an exception"),
}


@pytest.mark.parametrize("kind", WITHOUT_MEMORY)
@pytest.mark.parametrize("told_as", [None, "a number that is wrong"])
def test_too_little_memory(
    model: Path, tmp_path: Path, out: Path, monkeypatch: pytest.MonkeyPatch, kind: str, told_as: str | None
) -> None:
    def none_left(*_: object, **__: object) -> None:
        try:
            raise WITHOUT_MEMORY[kind]
        except Exception as error:
            if told_as is None:
                raise
            raise InputError(told_as) from error

    monkeypatch.setattr("gpuqs.model.Model.predict", none_left)
    data = write(tmp_path / "x.csv", b"1,2,3\n")
    reason = f" ({kind})" if kind else ""
    said = fails(1, "score", model, data, "-o", out)
    assert said.replace("[Errno 12] ", "") == f"Error: there is not enough memory{reason}\n"


def test_what_files_say_of_memory_is_no_lack_of_it(model: Path, tmp_path: Path, out: Path) -> None:
    for content in (b"a,b,std::bad_alloc\n1,2,3\n", b"1,2,3\n1,2,std::bad_alloc\n"):
        said = fails(1, "score", model, write(tmp_path / "x.csv", content), "-o", out)
        assert "std::bad_alloc" in said and "not enough memory" not in said


@pytest.mark.parametrize("file", ["x.csv", "x.npy"])
def test_a_package_that_cannot_be_imported(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str
) -> None:
    """If the package is installed, advice to install it would not help."""

    class Finder(MetaPathFinder):
        def find_spec(self, name: str, path: object, target: object = None) -> None:
            if name == "pyarrow":
                raise ImportError("pyarrow.so: undefined symbol: x", name=name)

    for name in [name for name in sys.modules if name.partition(".")[0] == "pyarrow"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    data = write(tmp_path / file, b"1,2,3\n" if file == "x.csv" else npy(np.zeros((1, 3))))
    said = fails(1, "score", model, data, "-o", tmp_path / "scores.parquet")
    assert said == "Error: pyarrow is installed, but cannot be imported: pyarrow.so: undefined symbol: x\n"


def test_a_package_that_another_needs(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def need(*what: object, **how: object) -> None:
        raise ModuleNotFoundError("No module named 'no_such_package.part'", name="no_such_package.part")

    monkeypatch.setattr("gpuqs.cli.score.open_data", need)
    said = fails(1, "score", model, write(tmp_path / "x.npy", npy(np.zeros((1, 3)))))
    assert said.startswith("Error: the module no_such_package is needed here, and not installed; pip install")


@pytest.mark.parametrize("which", ["data", "model", "query sizes", "link", "standard input"])
def test_scores_are_not_put_over_an_input(model: Path, tmp_path: Path, which: str) -> None:
    data, own = write(tmp_path / "x.npy", npy(np.zeros((3, 3)))), write(tmp_path / "model", model.read_bytes())
    sizes, link = write(tmp_path / "x.npy.query", b"3\n"), tmp_path / "link"
    link.symlink_to(data)
    before = {path: path.read_bytes() for path in (data, own, sizes)}
    target = {"model": own, "query sizes": sizes, "link": link}.get(which, data)
    if which == "standard input":
        command = [sys.executable, "-c", "from gpuqs.cli import main; main()", "score", own, "-", "-o", data]
        with open(data, "rb") as file:
            done = subprocess.run(command, stdin=file, capture_output=True, text=True)
        assert done.returncode == 2 and "is also the input" in done.stderr
    else:
        assert "is also the input" in fails(2, "score", own, data, "-o", target)
    assert {path: path.read_bytes() for path in before} == before


def test_an_output_without_a_name(model: Path, tmp_path: Path) -> None:
    assert "is empty" in fails(2, "score", model, write(tmp_path / "x.csv", b"1,2,3\n"), "-o", "")
