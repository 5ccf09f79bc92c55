"""Record a call's launches, so that they can be repeated for other documents by changing only addresses.

    while a call is recorded: note each launch, and each array that is allocated
    foreach argument of each launch:
        an array in the documents, the answer or allocated memory: note which of these, and the offset in it
        anything else (numbers, the model's arrays): note it as it is
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import numpy as np

from gpuqs.devices.extents import reach

#: Memory whose address changes from call to call: the documents, the answer, and the scratch memory (one piece).
DOCUMENTS, OUT, SCRATCH = range(3)
#: Alignment in bytes of arrays in the scratch memory, the same as that of memory which devices allocate.
ALIGNED = 512


class Moving(NamedTuple):
    """An array argument whose address changes from call to call: the memory it lies in, and its byte offset there."""

    within: int
    offset: int
    dtype: np.dtype[Any]


class Launch(NamedTuple):
    """A launch; ``arguments`` are NumPy scalars, arrays that stay where they are, and `Moving` ones."""

    kernel: Any
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_mem: int
    arguments: tuple[Any, ...]


class Recording:
    """The launches of a call that is under way, and the arrays that it allocates.

    Parameters
    ----------
    documents, out
        Arrays of the device that share no memory.
    address : callable
        Returns the address at which an array of the device begins.
    max_bytes : int
        Upper limit of the total size of allocated arrays; a call that allocates more is not recorded.

    Attributes
    ----------
    launches : list of Launch
    scratch_bytes : int
    whole : bool
        Whether everything was recorded.
    """

    def __init__(self, documents: Any, out: Any, address: Callable[[Any], int], max_bytes: int) -> None:
        self._address, self._most_bytes = address, max_bytes
        self.launches: list[Launch] = []
        # Documents last: other arrays may lie between their rows.
        self._memory = [(OUT, address(out), *reach(out)), (DOCUMENTS, address(documents), *reach(documents))]
        self._made: list[Any] = []  # kept alive, or a later array might get an earlier one's memory
        self.scratch_bytes, self.whole = 0, True

    def made(self, array: Any) -> None:
        """``array`` was allocated."""
        self.whole = self.whole and self.scratch_bytes + array.nbytes <= self._most_bytes
        if not self.whole:
            self._made.clear()
            self.launches.clear()
            return
        self._made.append(array)
        begin = self._address(array) - self.scratch_bytes
        self._memory.insert(0, (SCRATCH, begin, self.scratch_bytes, self.scratch_bytes + array.nbytes))
        self.scratch_bytes += -(-array.nbytes // ALIGNED) * ALIGNED

    def launched(
        self, kernel: Any, grid: tuple[int, ...], block: tuple[int, ...], arguments: tuple[Any, ...], shared_mem: int
    ) -> None:
        """A kernel was launched."""
        if self.whole:
            self.launches.append(Launch(kernel, grid, block, shared_mem, tuple(map(self._placed, arguments))))

    def _placed(self, argument: Any) -> Any:
        if isinstance(argument, np.generic):
            return argument
        address = self._address(argument)
        for within, begin, low, high in self._memory:
            if low <= address - begin < high:
                return Moving(within, address - begin, argument.dtype)
        return argument


class Recorder(threading.local):
    """The recording that is under way in this thread, if any."""

    recording: Recording | None = None

    def record(self, recording: Recording, fill: Callable[[Any, Any], None], documents: Any, out: Any) -> None:
        """Run ``fill(documents, out)``, and note what it launches."""
        with self._instead(recording):
            fill(documents, out)

    def paused(self) -> AbstractContextManager[None]:
        """Record nothing inside: the work is another call's, made by a signal handler or a garbage-collected object."""
        return self._instead(None)

    @contextmanager
    def _instead(self, recording: Recording | None) -> Iterator[None]:
        before, self.recording = self.recording, recording
        try:
            yield
        finally:
            self.recording = before
