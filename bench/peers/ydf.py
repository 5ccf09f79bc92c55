"""YDF, which has QuickScorer: the forest is built node by node, since YDF reads no other library's files."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuqs.forest import Forest
from gpuqs.layout.columns import round_down
from peers.base import Contender, OfThreads, Peer, Source, has_categories, larger_than

#: Limit, since YDF's nodes are Python objects while the model is built.
MAX_NODES = 2_000_000


def refuses(source: Source) -> str | None:
    forest = source.model.forest
    if forest.n_outputs > 1 or has_categories(forest):
        return "built here for one output and numeric tests alone"
    return larger_than(forest, MAX_NODES, "its nodes are made in Python")


def least_right(threshold: np.ndarray) -> np.ndarray:
    """The least float32 that goes right: x > t is x >= the float32 above t."""
    return np.nextafter(round_down(threshold), np.float32(np.inf))


def converted(forest: Forest) -> Any:
    """The forest as a YDF model, right children as its positive ones."""
    import ydf

    names = [f"f{i}" for i in range(forest.n_features)]
    few = {name: np.arange(20, dtype=np.float32) + i for i, name in enumerate(names)}
    learner = ydf.GradientBoostedTreesLearner(
        label="y", task=ydf.Task.REGRESSION, num_trees=1, validation_ratio=0.0, min_examples=1
    )
    model = learner.train(few | {"y": np.arange(20, dtype=np.float32)}, verbose=0)
    model.set_initial_predictions([float(forest.base_score[0])])
    column = dict(zip(model.input_feature_names(), model.input_features_col_idxs(), strict=True))
    column_of = [column[name] for name in names]
    above = least_right(forest.threshold)
    values = forest.leaf_value[:, 0] / (forest.n_trees if forest.average else 1)

    def node(tree: int, at: int) -> Any:
        if at < 0:
            value = float(values[forest.leaf_offsets[tree] + ~at])
            return ydf.tree.Leaf(value=ydf.tree.RegressionValue(num_examples=1.0, value=value))
        number = forest.node_offsets[tree] + at
        return ydf.tree.NonLeaf(
            value=ydf.tree.RegressionValue(num_examples=1.0, value=0.0),
            condition=ydf.tree.NumericalHigherThanCondition(
                missing=False, score=0.0, attribute=column_of[forest.feature[number]], threshold=float(above[number])
            ),
            pos_child=node(tree, int(forest.right[number])),
            neg_child=node(tree, int(forest.left[number])),
        )

    for tree in range(forest.n_trees):
        root = 0 if forest.node_offsets[tree] < forest.node_offsets[tree + 1] else ~0
        model.add_tree(ydf.tree.Tree(root=node(tree, root)))
    model.remove_tree(0)
    model.force_engine(model.list_compatible_engines()[0])
    return model


def build(source: Source) -> OfThreads:
    model = converted(source.model.forest)
    names = [f"f{i}" for i in range(source.X.shape[1])]
    return lambda n: {"YDF": Contender(lambda X: model.predict(dict(zip(names, X.T, strict=True)), num_threads=n))}


PEER = Peer(
    name="YDF",
    package="ydf",
    distribution="ydf",
    rows="a dictionary of the columns of float32 NumPy rows",
    threads="num_threads of each call",
    refuses=refuses,
    build=build,
)
