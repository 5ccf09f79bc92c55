"""Columns: the distinct ways in which a forest reads a document's features.

A column is a feature together with how its special values are read, so that engines meet one
kind of missing value only, NaN: where LightGBM counts zeros as missing, the same feature may
give two columns, one of which turns ``|x| <= 1e-35`` into NaN on loading. Features that no node
tests give no column.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpuqs.forest import CATEGORICAL, ZERO_MISSING, Forest


@dataclass(frozen=True)
class Columns:
    """The columns of a forest; C columns, N nodes.

    Parameters
    ----------
    feature : int32 [C]
        Feature that the column reads.
    zero_missing : uint8 [C]
        1 where values with ``|x| <= ZERO_THRESHOLD`` become NaN.
    of_node : int32 [N]
        Column that each node tests.
    """

    feature: npt.NDArray[np.int32]
    zero_missing: npt.NDArray[np.uint8]
    of_node: npt.NDArray[np.int32]

    def __len__(self) -> int:
        return len(self.feature)


def find_columns(forest: Forest) -> Columns:
    """The distinct (feature, zero is missing) pairs that the forest's numeric nodes test."""
    zero_missing = (forest.routing & (ZERO_MISSING | CATEGORICAL)) == ZERO_MISSING
    key = forest.feature.astype(np.int64) * 2 + zero_missing
    distinct, of_node = np.unique(key, return_inverse=True)
    return Columns(
        feature=(distinct // 2).astype(np.int32),
        zero_missing=(distinct % 2).astype(np.uint8),
        of_node=of_node.astype(np.int32),
    )


def round_down(threshold: npt.NDArray[np.float64]) -> npt.NDArray[np.float32]:
    """Largest float32 not above each float64: ``x <= t`` stays true or false for every float32 x."""
    with np.errstate(over="ignore"):
        nearest = threshold.astype(np.float32)
        above = nearest.astype(np.float64) > threshold
        nearest[above] = np.nextafter(nearest[above], np.float32(-np.inf))
    return nearest
