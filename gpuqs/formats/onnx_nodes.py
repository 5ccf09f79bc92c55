"""The attributes of an ONNX tree ensemble operator, and the trees that they describe."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpuqs.errors import ModelFormatError, UnsupportedModelError
from gpuqs.formats.comparisons import CanonicalTests, canonical_tests
from gpuqs.formats.sklearn_trees import NodeTable

_OPERATOR_OF_MODE: Final = {
    "BRANCH_LEQ": "<=",
    "BRANCH_LT": "<",
    "BRANCH_GTE": ">=",
    "BRANCH_GT": ">",
    "BRANCH_EQ": "==",
    "BRANCH_NEQ": "!=",
}

#: AttributeProto.AttributeType of each field that holds numbers or strings.
_KINDS: Final = {"i": 2, "s": 3, "t": 4, "floats": 6, "ints": 7, "strings": 8}
#: TensorProto.DataType -> the type of its raw bytes.
_TENSORS: Final = {1: "<f4", 11: "<f8"}
_EXTERNAL: Final = 1

#: Upper limit of the values of all nodes: _MAX_VALUES plus _MAX_VALUES_OF_WEIGHT for each weight, so that a small file
#: cannot make us allocate for more.
_MAX_VALUES: Final = 1 << 20
_MAX_VALUES_OF_WEIGHT: Final = 256
#: Far above any real model.
_MAX_FEATURES: Final = 1 << 24


class Attributes:
    """The attributes of a node, each checked to have the right type.

    Parameters
    ----------
    node : onnx.NodeProto
    dtype : {"float32", "float64"}
        Type of `values`.
    """

    def __init__(self, node: Any, dtype: str) -> None:
        self.dtype = np.dtype(dtype)
        self._of_name = {attribute.name: attribute for attribute in node.attribute}
        if len(self._of_name) != len(node.attribute):
            raise ModelFormatError("an attribute appears twice", field=node.op_type)

    def text(self, name: str, default: str) -> str:
        value = self._get(name, "s")
        return default if value is None else value.decode(errors="replace")[:40]

    def number(self, name: str, default: int) -> int:
        value = self._get(name, "i")
        return default if value is None else int(value)

    def strings(self, name: str) -> list[str]:
        return [value.decode(errors="replace") for value in self._get(name, "strings") or ()]

    def ints(self, name: str) -> npt.NDArray[np.int64]:
        return np.array(self._get(name, "ints") or (), np.int64)

    def values(self, name: str) -> np.ndarray:
        """Numbers, from the list ``name`` or (from ai.onnx.ml 3 on) the tensor ``name + "_as_tensor"``."""
        listed, tensor = self._get(name, "floats"), self._get(f"{name}_as_tensor", "t")
        if tensor is None:
            with np.errstate(invalid="ignore"):  # NaNs are refused where they matter
                return np.array(listed or (), np.float32).astype(self.dtype)
        name = f"{name}_as_tensor"
        if listed:
            raise ModelFormatError("is given together with the list of the same name", field=name)
        kind = _TENSORS.get(tensor.data_type)
        if kind is None or np.dtype(kind) != self.dtype:
            raise ModelFormatError(f"has element type {tensor.data_type}, where {self.dtype} should be", field=name)
        if tensor.data_location == _EXTERNAL or tensor.external_data:
            raise ModelFormatError("lies in another file; save the model as one file", field=name)
        held = tensor.float_data if kind == "<f4" else tensor.double_data
        if tensor.raw_data and (len(tensor.raw_data) % self.dtype.itemsize or len(held)):
            raise ModelFormatError("holds bytes that do not form numbers", field=name)
        values = np.frombuffer(tensor.raw_data, kind) if tensor.raw_data else np.array(held, kind)
        if list(tensor.dims) != [len(values)]:
            raise ModelFormatError(f"holds {len(values)} values, not {list(tensor.dims)[:8]}", field=name)
        return values.astype(self.dtype)

    def _get(self, name: str, kind: str) -> Any:
        attribute = self._of_name.get(name)
        if attribute is None:
            return None
        if attribute.type != _KINDS[kind]:
            raise ModelFormatError(f"is of type {attribute.type}, not {_KINDS[kind]}", field=name)
        return getattr(attribute, kind)


@dataclass(frozen=True)
class Weights:
    """The weights that leaves add to outputs; W weights.

    Parameters
    ----------
    node : int64 [W]
        The leaf, among all nodes.
    output : int64 [W]
    value : float32 or float64 [W]
    """

    node: npt.NDArray[np.int64]
    output: npt.NDArray[np.int64]
    value: np.ndarray


class Nodes:
    """The nodes of all trees in the order of the file; M nodes, T trees.

    Attributes
    ----------
    offsets : int64 [T + 1]
        First node of each tree.
    tree : int64 [M]
    leaf : bool [M]
    """

    def __init__(self, attributes: Attributes) -> None:
        ids = attributes.ints("nodes_nodeids")
        n = len(ids)
        if not n:
            raise ModelFormatError("the ensemble has no nodes", field="nodes_nodeids")
        tree_ids = self._of_nodes(attributes.ints("nodes_treeids"), n, "nodes_treeids")
        starts = np.flatnonzero(np.concatenate([[True], tree_ids[1:] != tree_ids[:-1]]))
        self.offsets = np.append(starts, n)
        self.tree = np.repeat(np.arange(len(starts)), np.diff(self.offsets))
        self._tree_order = np.argsort(tree_ids[starts], kind="stable")
        self._tree_ids = tree_ids[starts][self._tree_order]
        apart = np.flatnonzero(self._tree_ids[1:] == self._tree_ids[:-1])
        if len(apart):
            tree = int(self._tree_order[apart[0] + 1])
            raise ModelFormatError("nodes are not contiguous", tree=tree, field="nodes_treeids")
        self._node_ids = np.unique(ids)
        keys = self.tree * len(self._node_ids) + np.searchsorted(self._node_ids, ids)
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        twice = np.flatnonzero(self._keys[1:] == self._keys[:-1])
        if len(twice):
            node = int(self._order[twice[0] + 1])
            raise ModelFormatError(f"node {ids[node]} appears twice", tree=int(self.tree[node]), field="nodes_nodeids")

        # Cut short, since in an array of strings each takes the space of the longest.
        modes = np.array([mode[:16] for mode in self._of_nodes(attributes.strings("nodes_modes"), n, "nodes_modes")])
        self.leaf = modes == "LEAF"
        unknown = ~np.isin(modes, ["LEAF", *_OPERATOR_OF_MODE])
        self._refuse(unknown, f"mode {str(modes[unknown.argmax()])!r} is not known", "nodes_modes")
        roots = self.leaf[starts] & (np.diff(self.offsets) > 1)
        self._refuse(np.repeat(roots, np.diff(self.offsets)), "the first node is a leaf, not the root", "nodes_modes")
        self._modes = modes
        self._value = self._of_nodes(attributes.values("nodes_values"), n, "nodes_values")
        self._feature = self._of_nodes(attributes.ints("nodes_featureids"), n, "nodes_featureids")
        outside = ~self.leaf & ((self._feature < 0) | (self._feature >= _MAX_FEATURES))
        self._refuse(outside, f"feature is not in [0, {_MAX_FEATURES})", "nodes_featureids")
        missing = attributes.ints("nodes_missing_value_tracks_true")
        name = "nodes_missing_value_tracks_true"
        self._missing = self._of_nodes(missing, n, name) == 1 if len(missing) else np.zeros(n, bool)
        self._true, self._false = (
            self.find(self.tree, self._of_nodes(attributes.ints(name), n, name))
            for name in ("nodes_truenodeids", "nodes_falsenodeids")
        )
        for name, child in (("nodes_truenodeids", self._true), ("nodes_falsenodeids", self._false)):
            self._refuse(~self.leaf & (child < 0), "child is not a node of the tree", name)
        self._also_equal: dict[int, list[float]] = {}
        self._kept = self._without_chains()

    def _without_chains(self) -> npt.NDArray[np.bool_]:
        """Merge each chain ``x == a``, else ``x == b``, ... with one true child into one node; return which nodes stay.

        Converters write category sets this way: unmerged, the true child would have several parents. Only nodes that
        agree on where missing values go are merged; of chains that do not, onnxruntime evaluates only some nodes.
        """
        equal = self._modes == "BRANCH_EQ"
        inner = np.flatnonzero(~self.leaf)
        n_parents = np.bincount(np.concatenate([self._true[inner], self._false[inner]]), minlength=len(self.leaf))
        following = self._false
        goes_on = equal & equal[following] & (n_parents[following] == 1)
        for same in (self._feature, self._true, self._missing):
            goes_on &= same == same[following]
        kept = np.ones(len(self.leaf), bool)
        kept[following[goes_on]] = False
        for head in np.flatnonzero(goes_on & kept).tolist():
            chain, last = [], head
            while goes_on[last]:
                last = int(following[last])
                chain.append(last)
            self._also_equal[head] = self._value[chain].astype(np.float64).tolist()
            self._false[head] = self._false[last]
        inner = np.flatnonzero(~self.leaf & kept)
        n_parents = np.bincount(np.concatenate([self._true[inner], self._false[inner]]), minlength=len(self.leaf))
        n_parents[self.offsets[:-1]] += 1
        name = "nodes_truenodeids/nodes_falsenodeids"
        self._refuse(n_parents > 1, "the node has several parents (or is a root), which is not evaluated", name)
        self._refuse((n_parents != 1) & kept, "the node has no parent", name)
        self._refuse(np.isin(np.arange(len(kept)), self.offsets[:-1]) & ~kept, "the root has a parent", name)
        return kept

    @property
    def leaf_positions(self) -> npt.NDArray[np.int32]:
        """Position of every leaf among the nodes of its tree, int32 [L]."""
        leaves = np.flatnonzero(self.leaf)
        positions: npt.NDArray[np.int64] = leaves - self.offsets[self.tree[leaves]]
        return positions.astype(np.int32)

    def find(self, tree: npt.NDArray[np.int64], node_id: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Places of nodes among all nodes, -1 for those that do not exist."""
        rank = np.minimum(np.searchsorted(self._node_ids, node_id), len(self._node_ids) - 1)
        keys = tree * len(self._node_ids) + rank
        at = np.minimum(np.searchsorted(self._keys, keys), len(self._keys) - 1)
        found = (self._keys[at] == keys) & (self._node_ids[rank] == node_id)
        return np.where(found, self._order[at], -1)

    def weights(self, attributes: Attributes, prefix: str, n_outputs: int) -> Weights:
        """The weights of the leaves, from the attributes ``target_*`` or ``class_*``."""
        value = attributes.values(f"{prefix}_weights")
        tree_id, node_id, output = (
            self._of_nodes(attributes.ints(f"{prefix}_{key}"), len(value), f"{prefix}_{key}")
            for key in ("treeids", "nodeids", "ids")
        )
        at = np.minimum(np.searchsorted(self._tree_ids, tree_id), len(self._tree_ids) - 1)
        node = np.where(self._tree_ids[at] == tree_id, self.find(self._tree_order[at], node_id), -1)
        if not (self.leaf[node] & (node >= 0)).all():
            raise ModelFormatError("a weight does not belong to a leaf", field=f"{prefix}_nodeids")
        if not len(value) or ((output < 0) | (output >= n_outputs)).any():
            raise ModelFormatError(f"is empty, or holds numbers outside of [0, {n_outputs})", field=f"{prefix}_ids")
        key = node * n_outputs + output
        if len(np.unique(key)) != len(key):
            raise ModelFormatError("a leaf has two weights for one output", field=f"{prefix}_nodeids")
        return Weights(node, output, value)

    def leaf_values(
        self, weights: Weights, n_outputs: int, *, vectors: bool
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int32]]:
        """Values of all nodes [M, 1] or [M, n_outputs], and the output of each tree.

        There is one column if every tree adds to only one output, unless ``vectors`` are asked for.
        """
        of_tree = np.zeros(len(self.offsets) - 1, np.int64)
        of_tree[self.tree[weights.node]] = weights.output
        if n_outputs == 1 or not (vectors or (of_tree[self.tree[weights.node]] != weights.output).any()):
            values = np.zeros((len(self.leaf), 1))
            values[weights.node, 0] = weights.value
            return values, of_tree.astype(np.int32)
        if len(self.leaf) * n_outputs > _MAX_VALUES + _MAX_VALUES_OF_WEIGHT * len(weights.value):
            problem = f"{len(self.leaf)} nodes of {n_outputs} outputs take too much memory"
            raise ModelFormatError(problem, field="weights")
        values = np.zeros((len(self.leaf), n_outputs))
        values[weights.node, weights.output] = weights.value
        return values, np.zeros(len(of_tree), np.int32)

    def table(self, values: npt.NDArray[np.float64]) -> NodeTable:
        """The trees, with the values of their nodes."""
        nodes = np.flatnonzero(self._kept)
        starts = np.searchsorted(nodes, self.offsets)
        leaf = self.leaf[nodes]
        place = np.cumsum(self._kept) - 1 - starts[self.tree]  # among the kept nodes of its tree
        try:
            tests = self._tests(nodes, 0)
        except (ModelFormatError, UnsupportedModelError):  # in which tree?
            for tree, (start, stop) in enumerate(pairwise(starts.tolist())):
                self._tests(nodes[start:stop], tree)
            raise
        true, false = (place[np.where(leaf, 0, child[nodes])] for child in (self._true, self._false))
        return NodeTable(
            leaf=leaf,
            left=np.where(tests.swap, false, true),
            right=np.where(tests.swap, true, false),
            feature=self._feature[nodes],
            threshold=tests.threshold,
            routing=tests.routing,
            value=values[nodes],
            sets=tests.sets,
            starts=starts,
        )

    def _tests(self, nodes: npt.NDArray[np.int64], tree: int) -> CanonicalTests:
        """What these nodes test; ``tree`` is for error messages."""
        names = [*_OPERATOR_OF_MODE, "LEAF"]
        operators = np.array([*_OPERATOR_OF_MODE.values(), "<="])
        order = np.argsort(names)
        operator = operators[order[np.searchsorted(names, self._modes[nodes], sorter=order)]]
        value = np.where(self.leaf[nodes], self._value.dtype.type(0), self._value[nodes])
        # NaN differs from any number, whatever the attribute says.
        missing = self._missing[nodes] | (operator == "!=")
        heads = np.flatnonzero(np.isin(nodes, list(self._also_equal))).tolist() if self._also_equal else []
        more = {head: self._also_equal[int(nodes[head])] for head in heads}
        return canonical_tests(operator, value, missing, tree, more)

    @staticmethod
    def _of_nodes(values: Any, n: int, name: str) -> Any:
        if len(values) != n:
            raise ModelFormatError(f"holds {len(values)} values, not {n}", field=name)
        return values

    def _refuse(self, bad: npt.NDArray[np.bool_], problem: str, name: str) -> None:
        if bad.any():
            node = int(bad.argmax())
            tree = int(self.tree[node])
            raise ModelFormatError(f"node {node - self.offsets[tree]}: {problem}", tree=tree, field=name)
