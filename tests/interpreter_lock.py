"""Whether a call releases the interpreter lock."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

import pytest

HAS_LOCK = getattr(sys, "_is_gil_enabled", lambda: True)()
needs_the_lock = pytest.mark.skipif(not HAS_LOCK, reason="this Python has no lock, and no thread waits for it")


def lets_others_run(call: Callable[[], object], attempts: int = 20) -> bool:
    """Whether another thread runs during some call; with forced switching off, only a released lock lets it run."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(10)
    try:
        return any(_ran_meanwhile(call) for _ in range(attempts))
    finally:
        sys.setswitchinterval(interval)


def _ran_meanwhile(call: Callable[[], object]) -> bool:
    go, ran = threading.Event(), threading.Event()

    def other() -> None:
        go.wait()
        ran.set()

    thread = threading.Thread(target=other)
    thread.start()
    go.set()
    before = ran.is_set()
    call()
    after = ran.is_set()
    thread.join(20)
    return after and not before
