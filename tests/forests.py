"""Forests for tests: random ones of every shape, and documents that probe their nodes' tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from gpuqs.forest import (
    CATEGORICAL,
    NAN_LEFT,
    NEGATIVE_FRACTION_IS_ZERO,
    SET_RIGHT,
    WHOLE_CODES,
    ZERO_MISSING,
    ZERO_THRESHOLD,
    Forest,
)

SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324, -5e-324, 1e-40, 1e-35, -1e-35, 2e-35, 1e300, -1e300]


def random_forest(
    rng: np.random.Generator,
    *,
    n_trees: int = 20,
    max_leaves: int = 16,
    n_features: int = 8,
    shape: str = "random",
    n_thresholds: int = 30,
    n_outputs: int = 1,
    vector_leaves: bool = False,
    categorical: float = 0.0,
    linear: float = 0.0,
    **fields: object,
) -> Forest:
    """A forest whose trees split random leaves ("random"), the newest ("chain") or every one ("complete").

    "zigzag": in each subtree that is large enough, two subtrees lie between leaves, so that programs need many
    registers at once. "oblivious": complete trees with the same test at every node of a level.
    A share ``categorical`` of the nodes test category sets of up to 100 codes, some of them equal; a share ``linear``
    of the leaves have linear models.
    """
    node_offsets, leaf_offsets = [0], [0]
    left: list[int] = []
    right: list[int] = []
    for _ in range(n_trees):
        n_leaves = int(rng.integers(1, max_leaves + 1)) if shape == "random" else max_leaves
        if shape == "oblivious":
            n_leaves = 1 << int(rng.integers(0, max_leaves.bit_length()))
        tree_left, tree_right = _grow(rng, n_leaves, "complete" if shape == "oblivious" else shape)
        left += tree_left
        right += tree_right
        node_offsets.append(len(left))
        leaf_offsets.append(leaf_offsets[-1] + n_leaves)
    n_nodes, n_leaves = len(left), leaf_offsets[-1]
    grid = rng.normal(size=(n_features, n_thresholds))
    special = np.array(SPECIAL[1:])[:n_thresholds]
    head = grid[:, : len(special)]
    head[:] = np.where(rng.random(head.shape) < 0.3, special, head)
    feature = rng.integers(0, n_features, n_nodes).astype(np.int32)
    threshold = grid[feature, rng.integers(0, n_thresholds, n_nodes)]
    if fields.get("input_dtype") == "float32":
        with np.errstate(over="ignore"):
            threshold = threshold.astype(np.float32).astype(np.float64)
    fields.setdefault("sum_dtype", "float64")
    routing = rng.choice(np.array([0, NAN_LEFT, ZERO_MISSING, NAN_LEFT | ZERO_MISSING], np.uint8), n_nodes)
    if categorical:
        fields |= _category_sets(rng, rng.random(n_nodes) < categorical, routing)
    if shape == "oblivious":
        of_level = np.concatenate(
            [start + (1 << np.frexp(np.arange(stop - start) + 1)[1] - 1) - 1 for start, stop in pairwise(node_offsets)]
            + [np.zeros(0, np.int64)]
        )
        feature, threshold, routing = feature[of_level], threshold[of_level], routing[of_level]
        fields |= _of_nodes(fields, of_level) if categorical else {}
    if linear:
        fields |= linear_models(rng, n_leaves, n_features, linear)
        threshold = np.where(np.abs(threshold) < ZERO_THRESHOLD, ZERO_THRESHOLD, threshold)  # as LightGBM's are
    return Forest(
        n_features=n_features,
        node_offsets=np.array(node_offsets, np.int64),
        leaf_offsets=np.array(leaf_offsets, np.int64),
        feature=feature,
        threshold=threshold,
        left=np.array(left, np.int32),
        right=np.array(right, np.int32),
        routing=routing,
        leaf_value=rng.normal(size=(n_leaves, n_outputs if vector_leaves else 1)),
        n_outputs=n_outputs,
        tree_output=(np.arange(n_trees) % n_outputs).astype(np.int32),
        base_score=rng.normal(size=n_outputs),
        **fields,  # type: ignore[arg-type]
    )


def joined(parts: Sequence[Forest]) -> Forest:
    """One forest with the trees of several forests without categories, in order."""
    sizes = np.concatenate([np.diff(part.leaf_offsets) for part in parts])
    names = ("feature", "threshold", "left", "right", "routing", "leaf_value")
    return Forest(
        n_features=max(part.n_features for part in parts),
        node_offsets=np.append(0, np.cumsum(sizes - 1)),
        leaf_offsets=np.append(0, np.cumsum(sizes)),
        **{name: np.concatenate([getattr(part, name) for part in parts]) for name in names},
    )


def repeated(forest: Forest, times: int) -> Forest:
    """A large forest: the trees of a forest without categories, repeated ``times`` times."""
    return joined([forest] * times)


def _category_sets(rng: np.random.Generator, nodes: np.ndarray, routing: np.ndarray) -> dict[str, np.ndarray]:
    """Make some nodes categorical: their routing (in place), and the forest's category sets."""
    ways = [SET_RIGHT, NEGATIVE_FRACTION_IS_ZERO, WHOLE_CODES]
    for way in ways:
        routing[nodes & (rng.random(len(nodes)) < 0.5)] |= way
    routing[nodes] |= CATEGORICAL
    pool = [np.bitwise_and(*rng.integers(0, 1 << 32, (2, size), np.uint32)) for size in (0, 1, 1, 2, 3)]
    sets = [pool[int(rng.integers(len(pool)))] if categorical else pool[0] for categorical in nodes]
    return {
        "category_offsets": np.cumsum([0, *(len(words) for words in sets)]),
        "category_words": np.concatenate([*sets, np.zeros(0, np.uint32)]),
    }


def _of_nodes(sets: dict[str, np.ndarray], nodes: np.ndarray) -> dict[str, np.ndarray]:
    """The category sets of these nodes in turn."""
    bounds = sets["category_offsets"]
    words = [sets["category_words"][bounds[node] : bounds[node + 1]] for node in nodes]
    return {
        "category_offsets": np.cumsum([0, *map(len, words)]),
        "category_words": np.concatenate([*words, np.zeros(0, np.uint32)]),
    }


def linear_models(rng: np.random.Generator, n_leaves: int, n_features: int, share: float) -> dict[str, np.ndarray]:
    """The fields for linear models in a share of the leaves, each a constant and up to four terms."""
    sizes = np.where(rng.random(n_leaves) < share, rng.integers(1, 6, n_leaves), 0)
    offsets = np.append(0, np.cumsum(sizes)).astype(np.int64)
    feature = rng.integers(0, n_features, offsets[-1]).astype(np.int32)
    feature[offsets[:-1][sizes > 0]] = -1
    return {"linear_offsets": offsets, "linear_feature": feature, "linear_coefficient": rng.normal(size=offsets[-1])}


def _grow(rng: np.random.Generator, n_leaves: int, shape: str) -> tuple[list[int], list[int]]:
    """Children of a tree's nodes; leaves are numbered as by LightGBM (the split leaf stays left), except in zigzags."""
    left: list[int] = []
    right: list[int] = []
    if shape == "zigzag":
        _zigzag(n_leaves, iter(range(n_leaves)), left, right)
        return left, right
    holder: list[tuple[int, int] | None] = [None]  # (node, side) that each leaf hangs from
    for node in range(n_leaves - 1):
        pick = {"random": int(rng.integers(len(holder))), "chain": len(holder) - 1, "complete": 0}[shape]
        if shape == "complete":
            pick = node - (1 << (node + 1).bit_length() - 1) + 1
        place = holder[pick]
        if place is not None:
            (left if place[1] == 0 else right)[place[0]] = node
        left.append(~pick)
        right.append(~len(holder))
        holder[pick] = (node, 0)
        holder.append((node, 1))
    return left, right


def _zigzag(n_leaves: int, leaves: Iterator[int], left: list[int], right: list[int]) -> int:
    """Append the nodes of a subtree; return its root, or its only leaf."""

    def node(*sizes: Any) -> int:
        at = len(left)
        left.append(0)
        right.append(0)
        for side, size in zip((left, right), sizes, strict=True):
            side[at] = node(*size) if isinstance(size, tuple) else _zigzag(size, leaves, left, right)
        return at

    if n_leaves == 1:
        return ~next(leaves)
    between = n_leaves - 2
    return node((between // 2, 1), (1, between - between // 2)) if n_leaves > 3 else node(1, n_leaves - 1)


def probing_documents(rng: np.random.Generator, forest: Forest, n: int, dtype: type = np.float64) -> np.ndarray:
    """Documents of random values, special values, thresholds, and values one ulp to either side of them."""
    X = rng.normal(size=(n, forest.n_features)) * 1.5
    kind = rng.integers(0, 5, X.shape)
    X[kind == 1] = rng.choice(SPECIAL, int((kind == 1).sum()))
    if forest.has_categories:
        kind = np.where(rng.random(X.shape) < 0.6, 5, kind)
        codes = rng.integers(-2, 100, X.shape) + rng.choice([0, 0, 0, 0.5, -1e-9], X.shape)
        X = np.where(kind == 5, codes, X)
    with np.errstate(over="ignore"):
        X = X.astype(dtype)
    for f in range(forest.n_features):
        with np.errstate(over="ignore"):
            thresholds = forest.threshold[forest.feature == f].astype(dtype)
        if len(thresholds):
            for code, toward in ((2, None), (3, np.inf), (4, -np.inf)):
                rows = np.flatnonzero(kind[:, f] == code)
                x = rng.choice(thresholds, len(rows))
                X[rows, f] = x if toward is None else np.nextafter(x, dtype(toward))
    return X


def forest_of_stumps(threshold: np.ndarray, rng: np.random.Generator, **fields: object) -> Forest:
    """One feature, and one tree of two leaves for each threshold; missing values go either way."""
    n = len(threshold)
    return Forest(
        n_features=1,
        node_offsets=np.arange(n + 1),
        leaf_offsets=np.arange(n + 1) * 2,
        feature=np.zeros(n, np.int32),
        threshold=np.asarray(threshold, np.float64),
        left=np.full(n, ~0, np.int32),
        right=np.full(n, ~1, np.int32),
        routing=rng.choice(np.array([0, NAN_LEFT], np.uint8), n),
        leaf_value=rng.normal(size=(2 * n, 1)),
        **fields,  # type: ignore[arg-type]
    )


def forest_of_columns(rng: np.random.Generator, lengths: list[int], infinite: bool = False, **fields: object) -> Forest:
    """``lengths[f]`` stumps for each feature f, all thresholds distinct; ``infinite``: the outermost are infinite."""
    thresholds = []
    for n in lengths:
        of_feature = np.arange(n) * 0.75 - rng.integers(0, n + 1)
        if infinite and n > 2:
            of_feature[[0, -1]] = -np.inf, np.inf
        thresholds.append(rng.permutation(of_feature))
    stumps = forest_of_stumps(np.concatenate(thresholds), rng, **fields)
    feature = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    return replace(stumps, n_features=len(lengths), feature=feature)


def leaning_forest(n_left: int, n_features: int) -> Forest:
    """One tree: left of the root a complete subtree of ``n_left`` leaves (a power of two), right of it a leaf."""
    inner = n_left - 1
    child = 2 * np.arange(inner)[:, None] + np.array([1, 2])
    child = np.where(child < inner, child + 1, inner - 1 - child)
    rng = np.random.default_rng(0)
    return Forest(
        n_features=n_features,
        node_offsets=np.array([0, inner + 1]),
        leaf_offsets=np.array([0, n_left + 1]),
        feature=np.append(0, np.arange(inner) % n_features).astype(np.int32),
        threshold=np.append(3.0, rng.normal(size=inner)),
        left=np.append(1, child[:, 0]).astype(np.int32),
        right=np.append(~n_left, child[:, 1]).astype(np.int32),
        routing=np.zeros(inner + 1, np.uint8),
        leaf_value=rng.normal(size=(n_left + 1, 1)),
    )


def threshold_documents(rng: np.random.Generator, forest: Forest, dtype: type = np.float64) -> np.ndarray:
    """Documents in which every feature takes each of its thresholds, their neighbours and special values."""
    columns = []
    for f in range(forest.n_features):
        with np.errstate(over="ignore"):
            t = np.unique(forest.threshold[forest.feature == f].astype(dtype))
            special = np.array(SPECIAL).astype(dtype)
        up, down = np.nextafter(t, dtype(np.inf)), np.nextafter(t, dtype(-np.inf))
        columns.append(rng.permutation(np.concatenate([t, up, down, special])))
    n = max(len(c) for c in columns)
    return np.stack([np.resize(c, n) for c in columns], axis=1)


def exit_leaf_by_walk(forest: Forest, tree: int, x: np.ndarray) -> int:
    """The exit leaf of one document, as the forest numbers leaves, by the definition of a tree."""
    nodes, leaves = forest.node_offsets[tree], forest.leaf_offsets[tree]
    if forest.node_offsets[tree + 1] == nodes:
        return int(leaves)
    at = 0
    while at >= 0:
        node = nodes + at
        value, routing = float(x[forest.feature[node]]), forest.routing[node]
        goes_left = value <= forest.threshold[node]
        if routing & CATEGORICAL:
            goes_left = _in_set(forest, node, value) != bool(routing & SET_RIGHT)
        zero = not routing & CATEGORICAL and routing & ZERO_MISSING and abs(value) <= ZERO_THRESHOLD
        if value != value or zero:
            goes_left = bool(routing & NAN_LEFT)
        at = int(forest.left[node] if goes_left else forest.right[node])
    return int(leaves + ~at)


def _in_set(forest: Forest, node: int, value: float) -> bool:
    words = forest.category_words[forest.category_offsets[node] : forest.category_offsets[node + 1]]
    routing = int(forest.routing[node])
    lowest = -1 if routing & NEGATIVE_FRACTION_IS_ZERO else 0
    if not (value > lowest or value == lowest == 0) or value >= 32 * len(words) or not len(words):
        return False
    code = int(value)
    return bool(int(words[code // 32]) >> code % 32 & 1) and not (routing & WHOLE_CODES and code != value)


def _with(**fields: Any) -> Callable[[np.random.Generator], Forest]:
    return lambda rng: random_forest(rng, **fields)


def _of_shared_vectors(rng: np.random.Generator) -> Forest:
    """Trees with few distinct leaf vectors; trees too large for tables share one copy of each."""
    forest = random_forest(rng, n_trees=12, max_leaves=300, n_outputs=20, vector_leaves=True, shape="complete")
    return replace(forest, leaf_value=forest.leaf_value[:9][rng.integers(0, 9, len(forest.leaf_value))])


def _of_all_sizes(rng: np.random.Generator) -> Forest:
    """Single-leaf trees among other trees, also at the ends of tree blocks."""
    small = random_forest(rng, n_trees=40, max_leaves=3)
    leaves_alone = random_forest(rng, n_trees=33, max_leaves=1)
    return joined([small, random_forest(rng, n_trees=70, max_leaves=64), leaves_alone, small])


#: Forests of every kind, by their names.
KINDS: dict[str, Callable[[np.random.Generator], Forest]] = {
    "many trees": _with(n_trees=300, max_leaves=32),
    "all sizes": _of_all_sizes,
    "float32": _with(n_trees=90, max_leaves=64, sum_dtype="float32", input_dtype="float32"),
    "base score last": _with(n_trees=30, base_first=False),
    "outputs by turns": _with(n_trees=150, n_outputs=3),
    "vectors": _with(n_trees=50, n_outputs=5, vector_leaves=True),
    "shared vectors": _of_shared_vectors,
    "oblivious": _with(n_trees=130, max_leaves=64, shape="oblivious"),
    "categories": _with(n_trees=60, max_leaves=40, categorical=0.4),
    "linear leaves": _with(n_trees=60, max_leaves=20, linear=0.5),
    "large": _with(n_trees=9, max_leaves=700, n_features=4, n_thresholds=900, shape="complete"),
    "no trees": _with(n_trees=0),
}
