"""Arrays that grow tree by tree, so that a model's trees need not be held as objects until all are read."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt


class GrowingArray:
    """A one-dimensional array to whose end values are added.

    Parameters
    ----------
    dtype : dtype-like
        Values are cast to it as they are added: check them before.
    """

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self._room, self._length = np.empty(0, dtype), 0

    def __len__(self) -> int:
        return self._length

    def extend(self, values: npt.ArrayLike) -> None:
        """Add values, those of a matrix row by row."""
        added = np.asarray(values, self.dtype).reshape(-1)
        length = self._length + len(added)
        if length > len(self._room):
            room = np.empty(max(length, 2 * len(self._room)), self.dtype)
            room[: self._length] = self._room[: self._length]
            self._room = room
        self._room[self._length : length] = added
        self._length = length

    def array(self) -> np.ndarray:
        """All that was added, without a copy; nothing can be added from then on."""
        self._room.resize(self._length, refcheck=False)  # it shrinks where it lies
        return self._room


def offsets(sizes: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """The beginning of each, one after another, and the end of the last one."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])


class GrowingForest:
    """The arrays of a `Forest` over nodes and leaves, some trees at a time."""

    def __init__(self) -> None:
        self._width = 1
        self._grown = {
            **{name: GrowingArray(np.int32) for name in ("feature", "left", "right", "leaf_id")},
            **{name: GrowingArray(np.float64) for name in ("threshold", "leaf_value")},
            **{name: GrowingArray(np.int64) for name in ("n_nodes", "n_leaves", "n_words")},
            "routing": GrowingArray(np.uint8),
            "category_words": GrowingArray(np.uint32),
        }

    @property
    def n_words(self) -> int:
        """Words of all category sets."""
        return len(self._grown["category_words"])

    def extend(self, arrays: Mapping[str, npt.ArrayLike]) -> None:
        """Add trees: arrays as a Forest's, and in place of offsets ``n_nodes``, ``n_leaves`` and ``n_words``."""
        self._width = np.shape(arrays["leaf_value"])[1]
        for name, values in self._grown.items():
            values.extend(arrays[name])

    def arrays(self) -> dict[str, np.ndarray]:
        """The Forest's arrays; nothing can be added from then on."""
        arrays = {name: values.array() for name, values in self._grown.items()}
        arrays["leaf_value"] = arrays["leaf_value"].reshape(-1, self._width)
        for size, name in (("n_nodes", "node"), ("n_leaves", "leaf"), ("n_words", "category")):
            arrays[f"{name}_offsets"] = offsets(arrays.pop(size))
        return arrays
