"""Every reader against hostile input: damaged models and documents, each a clear error or the same scores twice.

    python bench/fuzz_readers.py [FORMAT ...] --seconds 60

An input is *accepted* where it loads, and two engines score it alike, and so does what is saved and loaded
again; *refused* where a `gpuqs.errors.GpuqsError` names it. All else is a *finding*, and its bytes are kept:
another exception, a warning, more than a second of processor time, more than 256 MB of memory above what
the process began with, a crash, a hang. Inputs that reach lines of a reader for the first time are kept
and damaged further. Each format runs in a process of its own; findings go to build/fuzz/FORMAT. The seeds
need the packages lightgbm, xgboost, catboost, scikit-learn, pandas, treelite and skl2onnx.
"""

from __future__ import annotations

import argparse
import dataclasses
import multiprocessing
import os
import random
import re
import resource
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from datetime import date
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

import numpy as np
from fuzz.damage import MAX_BYTES
from fuzz.seeds import Format, formats

import gpuqs
from gpuqs.errors import GpuqsError
from gpuqs.forest import CATEGORICAL, Forest
from gpuqs.readers import open_documents

REPOSITORY = Path(gpuqs.__file__).parents[1]
READERS = (f"{os.sep}gpuqs{os.sep}formats{os.sep}", f"{os.sep}gpuqs{os.sep}readers{os.sep}")
MOST_SECONDS = 1.0
HANG_SECONDS = 20.0
MOST_BYTES = 256 << 20
#: Nodes above which a forest is loaded but not scored: `reference` looks at one after another.
MOST_NODES = 5_000
#: One input in so many is traced for the lines that it reaches.
TRACED = 4
#: What a child tells its parent, by place in the shared array.
STARTED, TRIED, ACCEPTED, REFUSED = range(4)


Answer = TypeVar("Answer")


class Finding(Exception):
    """An answer that is neither a sound model nor a clear refusal."""


# -- one input ---------------------------------------------------------------------------------


def read_or_refused(path: Path, read: Callable[[], Answer]) -> Answer | None:
    """What ``read`` makes of the file at ``path``; None where it is refused as it should be.

    Raises
    ------
    Finding
    """
    began = time.process_time()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            answer = read()
        except GpuqsError as error:
            if str(path) not in str(error):
                raise Finding(f"unnamed {type(error).__name__}") from error
            answer = None
    if time.process_time() - began > MOST_SECONDS:
        raise Finding("slow")
    if warned:
        raise Finding(f"warning {warned[0].category.__name__} {warned[0].filename}:{warned[0].lineno}")
    return answer


def explained(path: Path) -> gpuqs.Model:
    model = gpuqs.load(path)
    model.explain()
    return model


def check_model(path: Path, rng: random.Random) -> bool:
    """Load a model and score it; False where it is refused as it should be.

    Raises
    ------
    Finding
    """
    model = read_or_refused(path, lambda: explained(path))
    if model is None:
        return False
    if model.forest.n_nodes <= MOST_NODES:
        check_scores(model, path, rng)
    return True


def check_scores(model: gpuqs.Model, path: Path, rng: random.Random) -> None:
    """Scores by two engines, and by what is saved and loaded again, have the same bits."""
    saved = path.with_suffix(".saved")
    model.save(saved)
    again = gpuqs.load(saved)
    saved.unlink()
    model, again = (gpuqs.Model(narrow(m.forest)) for m in (model, again))
    X = documents(model.forest, rng)
    classes = ["class"] if model.forest.classes or model.forest.link in ("sigmoid", "softmax", "ova_sigmoid") else []
    able = [name for name, reason in model.engines().items() if reason is None and name != "reference"]
    with np.errstate(all="ignore"):  # sums beyond float64 are infinite here as in the libraries
        for output in ("leaf", "raw", "value", "per_tree", *classes):
            want = model.predict(X, output, engine="reference", n_threads=1)
            for other, engine in ((model, "auto"), (model, rng.choice(able)), (again, "auto")):
                found = other.predict(X, output, engine=engine, n_threads=1)
                if not same(want, found):
                    raise Finding(
                        f"scores differ: {output} by {other.engine_for(len(X)) if engine == 'auto' else engine}"
                    )
        fast = [model.predict(X, "raw", engine=e, n_threads=1, precision="fast") for e in ("reference", "auto")]
    if not same(*fast):
        raise Finding("scores differ: raw, precision fast")


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two answers have the same bits; NaNs (infinity less infinity) are alike whatever their bits."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.kind != "f":
        return repr(a.tolist()) == repr(b.tolist())
    bits = f"u{a.itemsize}"
    return bool(((a.view(bits) == b.view(bits)) | ((a != a) & (b != b))).all())


def narrow(forest: Forest) -> Forest:
    """The forest without the features that it does not test: a file may speak of billions."""
    used, feature = np.unique(forest.feature, return_inverse=True)
    return dataclasses.replace(
        forest, n_features=len(used), feature=feature.astype(np.int32), feature_names=(), categories=()
    )


def documents(forest: Forest, rng: random.Random) -> np.ndarray:
    """Rows on the forest's thresholds and beside them, its categories' codes, and special values."""
    random_rows = np.random.default_rng(rng.randrange(1 << 32))
    n = max(1, min(48, (1 << 20) // forest.n_outputs))
    X = random_rows.normal(size=(n, forest.n_features)) * 3
    special = [np.nan, np.inf, -np.inf, 0.0, -0.0, 1e-35, -1e-36, -0.5, 31.0, 32.0, 1e10, -1.0, 2.5]
    for column in range(forest.n_features):
        nodes = np.flatnonzero(forest.feature == column)
        values = [special, X[:, column]]
        if (forest.routing[nodes] & CATEGORICAL).any():
            values.append(random_rows.integers(0, 48, 8))
        else:
            threshold = forest.threshold[nodes]
            with np.errstate(over="ignore"):
                values += [threshold, np.nextafter(threshold, np.inf), np.nextafter(threshold, -np.inf)]
        X[:, column] = random_rows.choice(np.concatenate(values), n)
    with np.errstate(over="ignore"):
        return X.astype(rng.choice([np.float32, np.float64]))


#: The model that documents are read for.
_TWELVE = Forest(
    n_features=12,
    node_offsets=np.array([0, 1]),
    leaf_offsets=np.array([0, 2]),
    feature=np.zeros(1, np.int32),
    threshold=np.zeros(1),
    left=np.full(1, -1, np.int32),
    right=np.full(1, -2, np.int32),
    routing=np.zeros(1, np.uint8),
    leaf_value=np.zeros((2, 1)),
)


def check_documents(path: Path, rng: random.Random) -> bool:
    """Read documents; False where they are refused as they should be.

    Raises
    ------
    Finding
    """
    values = read_or_refused(path, lambda: read_all(path, 1))
    if values is None:
        return False
    if not same(values, expected(path.read_bytes())):
        raise Finding("values differ from those of a plain parser")
    return True


def read_all(path: Path, n_threads: int) -> np.ndarray:
    chunks = [chunk.values for chunk in open_documents(path, _TWELVE, format="svmlight", n_threads=n_threads)]
    return np.concatenate([np.zeros((0, _TWELVE.n_features)), *chunks])


def expected(data: bytes) -> np.ndarray:
    """The same values by Python's own float, and with LightGBM's words for missing values."""
    rows = []
    for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        words = line.partition(b"#")[0].split()
        if words:
            row = np.zeros(_TWELVE.n_features)
            for word in words:
                key, colon, value = word.partition(b":")
                if colon and key != b"qid":
                    row[int(key)] = np.nan if value.lower() in (b"na", b"null") else float(value)
            rows.append(row)
    return np.array(rows).reshape(-1, _TWELVE.n_features)


# -- the child: inputs by the thousand ----------------------------------------------------------


class Lines:
    """The lines of the readers that were ever reached."""

    def __init__(self) -> None:
        self.seen: set[tuple[Any, int]] = set()

    def trace(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        return self.line if any(place in frame.f_code.co_filename for place in READERS) else None

    def line(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
        self.seen.add((frame.f_code, frame.f_lineno))
        return self.line


def run(form: Format, folder: Path, findings: Path, seed: int, until: float, told: Any) -> None:
    """Try damaged inputs until the time is up; ``told`` is the array shared with the parent."""
    rng, lines = random.Random(seed), Lines()
    pool = list(form.seeds)
    longest = 2 * max(map(len, pool))
    check = check_documents if form.documents else check_model
    path = folder / "input"
    for data in form.seeds:  # whatever is imported or compiled at first use
        path.write_bytes(data)
        assert check(path, rng), "a seed is refused"
    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MOST_BYTES, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while time.time() < until:
        data = form.mutate(rng, rng.choice(pool[-200:] if rng.random() < 0.5 else pool), form.seeds)[:MAX_BYTES]
        path.unlink()  # a file that is still mapped stays as it is
        path.write_bytes(data)
        # Tracing slows Python down tenfold, and so long inputs would count as slow.
        traced, known = len(data) < longest and rng.randrange(TRACED) == 0, len(lines.seen)
        told[STARTED] = time.time()
        try:
            sys.settrace(lines.trace if traced else None)
            accepted = check(path, rng)
        except Exception as error:
            sys.settrace(None)
            keep(findings, name_of(error), data, error)
        else:
            told[ACCEPTED if accepted else REFUSED] += 1
        finally:
            sys.settrace(None)
            told[STARTED] = 0
            told[TRIED] += 1
        if len(lines.seen) > known:
            pool.append(data)


def name_of(error: Exception) -> str:
    """A finding by its kind and its place: of one name only the smallest is kept."""
    if isinstance(error, Finding):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if f"{os.sep}gpuqs{os.sep}" in frame.filename]
    return f"{type(error).__name__} {Path(own[-1].filename).name}:{own[-1].lineno}" if own else type(error).__name__


def keep(findings: Path, name: str, data: bytes, error: BaseException | None = None) -> None:
    stem = re.sub(r"[^\w.]+", "-", name)
    path = findings / f"{stem}.bin"
    if not path.exists() or path.stat().st_size > len(data):
        findings.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        (findings / f"{stem}.txt").write_text("".join(traceback.format_exception(error)) if error else name)


# -- the parent: time, crashes and hangs ---------------------------------------------------------


def fuzz(name: str, form: Format, seconds: float, seed: int) -> dict[str, Any]:
    """Run one format; children that crash or hang are followed by others."""
    findings = REPOSITORY / "build" / "fuzz" / re.sub(r"\W+", "-", name.lower())
    for old in findings.glob("*"):
        old.unlink()
    context = multiprocessing.get_context("spawn")
    told = context.Array("d", 4, lock=False)
    began = time.time()
    with tempfile.TemporaryDirectory() as folder:
        while time.time() < began + seconds:
            arguments = (form, Path(folder), findings, seed, began + seconds, told)
            child = context.Process(target=run, args=arguments)
            child.start()
            hung = False
            while child.is_alive():
                child.join(0.5)
                started = told[STARTED]
                if started and time.time() - started > HANG_SECONDS:
                    hung = True
                    child.kill()
                    child.join()
                    keep(findings, "hang", (Path(folder) / "input").read_bytes())
            if child.exitcode and child.exitcode > 0:
                raise SystemExit(f"{name}: the fuzzer itself failed")
            if child.exitcode and not hung:
                keep(findings, f"crash signal {-child.exitcode}", (Path(folder) / "input").read_bytes())
            told[STARTED] = 0
            seed += 1
    return {
        "format": name,
        "seconds": round(time.time() - began),
        "inputs": int(told[TRIED]),
        "accepted": int(told[ACCEPTED]),
        "refused": int(told[REFUSED]),
        "findings": sorted(path.stem for path in findings.glob("*.bin")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("format", nargs="*", help="the formats to run; all by default")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each format")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    known = formats()
    for name in options.format:
        if name not in known:
            parser.error(f"{name!r} is none of {', '.join(known)}")
    packages = ("numpy", "lightgbm", "xgboost", "catboost", "treelite", "onnx", "skl2onnx")
    versions = [f"{name} {import_module(name).__version__}" for name in packages]
    print(f"{date.today()}; gpuqs {gpuqs.__version__}, {', '.join(versions)}; Python {sys.version.split()[0]}\n")
    print("| format | seconds | inputs | accepted | refused | findings |\n|---|---|---|---|---|---|")
    for name in options.format or known:
        row = fuzz(name, known[name], options.seconds, options.seed)
        cells = (*(f"{row[key]:,}" for key in ("seconds", "inputs", "accepted", "refused")), len(row["findings"]))
        print(f"| {name} | {' | '.join(map(str, cells))} |", flush=True)
        for finding in row["findings"]:
            print(f"{name}: {finding}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
