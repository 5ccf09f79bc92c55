"""Every reader against hostile input: damaged models and documents, each a clear error or the same scores twice.

    make fuzz SECONDS=60 FORMATS="'XGBoost JSON' ONNX"
    cd tests && python -m fuzz.campaign [FORMAT ...] --seconds 60

An input is *accepted* if it loads and two engines give the same scores, also after saving and loading it
again; it is *refused* if a `gpuqs.errors.GpuqsError` names it. Anything else is a *finding*, and its bytes
are kept: another exception, a warning, more than a second of processor time, more than 256 MB of memory
above the process's initial size, a crash, a hang. Inputs that reach lines of a reader for the first time
are kept and damaged further. Each format runs in a separate process; findings go to build/fuzz/FORMAT. The
seeds need the packages lightgbm, xgboost, catboost, scikit-learn, pandas, treelite and skl2onnx.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import re
import resource
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import date
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any

from fuzz.checks import Finding, check_documents, check_model
from fuzz.damage import MAX_BYTES
from fuzz.seeds import FORMATS, Format, format_of

import gpuqs

REPOSITORY = Path(__file__).parents[2]
READERS = (f"{os.sep}gpuqs{os.sep}formats{os.sep}", f"{os.sep}gpuqs{os.sep}readers{os.sep}")
MAX_SECONDS = 1.0
HANG_SECONDS = 20.0
MAX_ADDRESS_SPACE = 256 << 20
#: One input in `TRACED` is traced for the lines that it reaches.
TRACED = 4
#: Indices in the array that a child shares with its parent.
STARTED, TRIED, ACCEPTED, REFUSED = range(4)


# -- the child: inputs by the thousand ----------------------------------------------------------


class Lines:
    """All lines of the readers that were reached so far."""

    def __init__(self) -> None:
        self.seen: set[tuple[Any, int]] = set()

    def trace(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any] | None:
        return self.line if any(place in frame.f_code.co_filename for place in READERS) else None

    def line(self, frame: FrameType, event: str, arg: Any) -> Callable[..., Any]:
        self.seen.add((frame.f_code, frame.f_lineno))
        return self.line


def check(form: Format, path: Path, rng: random.Random) -> bool:
    if form.documents:
        return check_documents(path, max_seconds=MAX_SECONDS)
    return check_model(path, rng, every_engine=False, max_seconds=MAX_SECONDS)


def run(form: Format, folder: Path, findings: Path, seed: int, until: float, told: Any) -> None:
    """Try damaged inputs until the time is up; ``told`` is the array shared with the parent."""
    rng, lines = random.Random(seed), Lines()
    pool = list(form.seeds)
    longest = 2 * max(map(len, pool))
    path = folder / "input"
    for data in form.seeds:  # trigger imports and compilation on first use
        path.write_bytes(data)
        assert check(form, path, rng), "a seed is refused"
    with open("/proc/self/statm") as statm:
        used = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MAX_ADDRESS_SPACE, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    while time.time() < until:
        data = form.mutate(rng, rng.choice(pool[-200:] if rng.random() < 0.5 else pool), form.seeds)[:MAX_BYTES]
        path.unlink()  # a file that is still mapped stays as it is
        path.write_bytes(data)
        # Tracing slows Python down tenfold, so long inputs would count as slow.
        traced, known = len(data) < longest and rng.randrange(TRACED) == 0, len(lines.seen)
        told[STARTED] = time.time()
        try:
            sys.settrace(lines.trace if traced else None)
            accepted = check(form, path, rng)
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
    """Name of a finding, from its kind and place; only the smallest input of each name is kept."""
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
    """Run one format; start a new child after one crashes or hangs."""
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
    for name in options.format:
        if name not in FORMATS:
            parser.error(f"{name!r} is none of {', '.join(FORMATS)}")
    packages = ("numpy", "lightgbm", "xgboost", "catboost", "treelite", "onnx", "skl2onnx")
    versions = [f"{name} {import_module(name).__version__}" for name in packages]
    print(f"{date.today()}; gpuqs {gpuqs.__version__}, {', '.join(versions)}; Python {sys.version.split()[0]}\n")
    print("| format | seconds | inputs | accepted | refused | findings |\n|---|---|---|---|---|---|")
    found = False
    for name in options.format or FORMATS:
        row = fuzz(name, format_of(name), options.seconds, options.seed)
        found |= bool(row["findings"])
        cells = (*(f"{row[key]:,}" for key in ("seconds", "inputs", "accepted", "refused")), len(row["findings"]))
        print(f"| {name} | {' | '.join(map(str, cells))} |", flush=True)
        for finding in row["findings"]:
            print(f"{name}: {finding}", file=sys.stderr, flush=True)
    sys.exit(found)


if __name__ == "__main__":
    main()
