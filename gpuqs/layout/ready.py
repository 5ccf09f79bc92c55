"""What a model's file may keep with its forest, because it takes longest to recompute: `Model.save(ready=True)`.

Files are untrusted, so everything is checked: each node's threshold is compared with that of its kept rank, which takes
a fraction of the time of sorting the thresholds. Arrays that are wrong, or of another forest, are computed again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from gpuqs.cpu_fallback import making
from gpuqs.forest import Forest
from gpuqs.layout.columns import Columns

#: Names and types of the arrays, which have one dimension. Arrays of another meaning would have other names.
ARRAYS: Final = {"ranks.threshold": "float64", "ranks.offsets": "int64", "ranks.of_node": "uint16"}

#: The arrays that came with each living forest.
_KEPT: WeakKeyDictionary[Forest, Mapping[str, np.ndarray]] = WeakKeyDictionary()


def keep(forest: Forest, arrays: Mapping[str, np.ndarray]) -> None:
    """Remember the arrays that came in a forest's file, if they are all there and of the types that `ARRAYS` states."""
    if all(name in arrays and arrays[name].dtype == ARRAYS[name] and arrays[name].ndim == 1 for name in ARRAYS):
        _KEPT[forest] = arrays


def kept(forest: Forest) -> Mapping[str, np.ndarray]:
    """The arrays that came with a forest, to `keep` them for another one of the same trees; empty if there are none."""
    return _KEPT.get(forest, {})


def kept_ranks(
    forest: Forest, columns: Columns
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64], npt.NDArray[np.int32]] | None:
    """``threshold``, ``offsets`` and ``of_node`` of `RankTables` (`gpuqs.layout.ranks`), if the kept ones are right."""
    if (arrays := _KEPT.get(forest)) is None:
        return None
    threshold, offsets, of_node = (arrays[name] for name in ARRAYS)
    ranks = threshold, offsets, of_node.astype(np.int32)
    return ranks if making.are_ranks(columns.threshold, columns.of_node, len(columns), *ranks) else None
