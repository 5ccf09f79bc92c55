"""Arrays that grow tree by tree, so that a model's trees need not be held as objects until all are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import numpy.typing as npt


class GrowingArray:
    """A one-dimensional array that grows at its end, in place as far as the system allows.

    Parameters
    ----------
    dtype : dtype-like
        Values are cast to it when they are added: check them before.
    """

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self._bytes = bytearray()

    def __len__(self) -> int:
        return len(self._bytes) // self.dtype.itemsize

    def extend(self, values: npt.ArrayLike) -> None:
        """Add values; a matrix is added row by row."""
        self._bytes.extend(np.ascontiguousarray(values, self.dtype))  # takes the array's bytes, not its items

    def array(self) -> np.ndarray:
        """All that was added, without a copy; nothing can be added from then on."""
        return np.frombuffer(self._bytes, self.dtype)


def offsets(sizes: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Where parts of these sizes begin if they lie one after another, and where the last one ends."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])


class GrowingForest:
    """The arrays of a `Forest` over nodes and leaves, added many trees at a time and joined at the end.

    Attributes
    ----------
    n_words : int
        Words of all category sets.
    """

    _DTYPES: Final = {
        **dict.fromkeys(("feature", "left", "right", "leaf_id"), np.int32),
        **dict.fromkeys(("threshold", "leaf_value"), np.float64),
        **dict.fromkeys(("n_nodes", "n_leaves", "n_words"), np.int64),
        "routing": np.uint8,
        "category_words": np.uint32,
    }

    def __init__(self) -> None:
        self._parts: dict[str, list[np.ndarray]] = {name: [] for name in self._DTYPES}
        self.n_words = 0

    def extend(self, arrays: Mapping[str, npt.ArrayLike]) -> None:
        """Add trees: arrays as a Forest's, but sizes ``n_nodes``, ``n_leaves`` and ``n_words`` instead of offsets."""
        for name, dtype in self._DTYPES.items():
            self._parts[name].append(np.asarray(arrays[name], dtype))
        self.n_words += len(self._parts["category_words"][-1])

    def arrays(self) -> dict[str, np.ndarray]:
        """The Forest's arrays; nothing can be added from then on."""
        if not self._parts["leaf_value"]:
            self.extend(dict.fromkeys(self._DTYPES, np.zeros(0)) | {"leaf_value": np.zeros((0, 1))})
        arrays = {name: np.concatenate(self._parts.pop(name)) for name in self._DTYPES}
        for size, name in (("n_nodes", "node"), ("n_leaves", "leaf"), ("n_words", "category")):
            arrays[f"{name}_offsets"] = offsets(arrays.pop(size))
        return arrays
