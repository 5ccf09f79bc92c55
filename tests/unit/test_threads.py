"""How many threads are used, and what happens if none can be started, or when the process ends."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from forests import probing_documents, random_forest
from threadpoolctl import threadpool_info, threadpool_limits

from gpuqs.cpu_fallback import default_threads, effective_threads, processors
from gpuqs.cpu_fallback.scorer import max_threads
from gpuqs.engines import ENGINES
from gpuqs.model import Model

HERE = Path(__file__).parent
KERNELS = HERE.parents[1] / "cpu_fallback"
MODEL = Model(random_forest(np.random.default_rng(0), n_trees=30, n_thresholds=100))
X = probing_documents(np.random.default_rng(1), MODEL.forest, 4000)
EXPECTED = MODEL.predict(X, "raw", engine="reference")


@pytest.fixture
def four_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(processors, "max_threads", lambda: 16)
    monkeypatch.setattr(processors, "_processors", lambda: 4)
    monkeypatch.setattr(processors, "_quota", lambda: 16)


# -- how many ---------------------------------------------------------------------------------


@pytest.mark.usefixtures("four_processors")
@pytest.mark.parametrize(
    ("asked", "got"),
    [(None, 4), (-1, 4), (-2, 3), (-9, 1), (1, 1), (7, 7), (np.int64(5), 5), (17, 16), (10**30, 16)],
)
def test_what_numbers_of_threads_mean(asked: int | None, got: int) -> None:
    assert effective_threads(asked) == got


@pytest.mark.parametrize(
    ("asked", "error", "problem"),
    [(0, ValueError, "not be 0"), (1.5, TypeError, "not 1.5"), ("2", TypeError, "not '2'")],
)
@pytest.mark.parametrize("n", [0, 200])
def test_what_is_no_number_of_threads(asked: object, error: type[Exception], problem: str, n: int) -> None:
    with pytest.raises(error, match=f"n_threads must .*{problem}"):
        MODEL.predict(X[:n], n_threads=asked)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells how many threads there are")
def test_no_call_starts_more_threads_than_a_few_for_each_processor() -> None:
    assert 4 <= max_threads() <= 4 * (os.cpu_count() or 1)
    before = len(os.listdir("/proc/self/task"))
    for asked in (100_000, 2**31):
        np.testing.assert_array_equal(MODEL.predict(X, "raw", engine="walk", n_threads=asked), EXPECTED)
    assert len(os.listdir("/proc/self/task")) - before < max_threads()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells how many threads there are")
def test_threads_are_kept_and_no_more_started_than_calls_ask_for() -> None:
    script = (
        "import os, numpy as np; from test_threads import MODEL, X\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "for _ in range(200): MODEL.predict(X, n_threads=2)\n"
        "print(len(os.listdir('/proc/self/task')) - before)\n"
    )
    assert run(script).stdout == "1\n"


@pytest.mark.parametrize("together", [1, 3, 32])
def test_threads_leave_no_document_out(together: int) -> None:
    """Of one block or many, of superblocks that several blocks pass together or each by itself."""
    forest, engine = MODEL.forest, ENGINES["bitslice"]
    params = {"max_nodes": 100, "one_superblock": 0, "word": 128, "together": together}
    program = engine.prepare(forest, "exact", params=params)
    assert forest.n_nodes > 200  # hence several superblocks
    for n in (0, 1, 127, 128, 129, 511, 1025, 1664, 2500, 4000):
        for n_threads in range(1, 8):
            sums = np.full((n, 1), np.nan)
            engine.score(program, X[:n], sums, n_threads)
            assert sums[:, 0].tobytes() == EXPECTED[:n].tobytes(), (n, n_threads)


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells how many threads there are")
def test_threads_of_plain_calls() -> None:
    script = (
        "import os, numpy as np; from test_threads import MODEL, X\n"
        "many = np.tile(X, (60, 1)); before = len(os.listdir('/proc/self/task'))\n"
        "for words in ({'X': X}, {'X': many, 'n_threads': 1}, {'X': many, 'n_threads': 2}, {'X': many}):\n"
        "    MODEL.predict(**words); print(len(os.listdir('/proc/self/task')) - before)\n"
    )
    assert run(f"import os; os.environ['OMP_NUM_THREADS'] = '3'\n{script}").stdout == "0\n0\n1\n2\n"


@pytest.mark.usefixtures("four_processors")
def test_the_environment_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = (("2", 2), (" 3,1", 3), ("9", 9), ("99", 16), ("9" * 5000, 16), ("0", 4), ("-1", 4), ("many", 4), ("", 4))
    for text, got in texts:
        monkeypatch.setenv("OMP_NUM_THREADS", text)
        assert (default_threads(), effective_threads(None), effective_threads(6)) == (got, got, 6)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_the_affinity_says_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert default_threads() == 1
    finally:
        os.sched_setaffinity(0, before)


def test_a_sandbox_may_forbid_to_ask_for_the_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(process: int) -> set[int]:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", refuse, raising=False)
    monkeypatch.setattr(processors, "_quota", lambda: 999)
    assert default_threads() == os.cpu_count()


def test_names_of_control_groups_may_be_any_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors.Path, "read_bytes", lambda path: b"0::/a\xff\x0b\xe9\n")
    seen: list[list[str]] = []
    monkeypatch.setattr(processors, "read_quota", lambda groups, root: seen.append(groups) or 5)
    assert processors._quota.__wrapped__() == 5
    assert [os.fsencode(line) for line in seen[0]] == [b"0::/a\xff\x0b\xe9", b""]


@pytest.mark.usefixtures("four_processors")
@pytest.mark.parametrize(
    ("groups", "files", "got"),
    [
        (["0::/"], {"cpu.max": "max 100000"}, 16),
        (["0::/"], {"cpu.max": "250000 100000"}, 3),
        (["0::/user/job"], {"cpu.max": "7000 1000", "user/cpu.max": "1500 1000", "user/job/cpu.max": "max 1000"}, 2),
        (["0::/elsewhere"], {"cpu.max": "50000 100000"}, 1),
        (["3:memory:/", "2:cpu,x:/a"], {"cpu,x/a/cpu.cfs_quota_us": "4000", "cpu,x/a/cpu.cfs_period_us": "1000"}, 4),
        (["1:cpu:/", "0::/"], {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 16),
        (["0::/a"], {"a/cpu.max": "damaged"}, 16),
        (["0::/a"], {"a/cpu.max": "1 0"}, 16),
        (["0::/a", "b", "", "0::/a\udcff"], {"a/cpu.max": "3 1"}, 3),
        ([], {}, 16),
    ],
)  # fmt: skip
def test_quotas_of_control_groups(groups: list[str], files: dict[str, str], got: int, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    assert processors.read_quota(groups, tmp_path) == got


@pytest.mark.usefixtures("four_processors")
def test_quotas_and_processors_limit_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "_quota", lambda: 3)
    assert default_threads() == 3
    monkeypatch.setattr(processors, "_processors", lambda: 2)
    assert default_threads() == 2


@pytest.mark.usefixtures("four_processors")
def test_threadpoolctl_limits_the_calling_thread() -> None:
    (told,) = [library for library in threadpool_info() if library["internal_api"] == "gpuqs"]
    assert told["num_threads"] == 4
    elsewhere: list[int] = []
    with threadpool_limits(2), threadpool_limits(1, user_api="openmp"):
        assert (default_threads(), effective_threads(-1), effective_threads(3)) == (1, 1, 3)
        other = threading.Thread(target=lambda: elsewhere.append(default_threads()))
        other.start()
        other.join()
    assert elsewhere == [4]  # other threads keep their limit, as with OpenMP runtimes
    with threadpool_limits(1, user_api="blas"):
        assert default_threads() == 4
    with threadpool_limits(50):
        assert default_threads() == 4


@pytest.mark.skipif(sys.platform != "linux", reason="threads are counted in /proc")
def test_all_modules_share_one_set_of_threads() -> None:
    code = """
import os
import numpy as np
from gpuqs.cpu_fallback import file_bytes, making, scorer
threads = lambda: len(os.listdir("/proc/self/task"))
before = threads()
file_bytes.crc32(bytes(9 << 20))
assert threads() == before + 4, threads()
offsets = np.arange((1 << 18) + 2)
leaves = np.zeros((len(offsets) - 1, 1))
making.put_in_order(offsets, np.zeros(len(leaves), np.int32), leaves, leaves.copy())
assert threads() == before + 4, threads()
"""
    environment = os.environ | {"OMP_NUM_THREADS": "5", "OPENBLAS_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", code], check=True, env=environment)


# -- faults and ends --------------------------------------------------------------------------


def run(script: str, **limits: int) -> subprocess.CompletedProcess[str]:
    """Run a script in a separate process under system resource limits."""

    def limit() -> None:
        for name, n in limits.items():
            resource.setrlimit(getattr(resource, name), (n, resource.getrlimit(getattr(resource, name))[1]))

    return subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)])},
        preexec_fn=limit,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="the size of stacks is limited as Linux does it")
def test_where_no_thread_can_be_started_the_caller_does_the_work(tmp_path: Path) -> None:
    """Threads cannot start because their stacks exceed the memory limit."""
    (tmp_path / "documents.svm").write_text("".join(f"{i} 0:{i} 1:2.5\n" for i in range(2000)))
    script = (
        "import threading, numpy as np\n"
        "try:\n    threading.Thread(target=print).start()\n"
        "except RuntimeError:\n    print('none')\n"
        "from test_threads import EXPECTED, MODEL, X\n"
        "for n in (5, len(X)):\n"
        "    for engine in ('bitslice', 'rankwalk', 'walk'):\n"
        "        got = MODEL.predict(X[:n], 'raw', engine=engine, n_threads=4)\n"
        "        assert got.tobytes() == EXPECTED[:n].tobytes()\n"
        "from gpuqs.readers import open_documents\n"
        "import gpuqs.readers.svmlight as svmlight\n"
        "svmlight._BLOCK_BYTES = 1000\n"
        f"chunks = open_documents({str(tmp_path / 'documents.svm')!r}, MODEL.forest, n_threads=4)\n"
        "assert np.concatenate([c.labels for c in chunks]).tolist() == list(range(2000))\n"
        "print('scored')\n"
    )
    assert run(script, RLIMIT_STACK=64 << 30, RLIMIT_AS=32 << 30).stdout == "none\nscored\n"


def test_a_process_ends_while_threads_score() -> None:
    script = (
        "import threading, time; from test_threads import MODEL, X\n"
        "def keep_scoring():\n"
        "    while True: MODEL.predict(X, n_threads=3)\n"
        "for _ in range(3): threading.Thread(target=keep_scoring, daemon=True).start()\n"
        "time.sleep(0.05)\n"
        "print('ended')\n"
    )
    for _ in range(3):
        done = run(script)
        assert (done.stdout, done.stderr) == ("ended\n", "")


def test_threads_under_threadsanitizer(tmp_path: Path) -> None:
    """Concurrent callers, failing pieces, stuck helpers: no race, every piece runs once, each failure is reported."""
    program = tmp_path / "stress"
    sources = [HERE / "stress_threads.cpp", *(KERNELS / "driver" / name for name in ("threads.cpp", "scratch.cpp"))]
    flags = ["-std=c++17", "-O1", "-g1", "-fsanitize=thread", "-pthread", f"-I{KERNELS}", "-o", str(program)]
    subprocess.run([os.environ.get("CXX", "g++"), *flags, *map(str, sources)], check=True, timeout=300)
    # ThreadSanitizer needs fixed addresses, so address randomization is disabled.
    fixed = ["setarch", platform.machine(), "-R"] if shutil.which("setarch") else []
    done = subprocess.run([*fixed, str(program)], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout, done.stderr) == (0, "finished\n", "")
