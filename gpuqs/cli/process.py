"""The command as a process: its signals and its standard streams."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Final, TextIO

from gpuqs.cli.clashes import spare_arguments
from gpuqs.streams import NamedOutput

STDOUT: Final = "standard output"
STDERR: Final = "standard error"

#: Signals that ask a process to end; they raise an exception, so that it removes its temporary files.
_NAMES: Final = ("SIGINT", "SIGTERM", "SIGHUP", "SIGALRM")
_STOPPING: Final = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
#: Seconds after a signal in which others count as the same, so that they do not interrupt the clean-up.
_GRACE: Final = 1.0
#: Seconds between repeats of a signal. It may come after Python has checked for signals and before it blocks in a
#: system call, and its exception may be swallowed; a repeat ends the call, and makes Python check again.
_REPEAT: Final = 0.5


class StoppedError(BaseException):
    """A signal asked the process to end."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class _Stop:
    """The signal that asked the process to end, kept in case interrupted code swallows the handler's exception."""

    def __init__(self) -> None:
        self.number: int | None = None
        self.ending = self.held = self.too_late = False
        self._repeating = False
        self._last = -_GRACE

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.too_late:
            os._exit(0)
        self.number = self.number or number
        if self.held:
            return
        repeating, self._repeating = self._repeating, False
        now = time.monotonic()
        if self.ending:
            if not repeating:  # nothing is left to clean up, and nobody to catch an exception
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
        # A repeat does not interrupt code that handles the exception: it is cleaning up.
        elif stopped_within(sys.exc_info()[1]) is None if repeating else now - self._last >= _GRACE:
            self._last = now
            raise StoppedError(self.number)

    def watch(self, signals: list[int]) -> None:
        """Start a thread that repeats the first of these signals to the main thread until the process ends."""
        came, told = os.pipe()
        os.set_blocking(told, False)

        def repeat() -> None:
            while (number := os.read(came, 1)[0]) not in signals:
                pass
            while not self.ending:
                time.sleep(_REPEAT)
                if not self.ending:
                    self._repeating = True
                    signal.pthread_kill(main, number)

        main = threading.get_ident()
        threading.Thread(target=repeat, daemon=True).start()
        # Python writes a signal's number there at once, even while the main thread is in a system call.
        signal.set_wakeup_fd(told, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))  # a child's signals are its own

    def unraisable(self, lost: sys.UnraisableHookArgs) -> None:
        """Python's hook for exceptions that cannot propagate, such as in a weak reference's callback."""
        if isinstance(lost.exc_value, StoppedError):
            self._last = -_GRACE  # the next signal is no repeat
        else:
            sys.__unraisablehook__(lost)


_stop = _Stop()


def raise_if_stopped() -> None:
    """Raise `StoppedError` if a signal's own was swallowed; long work calls this between its steps."""
    if _stop.number is not None and not _stop.too_late:
        raise StoppedError(_stop.number)


def hold_signals() -> None:
    """Hold signals back while a file is put in place, until `stop_no_more`, or `release_signals` after an error."""
    _stop.held = True


def release_signals() -> None:
    """Hold signals back no longer: there was an error."""
    _stop.held = False


def stop_no_more() -> None:
    """From now on signals end the process with status 0: its files are in place."""
    _stop.too_late = True
    if _stop.number is not None and _stop.held:
        os._exit(0)


def stopped_within(error: BaseException | None) -> StoppedError | None:
    """The `StoppedError` that an exception comes from, if any: interrupted code may have wrapped it."""
    while error is not None and not isinstance(error, StoppedError):
        error = error.__cause__ or error.__context__
    return error


def as_process(command: Callable[[], None]) -> None:
    """Run a command in which signals that end a process raise `StoppedError`; after it, end the process by the signal.

    Not a context manager: if a signal came while one is being left, nobody would catch the exception.
    """
    # Ignored signals (SIGHUP under nohup) stay ignored.
    handled = [number for number in _STOPPING if signal.getsignal(number) not in (signal.SIG_IGN, None)]
    try:
        for number in handled:
            signal.signal(number, _stop.handle)
        sys.unraisablehook = _stop.unraisable
        _open_closed_ones()
        if hasattr(signal, "pthread_kill"):
            with suppress(OSError, RuntimeError, MemoryError):  # the process may be allowed no more files or threads
                _stop.watch(handled)
        _name_streams()
        _forget_odd_sizes()
        try:
            command()
        finally:
            _stop.ending = True
            raise_if_stopped()
    except StoppedError as stopped:
        _stop.ending = True
        if sys.stderr is not None:
            spare_arguments()
            with suppress(OSError):
                print(f"Error: stopped by {stopped}", file=sys.stderr, flush=True)
        end_by(stopped.number)
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_IGN if _stop.too_late else signal.SIG_DFL)
        _drop_output()


def end_by(number: int) -> None:
    """End the process by a signal, as whoever started it expects (a shell shows 128 + number)."""
    _drop_output()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    sys.exit(128 + number)  # the first process of a container outlives its signals


def _open_closed_ones() -> None:
    """Open something on closed standard descriptors, so that no file that is opened later becomes one of them."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            # Writing to a descriptor open for reading fails like writing to a closed one.
            os.open(os.devnull, os.O_RDONLY if descriptor < 2 else os.O_WRONLY)


def _name_streams() -> None:
    """Make standard output and error wait for their readers, name themselves in errors, and escape what their encoding
    lacks.
    """
    sys.stdout = _named(1, STDOUT, sys.stdout, line_buffering=os.isatty(1))
    if sys.stderr is not None:  # it was open
        sys.stderr = _named(2, STDERR, sys.stderr, line_buffering=True)


def _named(descriptor: int, name: str, old: TextIO | None, *, line_buffering: bool) -> io.TextIOWrapper:
    buffer = io.BufferedWriter(NamedOutput.of(name, descriptor))
    encoding = getattr(old, "encoding", "utf-8")
    return io.TextIOWrapper(buffer, encoding, "backslashreplace", line_buffering=line_buffering)


def _forget_odd_sizes() -> None:
    """Treat a terminal size of zero, or of millions, as unknown; rich would believe it."""
    for name in ("COLUMNS", "LINES"):
        size = os.environ.get(name, "")
        if len(size) > 5 or not size.strip("0"):
            os.environ.pop(name, None)


def _drop_output() -> None:
    """Leave nothing in standard output's buffer that the interpreter would try to write once more at its end."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except (OSError, ValueError):
        sys.stdout.buffer.raw.close()  # type: ignore[union-attr]
