"""Jforests' XML models: ensembles of regression trees (LambdaMART, gradient boosting, bagging).

Features are numbered from 0 as columns of Jforests' feature vectors, which begin with feature 1 of
its svmlight files. A document goes left where ``x <= OriginalThresholds``, in float64, so that NaN
goes right; ``weight * leaf`` is added tree by tree to a float64 that starts at 0. That is how
Jforests scores a vector of unchanged features. Its command line instead scores documents whose features
it has rounded to 15 bits, with scales that are not in the model.
"""

from __future__ import annotations

from array import array
from typing import Any, Final

import numpy as np

from gpuqs.errors import ModelFormatError, UnsupportedModelError, naming
from gpuqs.forest import Forest
from gpuqs.formats.fields import INT32_MAX
from gpuqs.formats.xml_trees import number, parse_xml, root_name, whole

NAME: Final = "Jforests XML"

#: The features that are read, by the columns of `gpuqs.formats.FEATURES`.
FEATURES: Final = {
    "files": "XML",
    "live objects": "none",
    "missing values": "none in the format: NaN goes right",
    "categories": "none in the format",
    "outputs": "one",
    "raw scores": "float64 sums in tree order",
}

#: A tree's lists that are read: the values of its nodes and of its leaves.
_WHOLE_LISTS: Final = ("SplitFeatures", "LeftChildren", "RightChildren")
_THRESHOLDS: Final = "OriginalThresholds"
_LEAVES: Final = "LeafOutputs"
_LISTS: Final = (*_WHOLE_LISTS, _THRESHOLDS, _LEAVES)
#: The leaves of classification trees.
_DISTRIBUTIONS: Final = "LeafTargetDistributions"


def recognises(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is Jforests': its outermost element is <Ensemble>."""
    return root_name(head) == b"Ensemble"


def from_object(obj: Any) -> Forest | None:
    """None: Jforests has no live objects in Python."""
    return None


def read(data: bytes | memoryview, source: str) -> Forest:
    """Read Jforests' XML.

    Parameters
    ----------
    data : bytes or memoryview
    source : str
        What error messages call the model: its file.

    Raises
    ------
    ModelFormatError
        Names the source, the line, the tree and the field.
    UnsupportedModelError
        Classification trees.
    """
    with naming(source):
        reader = _Reader()
        parse_xml(data, reader.start, reader.end)
        return reader.forest()


class _Reader:
    """Handles the tags in file order."""

    def __init__(self) -> None:
        self.path: list[str] = []
        self.attributes: dict[str, str] = {}  # of the current tree
        self.texts: dict[str, str] = {}  # its lists
        self.weight = array("d")
        self.n_leaves = array("q")
        self.whole = {name: array("i") for name in _WHOLE_LISTS}
        self.threshold = array("d")
        self.leaf_value = array("d")

    @property
    def tree(self) -> int:
        return len(self.weight)

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if not self.path and name != "Ensemble":
            raise ModelFormatError(f"the outermost element is {name[:40]!r}", field="Ensemble")
        if self.path == ["Ensemble"] and name == "Tree":
            self.attributes, self.texts = attributes, {}
        elif self.path == ["Ensemble", "Tree"] and name == _DISTRIBUTIONS:
            raise UnsupportedModelError(
                f"tree {self.tree} is a classification tree ({_DISTRIBUTIONS}); gpuqs reads Jforests' regression trees"
            )
        elif len(self.path) > 2 and self.path[2] in _LISTS:
            raise ModelFormatError(f"holds an element {name[:40]!r}", tree=self.tree, field=self.path[2])
        self.path.append(name)

    def end(self, name: str, text: str) -> None:
        self.path.pop()
        if self.path == ["Ensemble"] and name == "Tree":
            self._end_tree()
        elif self.path == ["Ensemble", "Tree"] and name in _LISTS:
            if name in self.texts:
                raise ModelFormatError("appears twice", tree=self.tree, field=name)
            self.texts[name] = text

    def _end_tree(self) -> None:
        tree = self.tree
        n_leaves = whole(self.attributes.get("leaves"), 1, INT32_MAX, "leaves", tree)
        weight = number(self.attributes.get("weight"), "weight", tree)
        for name in _WHOLE_LISTS:
            low = 0 if name == "SplitFeatures" else -INT32_MAX - 1
            tokens = self._tokens(name, n_leaves - 1)
            self.whole[name].extend(whole(token, low, INT32_MAX - 1, name, tree) for token in tokens)
        self.threshold.extend(number(token, _THRESHOLDS, tree) for token in self._tokens(_THRESHOLDS, n_leaves - 1))
        self.leaf_value.extend(number(token, _LEAVES, tree) for token in self._tokens(_LEAVES, n_leaves))
        self.n_leaves.append(n_leaves)
        self.weight.append(weight)

    def _tokens(self, name: str, count: int) -> list[str]:
        text = self.texts.get(name)
        if text is None:
            raise ModelFormatError("is missing; save or copy the model again", tree=self.tree, field=name)
        tokens = text.split()
        if len(tokens) != count:
            problem = f"holds {len(tokens)} values, not {count}; save or copy the model again"
            raise ModelFormatError(problem, tree=self.tree, field=name)
        return tokens

    def forest(self) -> Forest:
        leaf_offsets = np.concatenate([[0], np.cumsum(self.n_leaves, dtype=np.int64)]).astype(np.int64)
        feature, left, right = (np.array(self.whole[name], np.int32) for name in _WHOLE_LISTS)
        return Forest(
            n_features=int(feature.max(initial=-1)) + 1,
            node_offsets=leaf_offsets - np.arange(len(leaf_offsets)),
            leaf_offsets=leaf_offsets,
            feature=feature,
            threshold=np.array(self.threshold, np.float64),
            left=left,
            right=right,
            routing=np.zeros(len(feature), np.uint8),
            leaf_value=np.array(self.leaf_value, np.float64)[:, None],
            sum_dtype="float64",
            input_dtype="float64",
            integer_dtype="float64",
            tree_weight=np.array(self.weight, np.float64),
            source="Jforests",
        )
