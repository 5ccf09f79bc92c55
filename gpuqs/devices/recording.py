"""What a call launched, so that it can be launched again for other documents: with nothing but new addresses to say.

    while a call is recorded: note each launch, and each array that is made
    foreach argument of each launch:
        an array in the documents, the answer, or memory that was made: which of these, and how far into it
        anything else (numbers, the model's arrays): as it is
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import numpy as np

from gpuqs.devices.extents import reach

#: What moves from call to call: the documents, the answer, and the scratch memory, which is one piece.
DOCUMENTS, OUT, SCRATCH = range(3)
#: Arrays in the scratch memory begin at multiples of so many bytes, as memory does that devices allocate.
ALIGNED = 512


class Moving(NamedTuple):
    """An array of a launch that lies elsewhere in each call: in which memory, and how many bytes behind its begin."""

    within: int
    offset: int
    dtype: np.dtype[Any]


class Launch(NamedTuple):
    """A launch; ``arguments`` are numbers of NumPy's, arrays that stay where they are, and `Moving` ones."""

    kernel: Any
    grid: tuple[int, ...]
    block: tuple[int, ...]
    shared_mem: int
    arguments: tuple[Any, ...]


class Recording:
    """The launches of a call that is under way, and the arrays that it makes.

    Parameters
    ----------
    documents, out
        Arrays of the device, that share no memory.
    address : callable
        Gives where an array of the device begins.
    most_bytes : int
        Of the arrays that are made, together: a call that makes more of them, one after the other, is not recorded.

    Attributes
    ----------
    launches : list of Launch
    scratch_bytes : int
    whole : bool
        Whether all was recorded.
    """

    def __init__(self, documents: Any, out: Any, address: Callable[[Any], int], most_bytes: int) -> None:
        self._address, self._most_bytes = address, most_bytes
        self.launches: list[Launch] = []
        # Documents last: what lies between their rows is not theirs.
        self._memory = [(OUT, address(out), *reach(out)), (DOCUMENTS, address(documents), *reach(documents))]
        self._made: list[Any] = []  # kept, or memory of one might come again as another's
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
    """The recording that is under way in this thread, if one is."""

    recording: Recording | None = None

    def record(self, recording: Recording, fill: Callable[[Any, Any], None], documents: Any, out: Any) -> None:
        """Run ``fill(documents, out)``, and note what it launches."""
        with self._instead(recording):
            fill(documents, out)

    def paused(self) -> AbstractContextManager[None]:
        """Record nothing inside: it is another call's, of a signal's handler or of what is collected."""
        return self._instead(None)

    @contextmanager
    def _instead(self, recording: Recording | None) -> Iterator[None]:
        before, self.recording = self.recording, recording
        try:
            yield
        finally:
            self.recording = before
