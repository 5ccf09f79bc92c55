"""Linear models in the leaves of LightGBM's trees (``linear_tree=True``)."""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpuqs.errors import ModelFormatError
from gpuqs.formats.fields import INT32_MAX
from gpuqs.formats.growing import GrowingArray, offsets
from gpuqs.formats.lightgbm_text import needed, numbers

#: What LightGBM reads as a number other than 0.
_NOT_ZERO: Final = re.compile(rb"\s*[+-]?0*[1-9]")


class LinearLeaves:
    """The linear models of trees, added as they are read; nothing is kept of trees without any."""

    def __init__(self) -> None:
        #: The trees that have any, the number of terms of each of their leaves, and all terms.
        self._trees, self._n_terms = GrowingArray(np.int64), GrowingArray(np.int64)
        self._feature, self._coefficient = GrowingArray(np.int32), GrowingArray(np.float64)

    def add(self, fields: dict[bytes, bytes], n_leaves: int, tree: int) -> None:
        """Read the models of a tree, if its fields say that it has any."""
        if _NOT_ZERO.match(fields.get(b"is_linear", b"")):
            self.extend([tree], *_terms_of(fields, n_leaves, tree))

    def extend(
        self, trees: npt.ArrayLike, n_terms: npt.ArrayLike, feature: npt.ArrayLike, coefficient: npt.ArrayLike
    ) -> None:
        """Add the models of some trees, which are read and checked already."""
        self._trees.extend(trees)
        self._n_terms.extend(n_terms)
        self._feature.extend(feature)
        self._coefficient.extend(coefficient)

    def arrays(self, leaf_offsets: npt.NDArray[np.int64], n_features: int) -> dict[str, Any]:
        """The arrays of a Forest's linear models; empty if no tree has any."""
        if not len(self._trees):
            return {}
        is_linear = np.zeros(len(leaf_offsets) - 1, bool)
        is_linear[self._trees.array()] = True
        n_terms = np.zeros(leaf_offsets[-1], np.int64)
        n_terms[np.repeat(is_linear, np.diff(leaf_offsets))] = self._n_terms.array()
        term_offsets, feature = offsets(n_terms), self._feature.array()
        if feature.max() >= n_features:
            leaf = np.searchsorted(term_offsets, np.argmax(feature >= n_features), "right") - 1
            tree = int(np.searchsorted(leaf_offsets, leaf, "right")) - 1
            raise ModelFormatError(f"feature is not in [0, {n_features})", tree=tree, field="leaf_features")
        return {
            "linear_offsets": term_offsets,
            "linear_feature": feature,
            "linear_coefficient": self._coefficient.array(),
        }


def _terms_of(
    fields: dict[bytes, bytes], n_leaves: int, tree: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """A tree's linear models: each leaf's number of terms; features and coefficients, each leaf's constant first."""
    constant = numbers(needed(fields, "leaf_const", tree), n_leaves, np.float64, "leaf_const", tree)
    sizes = numbers(needed(fields, "num_features", tree), n_leaves, np.int64, "num_features", tree)
    if (sizes < 0).any():
        raise ModelFormatError("is negative", tree=tree, field="num_features")
    texts = {name: needed(fields, name, tree) for name in ("leaf_features", "leaf_coeff")}
    if sizes.max() > len(texts["leaf_features"]):  # the sum might overflow
        raise ModelFormatError("names more features than there are", tree=tree, field="num_features")
    of_leaf = np.repeat(np.arange(n_leaves), sizes)
    feature = numbers(texts["leaf_features"], len(of_leaf), np.int64, "leaf_features", tree)
    if len(feature) and not 0 <= feature.min() <= feature.max() <= INT32_MAX:
        raise ModelFormatError("is outside int32", tree=tree, field="leaf_features")
    coefficient = numbers(texts["leaf_coeff"], len(of_leaf), np.float64, "leaf_coeff", tree)
    starts = offsets(sizes)[:-1]
    return sizes + 1, np.insert(feature, starts, -1), np.insert(coefficient, starts, constant)
