"""Arrays that grow tree by tree, so that a model's trees need not be held as objects until all are read."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt


class GrowingArray:
    """A one-dimensional array to whose end values are added; it grows where it lies as far as the system lets it.

    Parameters
    ----------
    dtype : dtype-like
        Values are cast to it as they are added: check them before.
    """

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self._bytes = bytearray()

    def __len__(self) -> int:
        return len(self._bytes) // self.dtype.itemsize

    def extend(self, values: npt.ArrayLike) -> None:
        """Add values, those of a matrix row by row."""
        self._bytes.extend(np.ascontiguousarray(values, self.dtype))  # takes the array's bytes, not its items

    def array(self) -> np.ndarray:
        """What was added, without a copy; nothing can be added from then on."""
        return np.frombuffer(self._bytes, self.dtype)


def offsets(sizes: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Where each of these begins, one after another, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
