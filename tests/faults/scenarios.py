"""What is tried while calls fail: each scenario acts, then checks what must hold whether it failed or not."""

from __future__ import annotations

import io
import threading
from abc import ABC, abstractmethod
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
from forests import probing_documents, random_forest

import gpuqs
from gpuqs.arrays import coded_rows
from gpuqs.cli.commands import cli
from gpuqs.errors import GpuqsError
from gpuqs.forest import Forest
from gpuqs.formats.native import MAGIC
from gpuqs.model import Model

#: Old content of the file that is overwritten.
OLD = MAGIC + b"what was there before\n"  # starts with MAGIC: gpuqs does not overwrite a model in another format


class Scenario(ABC):
    """One thing that users do.

    Attributes
    ----------
    clear : tuple of exception types
        Exceptions that may be raised if a call fails.
    """

    clear: tuple[type[Exception], ...] = (MemoryError, OSError, GpuqsError)

    def begin(self) -> None:  # noqa: B027 - most need nothing
        """Preparation during which no call fails."""

    @abstractmethod
    def act(self) -> None:
        """May raise."""

    @abstractmethod
    def check(self, succeeded: bool) -> None:
        """Check that nothing was lost, and that the same action works now."""


def same_bits(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.dtype == expected.dtype and found.tobytes() == expected.tobytes()


def made_forest(**fields: object) -> Forest:
    fields = {"n_trees": 7, "max_leaves": 20, "n_features": 7, "n_thresholds": 90} | fields
    return random_forest(np.random.default_rng(2), **fields)  # type: ignore[arg-type]


class Load(Scenario):
    """`gpuqs.load` of a file, then scores of the loaded model."""

    def __init__(self, path: Path) -> None:
        self.path = path
        model = gpuqs.load(path)
        rows = probing_documents(np.random.default_rng(3), model.forest, 40)
        self.X = coded_rows(rows[:, : model.n_features])  # columns of CTRs are computed from the others
        self.expected = model.predict(self.X, "raw")

    def act(self) -> None:
        self.model = gpuqs.load(self.path)

    def check(self, succeeded: bool) -> None:
        model = self.model if succeeded else gpuqs.load(self.path)
        same_bits(model.predict(self.X, "raw"), self.expected)


class Predict(Scenario):
    """First use of an engine by a model: layouts, machine code, scratch, threads."""

    def __init__(self, engine: str, n_threads: int, n: int) -> None:
        self.forest = made_forest()
        self.X = probing_documents(np.random.default_rng(4), self.forest, n, np.float32)
        self.options = {"engine": engine, "n_threads": n_threads}
        self.expected = Model(self.forest).predict(self.X, "raw", engine="reference")

    def begin(self) -> None:
        self.model = Model(self.forest)

    def act(self) -> None:
        self.scores = self.model.predict(self.X, "raw", **self.options)

    def check(self, succeeded: bool) -> None:
        if succeeded:
            same_bits(self.scores, self.expected)
        same_bits(self.model.predict(self.X, "raw", **self.options), self.expected)


class NewThread(Scenario):
    """Two calls with few documents in a new thread: the first call's scratch decides how much to keep for the next."""

    def __init__(self) -> None:
        forest = made_forest()
        self.model = Model(forest)
        self.X = probing_documents(np.random.default_rng(4), forest, 40, np.float32)
        self.expected = self.model.predict(self.X)

    def act(self) -> None:
        errors: list[Exception] = []

        def call() -> None:
            try:
                self.scores = [self.model.predict(self.X) for _ in range(2)]
            except Exception as error:
                errors.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
        if errors:
            raise errors[0]

    def check(self, succeeded: bool) -> None:
        for scores in self.scores if succeeded else ():
            same_bits(scores, self.expected)
        self.act()


class Encode(Predict):
    """Documents encoded, then scored as a whole and in part."""

    def __init__(self, n_threads: int) -> None:
        super().__init__("bitslice", n_threads, 1300)
        self.n_threads = n_threads
        some = Model(self.forest).predict(self.X, "raw", trees=slice(0, 5), engine="reference")
        self.expected_of_some = some

    def act(self) -> None:
        coded = self.model.encode(self.X, n_threads=self.n_threads)
        self.some = self.model.predict(coded, "raw", trees=slice(0, 5))
        self.scores = self.model.predict(coded, "raw", n_threads=self.n_threads)

    def check(self, succeeded: bool) -> None:
        if succeeded:
            same_bits(self.some, self.expected_of_some)
        super().check(succeeded)


class Save(Scenario):
    """`Model.save` over an existing file."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "model.gpuqs"
        self.model = Model(made_forest())
        self.model.save(self.path)
        self.expected = self.path.read_bytes()

    def begin(self) -> None:
        self.path.write_bytes(OLD)

    def act(self) -> None:
        self.model.save(self.path)

    def check(self, succeeded: bool) -> None:
        assert self.path.read_bytes() == (self.expected if succeeded else OLD)
        assert [path.name for path in self.path.parent.iterdir()] == [self.path.name]


class CommandFailed(Exception):
    """The command failed as it should: with a status and one line that says why."""


class Command(Scenario):
    """`gpuqs score -o` over an existing file."""

    clear = (CommandFailed,)

    def __init__(self, model: Path, data: Path, out: Path, n_threads: int) -> None:
        self.out = out
        self.arguments = ["score", str(model), str(data), "-o", str(out), "--threads", str(n_threads)]
        self.act()
        self.expected = out.read_bytes()

    def begin(self) -> None:
        self.out.write_bytes(OLD)

    def act(self) -> None:
        said = io.StringIO()
        status: object = 0
        with redirect_stdout(io.StringIO()), redirect_stderr(said):
            try:
                cli.main(self.arguments, prog_name="gpuqs")
            except SystemExit as end:
                status = end.code
        if status:
            lines = said.getvalue().splitlines()
            assert len(lines) == 1 and lines[0].startswith("Error: "), said.getvalue()
            raise CommandFailed(lines[0])

    def check(self, succeeded: bool) -> None:
        assert self.out.read_bytes() == (self.expected if succeeded else OLD)
        assert [path.name for path in self.out.parent.iterdir()] == [self.out.name]
