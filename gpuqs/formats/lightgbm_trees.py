"""The trees of LightGBM's text as a Forest's arrays."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpuqs.cpu_fallback import lightgbm_trees
from gpuqs.errors import ModelFormatError
from gpuqs.forest import CATEGORICAL, NAN_LEFT, NEGATIVE_FRACTION_IS_ZERO, ZERO_MISSING, ZERO_THRESHOLD
from gpuqs.formats.fields import INT32_MAX
from gpuqs.formats.growing import GrowingArray, offsets
from gpuqs.formats.lightgbm_linear import LinearLeaves
from gpuqs.formats.lightgbm_text import FieldNumbers, count, needed, numbers, tree_fields

#: Bits of a node's decision_type.
_CATEGORICAL_BIT: Final = 1
_DEFAULT_LEFT_BIT: Final = 2
#: The two bits above them are the node's missing type, one of these three.
_MISSING_SHIFT: Final = 2
_MISSING_NONE: Final = 0
_MISSING_ZERO: Final = 1
_MISSING_NAN: Final = 2
_LARGEST_DECISION_TYPE: Final = _CATEGORICAL_BIT | _DEFAULT_LEFT_BIT | _MISSING_NAN << _MISSING_SHIFT

#: Bytes of text that are read between two checks for signals.
_BYTES_AT_ONCE: Final = 1 << 20


class Trees:
    """What the trees' text holds, tree by tree."""

    def __init__(self) -> None:
        self.starts = GrowingArray(np.int64)
        self.n_leaves = GrowingArray(np.int64)
        int32 = -INT32_MAX, INT32_MAX, "is outside int32"
        largest = _LARGEST_DECISION_TYPE
        self.feature = FieldNumbers("split_feature", np.int32, *int32)
        self.threshold = FieldNumbers("threshold", np.float64)
        self.decision = FieldNumbers("decision_type", np.uint8, 0, largest, f"is not in [0, {largest}]")
        self.left = FieldNumbers("left_child", np.int32, *int32)
        self.right = FieldNumbers("right_child", np.int32, *int32)
        self.leaf_value = FieldNumbers("leaf_value", np.float64)
        self._fields = self.feature, self.threshold, self.decision, self.left, self.right, self.leaf_value
        #: Category sets: the number of sets of each tree, the number of words of each set, and all words.
        self.n_sets, self.set_size = GrowingArray(np.int64), GrowingArray(np.int64)
        self.words = GrowingArray(np.uint32)
        self.linear = LinearLeaves()

    def read(self, data: bytes, first: int, end: int, sized: bool) -> None:
        """Read every tree of ``data[first:end]``; ``sized`` if a line tree_sizes says where they lie."""
        at = first
        while at != -1:
            at = self._read_plain_trees(data, at, end)
            if at == -1:
                break
            following = data.find(b"\nTree=", at + 1, end)
            text = data[at + 1 : following if following != -1 else end]
            tree = len(self.n_leaves)
            if following != -1 and not text.endswith((b"\n", b"\r")):
                problem = "ends without a blank line, so LightGBM would skip the trees that follow; add one"
                raise ModelFormatError(problem, tree=tree)
            self.starts.extend([at])
            self._read_tree(tree_fields(text, tree, sized))
            at = following

    def _read_plain_trees(self, data: bytes, at: int, end: int) -> int:
        """Read trees that are written exactly as LightGBM writes them; return where the next one is, or -1.

        Others, including damaged ones, are left to `_read_tree`, which takes ten times as long.
        """
        while at != -1:
            arrays, following = lightgbm_trees.read(
                data, at, end, len(self.n_leaves), _BYTES_AT_ONCE, _LARGEST_DECISION_TYPE
            )
            n_trees = len(arrays["n_leaves"])
            if n_trees == 0:
                break
            self.starts.extend(arrays["starts"])
            for values in self._fields:
                values.extend(arrays[values.name], n_trees)
            for name in ("n_leaves", "n_sets", "set_size", "words"):
                getattr(self, name).extend(arrays[name])
            self.linear.extend(*(arrays[name] for name in ("linear", "n_terms", "term_feature", "coefficient")))
            at = following
        return at

    def _read_tree(self, fields: dict[bytes, bytes]) -> None:
        tree = len(self.n_leaves)
        if fields[b"Tree"].strip() != b"%d" % tree:
            number = fields[b"Tree"][:20].decode(errors="replace")
            raise ModelFormatError(
                f"is numbered {number!r}: the trees before it are missing or out of order; "
                "save or copy the model again",
                tree=tree,
                field="Tree",
            )
        if b"num_cat" not in fields and b"num_leaves" in fields:
            raise ModelFormatError(
                "is missing: the file is cut or from a LightGBM before 2.0.5, whose models today's "
                "LightGBM does not read either; train again and save with LightGBM 2.1 or later",
                tree=tree,
                field="num_cat",
            )
        n_leaves = count(fields, "num_leaves", 1, INT32_MAX, tree)
        n_sets = count(fields, "num_cat", 0, n_leaves - 1, tree)
        n_nodes = n_leaves - 1

        self.leaf_value.add(needed(fields, "leaf_value", tree), n_leaves)
        for values in (self.feature, self.threshold, self.left, self.right):
            # Trees of one leaf may lack the fields of nodes.
            values.add(needed(fields, values.name, tree) if n_nodes else b"", n_nodes)
        if n_nodes and b"decision_type" not in fields:
            fields[b"decision_type"] = b"0 " * n_nodes  # as in LightGBM
        self.decision.add(fields.get(b"decision_type", b""), n_nodes)
        if n_sets:
            boundaries = numbers(needed(fields, "cat_boundaries", tree), n_sets + 1, np.int64, "cat_boundaries", tree)
            if boundaries[0] != 0 or (np.diff(boundaries) < 0).any():
                raise ModelFormatError("does not rise from 0", tree=tree, field="cat_boundaries")
            words = numbers(needed(fields, "cat_threshold", tree), int(boundaries[-1]), np.int64, "cat_threshold", tree)
            if ((words < 0) | (words >= 1 << 32)).any():
                raise ModelFormatError("holds a value outside uint32", tree=tree, field="cat_threshold")
            self.set_size.extend(np.diff(boundaries))
            self.words.extend(words)
        self.linear.add(fields, n_leaves, tree)
        self.n_leaves.extend([n_leaves])
        self.n_sets.extend([n_sets])

    def arrays(self, n_features: int) -> dict[str, Any]:
        """A Forest's arrays; LightGBM's tests become ``x <= threshold`` and routing bits."""
        leaf_offsets = offsets(self.n_leaves.array())
        node_offsets = leaf_offsets - np.arange(len(leaf_offsets))
        decision, threshold = self.decision.array(), self.threshold.array()
        categorical = (decision & _CATEGORICAL_BIT) != 0
        category_offsets, category_words = self._categories(categorical, threshold, node_offsets)

        missing = decision >> _MISSING_SHIFT
        # Without a missing type, LightGBM reads NaN as 0.
        nan_left = np.where(missing == _MISSING_NONE, threshold >= 0.0, (decision & _DEFAULT_LEFT_BIT) != 0)
        routing = (nan_left * np.uint8(NAN_LEFT)) | ((missing == _MISSING_ZERO) * np.uint8(ZERO_MISSING))
        routing[categorical] = CATEGORICAL | NEGATIVE_FRACTION_IS_ZERO  # NaN goes right
        threshold[categorical] = 0.0
        return {
            "node_offsets": node_offsets,
            "leaf_offsets": leaf_offsets,
            "feature": self.feature.array(),
            "threshold": _with_near_zero_as_zero(threshold),
            "left": self.left.array(),
            "right": self.right.array(),
            "routing": routing,
            "leaf_value": self.leaf_value.array()[:, None],
            "category_offsets": category_offsets,
            "category_words": category_words,
            **self.linear.arrays(leaf_offsets, n_features),
        }

    def _categories(
        self, categorical: np.ndarray, threshold: np.ndarray, node_offsets: np.ndarray
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
        """Category sets in node order; a categorical node's threshold is the number of its set."""
        node, n_sets = np.flatnonzero(categorical), self.n_sets.array()
        if not len(node) and not n_sets.any():
            return np.zeros(len(categorical) + 1, np.int64), np.zeros(0, np.uint32)
        n_nodes = np.diff(np.searchsorted(node, node_offsets))
        tree, number, first = np.repeat(np.arange(len(n_sets)), n_nodes), threshold[node], offsets(n_sets)
        known = (number >= 0) & (number < n_sets[tree]) & (number == np.floor(number))
        of_node = first[tree] + np.where(known, number, 0).astype(np.int64)
        # One set a node, as LightGBM writes them: sharing would let a small file ask for much memory.
        once = np.bincount(of_node[known], minlength=int(first[-1])) == 1
        wrong = n_nodes != n_sets
        wrong[tree[~known]] = wrong[np.repeat(np.arange(len(n_sets)), n_sets)[~once]] = True
        if wrong.any():
            bad = int(np.argmax(wrong))
            raise ModelFormatError(
                f"{n_nodes[bad]} categorical nodes do not name each of {n_sets[bad]} category sets once",
                tree=bad,
                field="threshold",
            )
        size, words = self.set_size.array(), self.words.array()
        sizes = np.zeros(len(categorical), np.int64)
        sizes[node] = size[of_node]
        if (of_node[1:] < of_node[:-1]).any():  # LightGBM itself numbers sets in the order of nodes
            sorted_size = size[of_node]
            begin = np.repeat(offsets(size)[of_node] - offsets(sorted_size)[:-1], sorted_size)
            words = words[begin + np.arange(len(words))]
        return offsets(sizes), words


def _with_near_zero_as_zero(threshold: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Thresholds that send x where LightGBM's send it, which reads |x| <= 1e-35 as 0.

    LightGBM drops such values from every row of an array before it looks at a tree, so a
    threshold in that range only decides where all of them go.
    """
    threshold[(threshold >= 0.0) & (threshold < ZERO_THRESHOLD)] = ZERO_THRESHOLD
    below = (threshold < 0.0) & (threshold >= -ZERO_THRESHOLD)
    threshold[below] = np.nextafter(-ZERO_THRESHOLD, -np.inf)
    return threshold
