"""QuickRank's XML models of trees: MART, LambdaMART, DART, oblivious trees, random forests.

QuickRank holds documents and thresholds as float32, numbers features from 1 (feature i is column
i - 1, as in its svmlight files) and goes left where ``x <= threshold``, so that NaN goes right. It
adds ``leaf * weight`` tree by tree to a float64 that starts at 0; if its compiler fuses that
multiplication with the addition, its scores differ from gpuqs's in the last places.

It does not number leaves: here they are numbered within their tree in the order of the file.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gpuqs.errors import ModelFormatError, UnsupportedModelError, naming
from gpuqs.forest import Forest
from gpuqs.forest_checks import MAX_DEPTH
from gpuqs.formats.fields import INT32_MAX
from gpuqs.formats.xml_trees import number, parse_xml, root_name, whole

NAME: Final = "QuickRank XML"

#: The features that are read, by the columns of `gpuqs.formats.FEATURES`.
FEATURES: Final = {
    "files": "XML",
    "live objects": "none",
    "missing values": "none in the format: NaN goes right",
    "categories": "none in the format",
    "outputs": "one",
    "raw scores": "float64 sums in tree order",
}

#: The elements that are read inside each element; others are ignored, or refused (see `start`).
_READ: Final = {
    "": ("ranker",),
    "ranker": ("info", "ensemble"),
    "info": ("type",),
    "ensemble": ("tree",),
    "tree": ("split",),
    "split": ("feature", "threshold", "output", "split"),
}
#: Elements whose text is the value.
_VALUES: Final = ("type", "feature", "threshold", "output")


def recognises(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is QuickRank's: its outermost element is <ranker>."""
    return root_name(head) == b"ranker"


def from_object(obj: Any) -> Forest | None:
    """None: QuickRank has no live objects in Python."""
    return None


def read(data: bytes | memoryview, source: str) -> Forest:
    """Read QuickRank's XML.

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
        A ranker that is not an ensemble of trees (RankBoost, coordinate ascent, line search).
    """
    with naming(source):
        reader = _Reader()
        parse_xml(data, reader.start, reader.end)
        return reader.forest()


@dataclass(slots=True)
class _Split:
    """A <split> whose end tag is still to come."""

    side: str
    #: Its number among the tree's nodes, given at the first sign that it is a node and not a leaf.
    node: int = -1
    feature: int | None = None
    threshold: float | None = None
    output: float | None = None
    left: int | None = None
    right: int | None = None


class _Reader:
    """Handles the tags in file order; nodes and leaves are numbered as they come, parents first."""

    def __init__(self) -> None:
        self.path: list[str] = [""]
        self.passed_over = 0  # number of open elements from the outermost ignored one on
        self.splits: list[_Split] = []
        self.kind = ""
        self.ensembles = 0
        self.roots = 0  # of the current tree
        self.weight = array("d")
        self.n_nodes = array("q")
        self.n_leaves = array("q")
        self.feature = array("i")
        self.threshold = array("d")
        self.left = array("i")
        self.right = array("i")
        self.leaf_value = array("d")

    @property
    def tree(self) -> int | None:
        """The current tree, for error messages."""
        return len(self.weight) - 1 if len(self.weight) else None

    def start(self, name: str, attributes: dict[str, str]) -> None:
        if self.passed_over:
            self.passed_over += 1
            return
        where = self.path[-1]
        if name not in _READ.get(where, ()):
            self._pass_over(where, name)
            return
        self.path.append(name)
        if name == "split":
            self._start_split(attributes)
        elif where == "split" and name != "output":
            self._becomes_node(self.splits[-1])
        elif name == "tree":
            self.weight.append(number(attributes.get("weight"), "weight", len(self.weight)))
            self.n_nodes.append(0)
            self.n_leaves.append(0)
            self.roots = 0
        elif name == "ensemble":
            self.ensembles += 1

    def end(self, name: str, text: str) -> None:
        if self.passed_over:
            self.passed_over -= 1
            return
        self.path.pop()
        if name == "split":
            self._end_split()
        elif name == "tree" and self.roots != 1:
            raise ModelFormatError(f"holds {self.roots} root splits, not 1", tree=self.tree, field="split")
        elif name == "type":
            self.kind = text.strip()
        elif name in _VALUES:
            split = self.splits[-1]
            if getattr(split, name) is not None:
                raise ModelFormatError("appears twice in one split", tree=self.tree, field=name)
            if name == "feature":
                split.feature = whole(text, 1, INT32_MAX, name, self.tree) - 1
            else:
                setattr(split, name, number(text, name, self.tree))

    def _pass_over(self, where: str, name: str) -> None:
        if where == "":
            raise ModelFormatError(f"the outermost element is {name[:40]!r}", field="ranker")
        if where in _VALUES:
            raise ModelFormatError(f"holds an element {name[:40]!r}, not a value", tree=self.tree, field=where)
        if where == "ensemble":
            raise UnsupportedModelError(
                f"the ensemble of this {self.kind[:40]} ranker is made of {name[:40]!r} elements, not of trees; "
                "gpuqs reads MART, LAMBDAMART, DART and similar rankers"
            )
        self.passed_over = 1

    def _start_split(self, attributes: dict[str, str]) -> None:
        if len(self.splits) > MAX_DEPTH + 1:
            raise ModelFormatError(f"is deeper than {MAX_DEPTH}", tree=self.tree, field="split")
        side = attributes.get("pos", "")
        if self.splits:
            parent = self.splits[-1]
            self._becomes_node(parent)
            if side not in ("left", "right"):
                problem = f"is {side[:40]!r}, neither 'left' nor 'right'"
                raise ModelFormatError(problem, tree=self.tree, field="pos")
            if getattr(parent, side) is not None:
                raise ModelFormatError(f"a split has two {side} children", tree=self.tree, field="pos")
        else:
            self.roots += 1
        self.splits.append(_Split(side))

    def _becomes_node(self, split: _Split) -> None:
        if split.node == -1:
            split.node = self.n_nodes[-1]
            self.n_nodes[-1] += 1
            for values in (self.feature, self.threshold, self.left, self.right):
                values.append(0)

    def _end_split(self) -> None:
        split = self.splits.pop()
        if split.node == -1:
            if split.output is None:
                raise ModelFormatError("a split holds neither a test nor an output", tree=self.tree, field="output")
            child = ~self.n_leaves[-1]
            self.n_leaves[-1] += 1
            self.leaf_value.append(split.output)
        else:
            child = split.node
            self._keep_node(split)
        if self.splits:
            setattr(self.splits[-1], split.side, child)

    def _keep_node(self, split: _Split) -> None:
        if split.output is not None:
            raise ModelFormatError("a split holds a test and an output", tree=self.tree, field="output")
        at = len(self.feature) - self.n_nodes[-1] + split.node
        for name in ("feature", "threshold", "left", "right"):
            value = getattr(split, name)
            if value is None:
                what = f"{name} child" if name in ("left", "right") else name
                raise ModelFormatError(f"a split has no {what}", tree=self.tree, field=name)
            getattr(self, name)[at] = value

    def forest(self) -> Forest:
        if self.ensembles != 1:
            problem = f"the ranker {self.kind[:40]!r} holds {self.ensembles} ensembles of trees, not 1"
            raise ModelFormatError(problem, field="ensemble")
        with np.errstate(over="ignore"):
            threshold = np.array(self.threshold, np.float64).astype(np.float32).astype(np.float64)
        feature = np.array(self.feature, np.int32)
        return Forest(
            n_features=int(feature.max(initial=-1)) + 1,
            node_offsets=np.concatenate([[0], np.cumsum(self.n_nodes, dtype=np.int64)]).astype(np.int64),
            leaf_offsets=np.concatenate([[0], np.cumsum(self.n_leaves, dtype=np.int64)]).astype(np.int64),
            feature=feature,
            threshold=threshold,
            left=np.array(self.left, np.int32),
            right=np.array(self.right, np.int32),
            routing=np.zeros(len(feature), np.uint8),
            leaf_value=np.array(self.leaf_value, np.float64)[:, None],
            sum_dtype="float64",
            input_dtype="float32",
            integer_dtype="float32",
            tree_weight=np.array(self.weight, np.float64),
            source="QuickRank",
            objective=self.kind,
        )
