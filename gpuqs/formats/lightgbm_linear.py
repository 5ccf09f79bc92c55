"""Linear models in the leaves of LightGBM's trees (``linear_tree=True``)."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpuqs.errors import ModelFormatError
from gpuqs.formats.growing import offsets
from gpuqs.formats.lightgbm_text import needed, numbers

#: What LightGBM reads as a number other than 0.
_NOT_ZERO: Final = re.compile(rb"\s*[+-]?0*[1-9]")

_INT32_MAX: Final = 2**31 - 1


class LinearLeaves:
    """The linear models of trees, as they are read; of trees without any, nothing is kept."""

    def __init__(self) -> None:
        #: By tree: number of terms of each leaf, their features and coefficients.
        self._terms: dict[int, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}

    def add(self, fields: dict[bytes, bytes], n_leaves: int, tree: int) -> None:
        """Read the models of a tree, if its fields say that it has any."""
        if _NOT_ZERO.match(fields.get(b"is_linear", b"")):
            self._terms[tree] = _terms_of(fields, n_leaves, tree)

    def arrays(self, leaf_offsets: npt.NDArray[np.int64], n_features: int) -> dict[str, Any]:
        """The arrays of a Forest's linear models; none, where no tree has any."""
        if not self._terms:
            return {}
        n_terms = np.zeros(leaf_offsets[-1], np.int64)
        for tree, (of_leaves, feature, _) in self._terms.items():
            if feature.max() >= n_features:
                raise ModelFormatError(f"feature is not in [0, {n_features})", tree=tree, field="leaf_features")
            n_terms[leaf_offsets[tree] : leaf_offsets[tree + 1]] = of_leaves
        features, coefficients = (np.concatenate([terms[at] for terms in self._terms.values()]) for at in (1, 2))
        return {
            "linear_offsets": offsets(n_terms),
            "linear_feature": features.astype(np.int32),
            "linear_coefficient": coefficients,
        }


def _terms_of(
    fields: dict[bytes, bytes], n_leaves: int, tree: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """A tree's linear models: each leaf's number of terms; features and coefficients of all, the constants first."""
    constant = numbers(needed(fields, "leaf_const", tree), n_leaves, np.float64, "leaf_const", tree)
    sizes = numbers(needed(fields, "num_features", tree), n_leaves, np.int64, "num_features", tree)
    if (sizes < 0).any():
        raise ModelFormatError("is negative", tree=tree, field="num_features")
    texts = {name: needed(fields, name, tree) for name in ("leaf_features", "leaf_coeff")}
    if sizes.max() > len(texts["leaf_features"]):  # of which the sum might overflow
        raise ModelFormatError("names more features than there are", tree=tree, field="num_features")
    of_leaf = np.repeat(np.arange(n_leaves), sizes)
    feature = numbers(texts["leaf_features"], len(of_leaf), np.int64, "leaf_features", tree)
    if len(feature) and not 0 <= feature.min() <= feature.max() <= _INT32_MAX:
        raise ModelFormatError("is outside int32", tree=tree, field="leaf_features")
    coefficient = numbers(texts["leaf_coeff"], len(of_leaf), np.float64, "leaf_coeff", tree)
    starts = offsets(sizes)[:-1]
    return sizes + 1, np.insert(feature, starts, -1), np.insert(coefficient, starts, constant)
