"""What a Forest must fulfil; errors name the tree, the node or leaf, and the field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

import numpy as np
import numpy.typing as npt

from gpuqs.cpu_fallback import making
from gpuqs.errors import ModelFormatError

if TYPE_CHECKING:
    from gpuqs.forest import Forest

#: All bits of `Forest.routing` together.
ALL_ROUTING: Final = 63

#: Links that `gpuqs.links` evaluates (see there).
LINKS: Final = (
    "identity",
    "sigmoid",
    "ova_sigmoid",
    "softmax",
    "argmax",
    "exp",
    "exp2",
    "log1p_exp",
    "sqrt_signed",
    "hinge",
    "mean_variance",
    "isolation",
    "ascending",
    "expectiles",
)

#: How classes follow from scores; see `Forest.class_rule`.
CLASS_RULES: Final = ("value", "raw", "raw_or_zero", "other")

#: Deepest tree accepted: learners stop far earlier, and a tree that is a chain costs time proportional to its depth.
MAX_DEPTH: Final = 10_000


def check(forest: Forest, *, leaf_ids: bool) -> npt.NDArray[np.int32]:
    """Check a Forest whose arrays have the right types and sizes; return the depth of each node.

    Parameters
    ----------
    forest : Forest
    leaf_ids : bool
        Whether to check ``forest.leaf_id``, which needs no check if it is the default.

    Raises
    ------
    ModelFormatError
        The trees, or what belongs to them, are damaged.
    ValueError
        A field has a value that no reader may give it.
    """
    _check_fields(forest)
    nodes_of, leaves_of = np.diff(forest.node_offsets), np.diff(forest.leaf_offsets)
    _refuse(forest, leaves_of != nodes_of + 1, "needs one leaf more than it has nodes", "leaf_value", trees=True)
    faults: dict[str, int]
    depth: npt.NDArray[np.int32]
    faults, depth = making.check_trees(forest)
    _check_nodes(forest, faults)
    _check_topology(forest, faults, depth)
    if leaf_ids:
        _check_leaf_ids(forest)
    return depth


def _check_fields(forest: Forest) -> None:
    """Check the fields that are not arrays, and those arrays whose size they tell."""
    if forest.leaf_value.shape[1] not in (1, forest.n_outputs):
        raise ValueError(
            f"Forest.leaf_value has shape {forest.leaf_value.shape}, but must have [leaves, 1] or "
            f"[leaves, n_outputs], here [leaves, {forest.n_outputs}]"
        )
    if forest.ctrs is not None and forest.ctrs.n_columns != forest.n_features:
        raise ModelFormatError(f"make {forest.ctrs.n_columns} columns, not {forest.n_features}", field="ctrs")
    forest.schema.check(forest.n_features if forest.ctrs is None else forest.ctrs.n_given)
    if forest.classes and len(forest.classes) != max(forest.n_outputs, 2):
        raise ModelFormatError(
            f"{len(forest.classes)} class labels for {forest.n_outputs} outputs", field="classes"
        )
    for name, allowed in (
        ("sum_dtype", ("float64", "float32")),
        ("input_dtype", ("float64", "float32")),
        ("integer_dtype", ("float64", "float32")),
        ("link", LINKS),
        ("class_rule", CLASS_RULES),
    ):
        if getattr(forest, name) not in allowed:
            raise ValueError(f"Forest.{name} is {getattr(forest, name)!r}, not one of {allowed}")


def _check_nodes(forest: Forest, faults: dict[str, int]) -> None:
    """Check that children, features, thresholds, leaf values and outputs are in range."""
    for name in ("left", "right"):
        if name in faults:
            _refuse_node(forest, faults[name], "child is outside its tree (or is its root)", name)
    # Minimum and maximum show whether all values are in range, without an array of the bad ones.
    if forest.feature.min(initial=0) < 0 or forest.feature.max(initial=-1) >= forest.n_features:
        bad_feature = (forest.feature < 0) | (forest.feature >= forest.n_features)
        _refuse(forest, bad_feature, f"feature is not in [0, {forest.n_features})", "feature")
    if np.isnan(forest.threshold.max(initial=0.0)):
        _refuse(forest, np.isnan(forest.threshold), "threshold is NaN", "threshold")
    if forest.routing.max(initial=0) > ALL_ROUTING:
        _refuse(forest, forest.routing > ALL_ROUTING, "unknown routing bits", "routing")
    if forest.has_linear_leaves:
        _check_linear_leaves(forest)
    _refuse(forest, ~np.isfinite(forest.tree_weight), "weight is not finite", "tree_weight", trees=True)
    with np.errstate(over="ignore", invalid="ignore"):
        leaves = forest.weighted_leaves()
    if not np.isfinite([leaves.min(initial=0.0), leaves.max(initial=0.0)]).all():
        bad_leaf = np.flatnonzero(~np.isfinite(leaves).all(axis=1))
        tree, leaf = _tree_and_number(forest.leaf_offsets, int(bad_leaf[0]))
        problem = f"leaf {leaf}: value is not finite, or its weighted value is not, in {forest.sum_dtype}"
        raise ModelFormatError(problem, tree=tree, field="leaf_value")
    bad_output = (forest.tree_output < 0) | (forest.tree_output >= forest.n_outputs)
    _refuse(forest, bad_output, f"output is not in [0, {forest.n_outputs})", "tree_output", trees=True)
    if not np.isfinite(forest.base_score).all():
        raise ModelFormatError("base score is not finite", field="base_score")


def _check_linear_leaves(forest: Forest) -> None:
    """Check that each linear model begins with its constant, and uses existing features."""
    feature, starts = forest.linear_feature, forest.linear_offsets[:-1][np.diff(forest.linear_offsets) > 0]
    is_constant = np.zeros(len(feature), bool)
    is_constant[starts] = True
    if ((feature == -1) != is_constant).any() or (feature < -1).any() or (feature >= forest.n_features).any():
        problem = f"a model does not begin with its constant, or uses a feature not in [0, {forest.n_features})"
        raise ModelFormatError(problem, field="linear_feature")
    plain = forest.leaf_value.shape[1] == 1 and forest.sum_dtype == "float64" and (forest.tree_weight == 1).all()
    if not plain:
        problem = "linear models cannot be combined with vector leaves, float32 sums or tree weights"
        raise ModelFormatError(problem, field="linear_feature")


def _check_topology(forest: Forest, faults: dict[str, int], depth: npt.NDArray[np.int32]) -> None:
    """Check that every node and leaf has exactly one parent, and that every chain of parents ends at a root."""
    if "node" in faults:
        _refuse_node(forest, faults["node"], "node has no parent or several", "left/right")
    if "leaf" in faults:
        tree, leaf = _tree_and_number(forest.leaf_offsets, faults["leaf"])
        raise ModelFormatError(f"leaf {leaf} has no parent or several", tree=tree, field="left/right")
    if "cycle" in faults:
        _refuse_node(forest, faults["cycle"], "nodes form a cycle", "left/right")
    if depth.max(initial=0) > MAX_DEPTH:
        _refuse(forest, depth > MAX_DEPTH, f"tree is deeper than {MAX_DEPTH}", "left/right")


def _check_leaf_ids(forest: Forest) -> None:
    """Check that leaf numbers are distinct within each tree and not negative."""
    rises = forest.leaf_id[1:] > forest.leaf_id[:-1]
    rises[forest.leaf_offsets[1:-1] - 1] = True  # from the last leaf of a tree to the first of the next
    if rises.all() and (forest.leaf_id[forest.leaf_offsets[:-1]] >= 0).all():
        return  # numbered from left to right, as most are
    tree = np.repeat(np.arange(forest.n_trees), np.diff(forest.leaf_offsets))
    ids = (tree << 32) + forest.leaf_id
    order = np.argsort(ids, kind="stable")
    ids, tree = ids[order], tree[order]
    bad = (np.diff(ids, prepend=-1) == 0) | ((ids - (tree << 32)) < 0)
    if bad.any():
        raise ModelFormatError("is negative or appears twice", tree=int(tree[np.argmax(bad)]), field="leaf_id")


def _refuse(forest: Forest, bad: np.ndarray, problem: str, name: str, *, trees: bool = False) -> None:
    """Refuse a forest some of whose nodes, or trees, are ``bad``."""
    if not bad.any():
        return
    first = int(np.flatnonzero(bad)[0])
    if trees:
        raise ModelFormatError(problem, tree=first, field=name)
    _refuse_node(forest, first, problem, name)


def _refuse_node(forest: Forest, node: int, problem: str, name: str) -> NoReturn:
    tree, number = _tree_and_number(forest.node_offsets, node)
    raise ModelFormatError(f"node {number}: {problem}", tree=tree, field=name)


def _tree_and_number(offsets: np.ndarray, at: int) -> tuple[int, int]:
    """The tree of a node or leaf, and its number in the tree."""
    tree = int(np.searchsorted(offsets, at, "right")) - 1
    return tree, at - int(offsets[tree])
