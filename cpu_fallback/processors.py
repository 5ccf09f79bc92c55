"""How many threads a call gets: as scikit-learn counts them, and never more than a few for each processor."""

from __future__ import annotations

import math
import operator
import os
import threading
from functools import cache
from pathlib import Path

from gpuqs.cpu_fallback.scorer import max_threads

#: Upper limit of the threads that read a model or lay it out.
MAX_LOADING = 8
_CGROUPS = Path("/sys/fs/cgroup")


class _Limit(threading.local):
    """The limit that threadpoolctl set in this thread, as OpenMP's runtimes keep it; None: none."""

    n: int | None = None


_limit = _Limit()


def effective_threads(n_threads: int | None) -> int:
    """Threads that ``n_threads`` stands for.

    Parameters
    ----------
    n_threads : int, optional
        None or -1: `default_threads`; -2: one less, and so on, as joblib's ``n_jobs``. At most four for each
        processor of the machine; larger numbers mean these, as more threads would only wait for one another.

    Raises
    ------
    TypeError
        It is not an integer.
    ValueError
        It is 0.
    """
    if n_threads is None:
        return default_threads()
    try:
        n_threads = operator.index(n_threads)
    except TypeError:
        raise TypeError(f"n_threads must be an integer or None, not {n_threads!r}") from None
    if n_threads == 0:
        raise ValueError("n_threads must not be 0; say how many, or -1 for all processors")
    if n_threads < 0:
        return max(1, default_threads() + 1 + n_threads)
    return min(n_threads, max_threads())


def default_threads() -> int:
    """Threads of a call that does not ask for a number.

    The value of ``OMP_NUM_THREADS``, else the number of processors that this process may run on, limited by the
    quotas of its control groups; and no more than ``threadpoolctl`` allows the calling thread.
    """
    allowed = _allowed_threads()
    return min(allowed, _limit.n or allowed)


def loading_threads() -> int:
    """Threads that read a model and lay it out: they wait for memory, and more of them would not be faster."""
    return min(default_threads(), MAX_LOADING)


def _allowed_threads() -> int:
    asked = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()  # the outermost of nested regions
    # int() refuses strings of thousands of digits; nine digits exceed any number of threads.
    if asked.isdecimal() and (n := int(asked.lstrip("0")[:9] or 0)):
        return min(n, max_threads())
    return min(_processors(), _quota())


def _processors() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # the system lacks this call, or a sandbox forbids it
        return os.cpu_count() or 1


@cache
def _quota() -> int:
    """The CPU time that this process's control groups allow it, in processors, rounded up."""
    try:
        groups = os.fsdecode(Path("/proc/self/cgroup").read_bytes()).split("\n")
    except OSError:
        return max_threads()
    return read_quota(groups, _CGROUPS)


def read_quota(groups: list[str], root: Path) -> int:
    """The smallest quota of a process's control groups and their ancestors.

    Parameters
    ----------
    groups : list of str
        Lines of ``/proc/self/cgroup``: number, controllers (none: version 2), path.
    root : Path
        Where control groups are mounted.
    """
    least = max_threads()
    for line in groups:
        if line.count(":") < 2:  # the end, or the rest of a name with a line break
            continue
        _, controllers, group = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        top = root / controllers if controllers else root
        # A container sees its own group at the top, whatever its path on the host is.
        at = Path(group.lstrip("/"))
        for place in (at, *at.parents):
            least = min(least, _quota_of(top / place))
    return least


def _quota_of(group: Path) -> int:
    for files in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
        try:
            quota, period = b" ".join((group / name).read_bytes() for name in files).split()
            if quota != b"max" and int(quota) > 0:
                return math.ceil(int(quota) / int(period))
        except (OSError, ValueError, ZeroDivisionError):
            continue
    return max_threads()


def _obey_threadpoolctl() -> None:
    """Have ``threadpoolctl.threadpool_limits`` limit this library as it limits OpenMP's."""
    try:
        from threadpoolctl import LibController, register
    except ImportError:
        return

    class Controller(LibController):
        user_api = "openmp"
        internal_api = "gpuqs"
        filename_prefixes = ("scorer",)
        check_symbols = ("gpuqs_most_threads",)

        def get_num_threads(self) -> int:
            return default_threads()

        def set_num_threads(self, num_threads: int) -> None:
            # A caller that restores the earlier number sets no limit.
            _limit.n = num_threads if num_threads < _allowed_threads() else None

        def get_version(self) -> None:
            return None

    register(Controller)


_obey_threadpoolctl()
