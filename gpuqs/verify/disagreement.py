"""One disagreement in full: the row, the tree, and the row's path through it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuqs.arrays import as_documents
from gpuqs.arrays.sparse import all_columns
from gpuqs.engines.reference import goes_left
from gpuqs.forest import CATEGORICAL, NAN_LEFT, SET_RIGHT, ZERO_MISSING, ZERO_THRESHOLD, Forest
from gpuqs.model import Model
from gpuqs.verify.sources import Source

#: Codes of a category set that are written out.
_CODES_SHOWN = 12


@dataclass(frozen=True)
class Step:
    """One node on a row's path.

    Attributes
    ----------
    node : int
        Number within the tree.
    feature : str
        Its name or number.
    value : float
        The row's value, as the model compares it.
    test : str
        What the node asks, such as ``x <= 0.5``, and where missing values go.
    left : bool
        Where the row goes.
    parts : bool
        Whether the source library's leaf lies on the node's other side.
    """

    node: int
    feature: str
    value: float
    test: str
    left: bool
    parts: bool


@dataclass(frozen=True)
class Disagreement:
    """Where gpuqs and the source library part.

    Attributes
    ----------
    origin, row : str, int
        Where the row came from and its number there, from 0.
    dtype : str
        Of the row's values.
    engine : str
    tree : int, optional
        The tree whose exit leaves differ; if only scores differ, the first tree that makes the sums differ.
    among : int
        If only scores differ: how many trees from ``tree`` on the source library adds at once; 1 if ``tree`` is sure.
    output : int
        The output whose score differs.
    values : dict of str to float
        The row's values of the features that the tree tests, as they were given.
    path : tuple of Step
        The row's path through the tree by the tests that gpuqs read.
    leaf, their_leaf : int, optional
        Exit leaves, in the source library's numbers.
    path_leaf : int, optional
        Where ``path`` ends: other than ``leaf`` only if the engine is at fault.
    leaf_value : float, optional
        What gpuqs adds for its leaf (the disputed output's value).
    score, their_score : float
        Raw scores of the output.
    """

    origin: str
    row: int
    dtype: str
    engine: str
    tree: int | None
    among: int
    output: int
    values: dict[str, float]
    path: tuple[Step, ...]
    leaf: int | None
    their_leaf: int | None
    path_leaf: int | None
    leaf_value: float | None
    score: float
    their_score: float

    def __repr__(self) -> str:
        tree = "" if self.tree is None else f", tree {self.tree}: leaf {self.leaf}, theirs {self.their_leaf}"
        scores = f"score {self.score!r}, theirs {self.their_score!r}"
        return f"<gpuqs.verify.Disagreement: row {self.row} of {self.origin}{tree}; {scores}>"


def leaf_disagreement(
    model: Model,
    source: Source,
    x: Any,
    row: int,
    origin: str,
    engine: str,
    tree: int,
    leaves: tuple[int, int],
) -> Disagreement:
    """The disagreement of one row ``x`` (as for `Check.add`) about a tree's exit leaf (ours, theirs)."""
    output = 0 if model.forest.vector_leaves else int(model.forest.tree_output[tree])
    return _disagreement(model, source, x, row, origin, engine, [tree], leaves, output)


def score_disagreement(
    model: Model, source: Source, x: Any, row: int, origin: str, engine: str, output: int
) -> Disagreement:
    """The disagreement of a row ``x`` [1, n_features], all of whose exit leaves agree, about a score."""
    trees = _first_trees_of_difference(model, source, x, engine, output)
    leaves = tuple(source.leaves(x)[0, trees[:1]].tolist() * 2)
    return _disagreement(model, source, x, row, origin, engine, trees, leaves, output)


def _disagreement(
    model: Model,
    source: Source,
    x: Any,
    row: int,
    origin: str,
    engine: str,
    trees: list[int],
    leaves: tuple[int, ...],
    output: int,
) -> Disagreement:
    forest, tree = model.forest, trees[0] if trees else None
    documents = as_documents(x, forest)
    values: dict[str, float] = {}
    path: tuple[Step, ...] = ()
    path_leaf = leaf_value = None
    if tree is not None:
        nodes = slice(*forest.node_offsets[tree : tree + 2].tolist())
        dense = all_columns(documents, forest, 0, 1)[0]
        values = {feature_name(forest, f): float(dense[f]) for f in np.unique(forest.feature[nodes]).tolist()}
        path, at = trace(forest, tree, dense, leaves[1])
        path_leaf = int(forest.leaf_id[at])
        leaf_value = float(forest.leaf_value[at, output if forest.vector_leaves else 0])
    ours = model.predict(x, "raw", engine=engine).reshape(-1)
    theirs = source.raw(x)[0]
    return Disagreement(
        origin=origin,
        row=row,
        dtype=str(x.dtype if hasattr(x, "dtype") else documents.chunk(0, 1).dtype),
        engine=engine,
        tree=tree,
        among=len(trees),
        output=output,
        values=values,
        path=path,
        leaf=leaves[0] if leaves else None,
        their_leaf=leaves[1] if leaves else None,
        path_leaf=path_leaf,
        leaf_value=leaf_value,
        score=float(ours[output]),
        their_score=float(theirs[output]),
    )


def feature_name(forest: Forest, feature: int) -> str:
    """What messages call a feature: its name, or its number where the model has no names."""
    return forest.feature_names[feature] if forest.feature_names else f"feature {feature}"


def trace(forest: Forest, tree: int, x: np.ndarray, their_leaf: int) -> tuple[tuple[Step, ...], int]:
    """The path of a row ``x`` [n_features] through a tree, and the leaf (among all) at which it ends.

    The step at which the path to ``their_leaf`` (the source library's number) leaves it is marked.
    """
    base, leaf_base = int(forest.node_offsets[tree]), int(forest.leaf_offsets[tree])
    ids = forest.leaf_id[leaf_base : int(forest.leaf_offsets[tree + 1])]
    theirs = _ways_to(forest, tree, np.flatnonzero(ids == their_leaf))
    with np.errstate(over="ignore", invalid="ignore"):
        x = x.astype(forest.input_dtype).astype(np.float64)
    steps: list[Step] = []
    at = 0 if forest.node_offsets[tree + 1] > base else ~0
    while at >= 0:
        node = base + at
        feature = int(forest.feature[node])
        left = bool(goes_left(forest, node, x[feature : feature + 1])[0])
        parts = theirs.get(at, left) != left
        steps.append(Step(at, feature_name(forest, feature), float(x[feature]), _test(forest, node), left, parts))
        at = int(forest.left[node] if left else forest.right[node])
    return tuple(steps), leaf_base + ~at


def _ways_to(forest: Forest, tree: int, leaf: np.ndarray) -> dict[int, bool]:
    """Whether the path to a leaf of a tree goes left, for each node on it; empty if there is no such leaf."""
    if len(leaf) == 0:
        return {}
    nodes = slice(*forest.node_offsets[tree : tree + 2].tolist())
    above = {}
    for left, children in ((True, forest.left[nodes]), (False, forest.right[nodes])):
        above.update({child: (node, left) for node, child in enumerate(children.tolist())})
    ways, at = {}, ~int(leaf[0])
    while at in above:
        at, left = above[at]
        ways[at] = left
    return ways


def _test(forest: Forest, node: int) -> str:
    """What a node asks, for people."""
    routing = int(forest.routing[node])
    missing = "missing goes " + ("left" if routing & NAN_LEFT else "right")
    if routing & CATEGORICAL:
        words = forest.category_words[forest.category_offsets[node] : forest.category_offsets[node + 1]]
        codes = np.flatnonzero(np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little")).tolist()
        shown = ", ".join(map(str, codes[:_CODES_SHOWN])) + (", ..." if len(codes) > _CODES_SHOWN else "")
        word = "not in" if routing & SET_RIGHT else "in"
        return f"left if {word} {{{shown}}}; {missing}"
    if routing & ZERO_MISSING:
        missing = f"NaN and zero (up to {ZERO_THRESHOLD:.3g}) go " + ("left" if routing & NAN_LEFT else "right")
    return f"left if <= {float(forest.threshold[node])!r}; {missing}"


def _first_trees_of_difference(model: Model, source: Source, x: Any, engine: str, output: int) -> list[int]:
    """The trees of the first iteration with which the sums of an output differ; none if no tree causes it."""
    step, n_trees = source.trees_per_iteration, model.n_trees

    def differs(iterations: int) -> bool:
        trees = slice(0, min(iterations * step, n_trees))
        ours = model.predict(x, "raw", trees=trees, engine=engine).reshape(-1)[output]
        return bool(ours.tobytes() != source.raw(x, iterations)[0, output].tobytes())

    same, different = 0, -(-n_trees // step)
    if different == 0 or not differs(different):
        return []
    # Where there are several such places, bisection ends at one of them.
    while different - same > 1:
        middle = (same + different) // 2
        if differs(middle):
            different = middle
        else:
            same = middle
    trees = range(same * step, min(different * step, n_trees))
    return [tree for tree in trees if model.forest.vector_leaves or model.forest.tree_output[tree] == output]
