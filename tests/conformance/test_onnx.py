"""ONNX tree ensembles against onnxruntime: every mode, type, transform and surrounding node."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from agreement import assert_reads_or_refuses
from forests import SPECIAL, probing_documents, random_forest, threshold_documents

import gpuqs
from gpuqs.errors import InputError, ModelFormatError, UnsupportedModelError
from gpuqs.forest import CATEGORICAL
from gpuqs.formats import onnx_trees

onnx = pytest.importorskip("onnx")
ort = pytest.importorskip("onnxruntime")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
TYPES = {np.float32: TensorProto.FLOAT, np.float64: TensorProto.DOUBLE, np.int64: TensorProto.INT64}
TYPES[np.int32] = TensorProto.INT32
ML = "ai.onnx.ml"

#: An inner node (mode, feature, threshold, true child, false child, missing goes to true), or the weights of a leaf.
Node = tuple[str, int, float, int, int, int] | dict[int, float]
STUMP: list[Node] = [("BRANCH_LEQ", 0, 0.5, 1, 2, 0), {0: -1.5}, {0: 2.5}]


def operator(
    trees: list[list[Node]],
    labels: list | None = None,
    tensors: bool = False,
    inputs: tuple[str, ...] = ("X",),
    **more: Any,
) -> Any:
    """The operator's node; a classifier if labels are given."""
    rows = [(t, n, node) for t, tree in enumerate(trees) for n, node in enumerate(tree)]
    inner = [("LEAF", 0, 0.0, 0, 0, 0) if isinstance(node, dict) else node for *_, node in rows]
    names = ("modes", "featureids", "values", "truenodeids", "falsenodeids", "missing_value_tracks_true")
    fields = {f"nodes_{name}": list(column) for name, column in zip(names, zip(*inner, strict=True), strict=True)}
    fields |= {"nodes_treeids": [t for t, *_ in rows], "nodes_nodeids": [n for _, n, _ in rows]}
    prefix = "target" if labels is None else "class"
    weights = [(t, n, *item) for t, n, node in rows if isinstance(node, dict) for item in node.items()]
    for name, column in zip(("treeids", "nodeids", "ids", "weights"), zip(*weights, strict=True), strict=True):
        fields[f"{prefix}_{name}"] = list(column)
    if labels is None:
        fields["n_targets"] = 1 + max(output for _, _, output, _ in weights)
    else:
        fields["classlabels_strings" if isinstance(labels[0], str) else "classlabels_int64s"] = labels
    fields |= more
    if tensors:
        for name in {"nodes_values", f"{prefix}_weights", "base_values"} & fields.keys():
            fields[f"{name}_as_tensor"] = numpy_helper.from_array(np.array(fields.pop(name), np.float64), name)
    kind, outputs = ("Regressor", ["Y"]) if labels is None else ("Classifier", ["L", "Y"])
    return helper.make_node(f"TreeEnsemble{kind}", list(inputs), outputs, domain=ML, **fields)


def model_of(
    nodes: Any,
    outputs: list[str] | None = None,
    dtype: type = np.float32,
    n_features: int | None = None,
    opset: int = 3,
) -> Any:
    """A model of these nodes (or one node), whose output types onnxruntime infers."""
    nodes = nodes if isinstance(nodes, list) else [nodes]
    outputs = outputs or list(nodes[-1].output)
    graph = helper.make_graph(
        nodes,
        "trees",
        [helper.make_tensor_value_info("X", TYPES.get(dtype, TensorProto.BOOL), [None, n_features])],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
    )
    versions = [helper.make_opsetid(ML, opset), helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=versions, ir_version=9)


def run(model: Any, X: np.ndarray, n_threads: int = 1) -> list[Any]:
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = n_threads, 4
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {session.get_inputs()[0].name: X})


def scores_of(answer: list[Any]) -> np.ndarray:
    """onnxruntime's scores [D, K], from a tensor or from ZipMap's dictionaries."""
    scores = answer[-1]
    return (
        np.array([list(row.values()) for row in scores])
        if isinstance(scores, list)
        else scores.reshape(len(scores), -1)
    )


def documents(forest: Any, dtype: type) -> np.ndarray:
    rng = np.random.default_rng(7)
    if np.issubdtype(dtype, np.integer):
        return np.concatenate(
            [rng.integers(-4, 9, (400, forest.n_features)), 2**24 + rng.integers(-3, 4, (20, forest.n_features))]
        ).astype(dtype)
    with np.errstate(over="ignore"):  # beyond the largest numbers
        parts = [threshold_documents(rng, forest, dtype)[:500], probing_documents(rng, forest, 300, dtype)]
    return np.concatenate([*parts, rng.integers(-2, 9, (200, forest.n_features)).astype(dtype)])


def check(model: Any, dtype: type = np.float32) -> Any:
    """Compare scores bit by bit with onnxruntime's."""
    read = gpuqs.from_model(model)
    X = documents(read.forest, dtype)
    expected = scores_of(run(model, X))
    for engine in ("auto", "reference"):
        got = read.predict(X, engine=engine).reshape(len(X), -1)
        if got.shape[1] == 1:
            expected = expected[:, -1:]
        np.testing.assert_array_equal(got.astype(np.float32), expected)
    return read


def random_trees(seed: int, n_trees: int, n_outputs: int, per_tree: bool, modes: list[str] = MODES) -> list[list[Node]]:
    rng = np.random.default_rng(seed)
    forest = random_forest(rng, n_trees=n_trees, max_leaves=12, n_features=5)
    trees: list[list[Node]] = []
    for t in range(n_trees):
        first, stop = forest.node_offsets[t : t + 2].tolist()
        n = stop - first
        tree: list[Node] = []
        for node in range(first, stop):
            mode = str(rng.choice(modes))
            value = float(np.float32(np.clip(forest.threshold[node], -1e30, 1e30)))
            if mode in ("BRANCH_EQ", "BRANCH_NEQ"):
                value = float(rng.integers(0, 8))
            children = [int(c) if c >= 0 else n + ~int(c) for c in (forest.left[node], forest.right[node])]
            tree.append((mode, int(forest.feature[node]), value, *children, int(rng.integers(2))))
        outputs = [t % n_outputs] if per_tree else list(range(n_outputs))
        tree += [{k: float(np.float32(rng.normal())) for k in outputs} for _ in range(n + 1)]
        trees.append(tree)
    return trees


def labels_for(dtype: type) -> list | None:
    """Labels for integer dtypes, else None: onnxruntime's regressors do not accept integers, its classifiers do."""
    return [0, 1] if np.issubdtype(dtype, np.integer) else None


@pytest.mark.parametrize("tracks_true", [0, 1])
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("mode", MODES)
def test_modes(mode: str, dtype: type, tracks_true: int) -> None:
    thresholds = [1.0, 0.0, 3.0, 7.0] if mode in MODES[4:] else [1.0, 0.1, -2.0, 3.0, *SPECIAL[1:8]]
    trees = [
        [(mode, 0, float(np.float32(value)), 1, 2, tracks_true), {0: 2.0**i}, {0: 0.0}]
        for i, value in enumerate(thresholds)
    ]
    tensors = dtype is np.float64
    if tensors:
        trees = [
            [(*tree[0][:2], value, *tree[0][3:]), *tree[1:]] for tree, value in zip(trees, thresholds, strict=True)
        ]
    read = check(model_of(operator(trees, labels_for(dtype), tensors), dtype=dtype), dtype)
    assert read.forest.has_categories == (mode in MODES[4:])


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64])
def test_chains_of_equality(dtype: type) -> None:
    """Converters write a category set as a chain of equality tests that share their true child."""
    rng = np.random.default_rng(12)
    trees: list[list[Node]] = []
    for t in range(40):
        n = int(rng.integers(1, 9))
        codes = rng.choice(70 if t % 2 else 12, n, replace=False)
        missing = int(rng.integers(2))
        chain = [("BRANCH_EQ", t % 3, float(code), n, i + 1, missing) for i, code in enumerate(codes)]
        # What follows the chain tests another feature, or (with a true child of its own) the same one.
        after = ("BRANCH_EQ", (t + t // 2) % 3, float(rng.integers(12)), n + 2, n + 3, int(rng.integers(2)))
        chain[-1] = (*chain[-1][:4], n + 1, chain[-1][5])
        trees.append([*chain, {0: 1.0 + t}, after, {0: -2.0 - t}, {0: 0.5}])
    read = check(model_of(operator(trees, labels_for(dtype)), dtype=dtype), dtype)
    assert read.n_leaves == 3 and read.forest.has_categories
    assert read.predict(np.full((1, 3), 3, dtype), "leaf").min() > 0
    trees[7][-3] = ("BRANCH_EQ", 0, 3.0, len(trees[7]) - 4, len(trees[7]) - 1, 0)
    with pytest.raises(ModelFormatError, match=r"tree 7, .*several parents|tree 7, .*no parent"):
        gpuqs.from_model(model_of(operator(trees, labels_for(dtype)), dtype=dtype))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("opset", "tensors"), [(1, False), (2, False), (3, False), (3, True)])
def test_types_and_versions(dtype: type, opset: int, tensors: bool) -> None:
    if tensors and dtype is not np.float64:
        node = operator([STUMP], tensors=True)
        with pytest.raises(ModelFormatError, match=r"field 'nodes_values_as_tensor': has element type 11"):
            gpuqs.from_model(model_of(node, dtype=dtype))
        return
    node = operator(random_trees(1, 20, 1, False), labels_for(dtype), tensors, base_values=[0.3])
    read = check(model_of(node, dtype=dtype, n_features=5, opset=opset), dtype)
    assert read.forest.sum_dtype == ("float64" if dtype is np.float64 else "float32")


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE"])
@pytest.mark.parametrize(("n_targets", "per_tree"), [(1, False), (3, False), (3, True)])
def test_regressors(aggregate: str, n_targets: int, per_tree: bool) -> None:
    node = operator(random_trees(2, 21, n_targets, per_tree), aggregate_function=aggregate)
    read = check(model_of(node))
    assert read.n_trees == 21 and read.n_outputs == n_targets
    if aggregate == "SUM":
        base = [0.1, 0.2, -3e5][:n_targets]
        check(model_of(operator(random_trees(2, 21, n_targets, per_tree), base_values=base)))


@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("n_targets", [1, 2])
def test_transforms_of_regressors(n_targets: int, post: str) -> None:
    model = model_of(operator(random_trees(3, 10, n_targets, False), post_transform=post))
    read = gpuqs.from_model(model)
    X = documents(read.forest, np.float32)
    np.testing.assert_array_equal(read.predict(X).reshape(len(X), -1), scores_of(run(model, X)))


@pytest.mark.parametrize("labels", [[0, 1], [10, 7], ["no", "yes"]])
@pytest.mark.parametrize("base", [None, [-0.0625]])
@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("column", [0, 1])
@pytest.mark.parametrize("positive", [False, True])
def test_two_classes_by_one(positive: bool, column: int, post: str, base: list | None, labels: list) -> None:
    trees = random_trees(4, 8, 1, False)
    for tree in trees:
        for node in tree:
            if isinstance(node, dict):
                weight = node.pop(0)
                node[column] = float(np.float32(abs(weight) / 14)) if positive else weight
    trees.append([("BRANCH_LEQ", 0, 0.5, 1, 2, 0), {column: 0.0}, {column: 0.0}])
    model = model_of(operator(trees, labels, post_transform=post, **({} if base is None else {"base_values": base})))
    sigmoid = post == "LOGISTIC" or (post == "SOFTMAX" and column == 1)
    if (positive and sigmoid) or (column == 1 and base):
        with pytest.raises(UnsupportedModelError, match="is not evaluated the way onnxruntime does"):
            gpuqs.from_model(model)
        return
    read = gpuqs.from_model(model)
    X = documents(read.forest, np.float32)
    classes, scores = run(model, X)
    assert len(np.unique(classes)) == 2
    np.testing.assert_array_equal(read.predict(X, "class"), classes)
    np.testing.assert_array_equal(read.predict(X), scores[:, 1])


def test_class_at_the_bound() -> None:
    """Scores of exactly 1/2 (probabilities) or 0 select the first class."""
    for weights in ([0.25, 0.5, 0.5000001], [-1.0, 0.0, 1e-30]):
        tree = [("BRANCH_LEQ", 0, 0.0, 1, 2, 0), {0: weights[0]}, ("BRANCH_LEQ", 0, 1.0, 3, 4, 0), {0: weights[1]}]
        model = model_of(operator([[*tree, {0: weights[2]}]], ["a", "b"]))
        X = np.array([[-1], [1], [2]], np.float32)
        assert run(model, X)[0].tolist() == ["a", "a", "b"]
        assert gpuqs.from_model(model).predict(X, "class").tolist() == ["a", "a", "b"]


@pytest.mark.parametrize("labels", [[0, 1], ["no", "yes"], [5, 9]])
@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_two_classes_by_both(post: str, labels: list) -> None:
    trees = random_trees(5, 9, 1, False)
    for tree in trees:
        tree[:] = [{0: -node[0], 1: node[0]} if isinstance(node, dict) else node for node in tree]
    model = model_of(operator(trees, labels, post_transform=post))
    read = gpuqs.from_model(model)
    X = documents(read.forest, np.float32)
    classes, scores = run(model, X)
    assert len(np.unique(classes)) == 2
    np.testing.assert_array_equal(read.predict(X, "class"), classes)
    np.testing.assert_array_equal(read.predict(X), scores)
    trees[3][-1][1] += 1.0
    with pytest.raises(UnsupportedModelError, match="two classes with weights for both"):
        gpuqs.from_model(model_of(operator(trees, labels, post_transform=post)))


@pytest.mark.parametrize("labels", [[0, 1, 2], [5, 3, 4], ["x", "y", "z"]])
@pytest.mark.parametrize("post", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize(("per_tree", "base"), [(True, None), (False, None), (True, [0.5, 0.25, -0.75])])
def test_classes(per_tree: bool, base: list | None, post: str, labels: list) -> None:
    more = {} if base is None else {"base_values": base}
    model = model_of(operator(random_trees(6, 12, 3, per_tree), labels, post_transform=post, **more))
    read = gpuqs.from_model(model)
    X = documents(read.forest, np.float32)
    classes, scores = run(model, X)
    assert len(np.unique(classes)) == 3
    np.testing.assert_array_equal(read.predict(X, "class"), classes)
    np.testing.assert_array_equal(read.predict(X), scores)


@pytest.mark.parametrize("post", ["LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_transforms_of_double_ensembles_are_of_floats(n_classes: int, post: str) -> None:
    trees = random_trees(6, 12, n_classes if n_classes > 2 else 1, True)
    node = operator(trees, list(range(n_classes)), tensors=True, post_transform=post)
    model = model_of(node, dtype=np.float64)
    read = gpuqs.from_model(model)
    X = documents(read.forest, np.float64)
    scores = scores_of(run(model, X))
    np.testing.assert_array_equal(read.predict(X).astype(np.float32), scores if n_classes > 2 else scores[:, 1])


def test_classes_without_weights() -> None:
    def forest(weight: float) -> Any:
        leaves = [{0: weight, 2: 0.25}, {1: 0.5}]
        return model_of(operator([[STUMP[0], *leaves], [STUMP[0], *leaves]], [0, 1, 2]))

    X = np.array([[0], [1]], np.float32)
    assert gpuqs.from_model(forest(0.125)).predict(X, "class").tolist() == run(forest(0.125), X)[0].tolist() == [2, 1]
    with pytest.raises(UnsupportedModelError, match="leave classes without weights"):
        gpuqs.from_model(forest(-0.125))


def test_leaves_and_several_threads() -> None:
    trees = random_trees(7, 200, 1, False, MODES[:4])
    model = model_of(operator(trees))
    read = gpuqs.from_model(model)
    X = documents(read.forest, np.float32)
    leaves = read.predict(X, "leaf")
    weights = np.array([[trees[t][leaf][0] for t, leaf in enumerate(row)] for row in leaves[:50].tolist()], np.float32)
    np.testing.assert_array_equal(read.predict(X[:50], "per_tree"), weights)
    bound = 2 * 200 * 2.0**-24 * np.abs(read.predict(X, "per_tree").astype(np.float64)).sum(axis=1)
    for rows in (X, X[:1], X[:30]):
        assert (np.abs(read.predict(rows) - run(model, rows, 4)[0][:, 0]) <= bound[: len(rows)]).all()


# -- what surrounds the trees --------------------------------------------------------------------


def cast(name: str, to: int, made: str) -> Any:
    return helper.make_node("Cast", [name], [made], to=to)


def test_casts_of_the_input() -> None:
    trees = [[("BRANCH_LEQ", 0, float(np.float32(0.1)), 1, 2, 0), {0: 1.0}, {0: 2.0}]]
    to_float = [cast("X", TensorProto.FLOAT, "F"), helper.make_node("Identity", ["F"], ["G"])]
    model = model_of([*to_float, operator(trees, inputs=("G",))], dtype=np.float64)
    read = check(model, np.float64)
    assert read.forest.input_dtype == read.forest.sum_dtype == "float32"
    X = np.array([[0.1], [np.nextafter(np.float64(np.float32(0.1)), 1)]])
    np.testing.assert_array_equal(read.predict(X), run(model, X)[0][:, 0])
    assert read.predict(X).tolist() == [1.0, 1.0]
    to_double = cast("X", TensorProto.DOUBLE, "D")
    model = model_of(
        [to_double, operator([[("BRANCH_LT", 0, 0.1, 1, 2, 0), {0: 0.1}, {0: 0.2}]], tensors=True, inputs=("D",))]
    )
    read = check(model)
    assert read.forest.input_dtype == "float32" and read.forest.sum_dtype == "float64"
    bad = cast("X", TensorProto.INT64, "I")
    with pytest.raises(UnsupportedModelError, match=r"cast to \[7\]; supported are float \(1\)"):
        gpuqs.from_model(model_of([bad, operator([STUMP], inputs=("I",))]))


@pytest.mark.parametrize("kind", ["Exp", "Sigmoid"])
def test_links_after_the_trees(kind: str) -> None:
    after = [helper.make_node("Identity", ["Y"], ["Z"]), helper.make_node(kind, ["Z"], ["W"])]
    model = model_of([operator(random_trees(8, 9, 2, False)), *after])
    read = gpuqs.from_model(model)
    X = documents(read.forest, np.float32)
    np.testing.assert_allclose(read.predict(X), scores_of(run(model, X)), rtol=1e-6, atol=1e-7)


def test_nodes_that_change_nothing() -> None:
    trees = random_trees(9, 9, 3, True)
    zipped = helper.make_node("ZipMap", ["Y"], ["Z"], domain=ML, classlabels_strings=["a", "b", "c"])
    labels = [helper.make_node("Identity", ["L"], ["M"]), zipped]
    model = model_of([operator(trees, ["a", "b", "c"]), *labels], ["M", "Z"])
    read = check(model)
    X = documents(read.forest, np.float32)
    np.testing.assert_array_equal(read.predict(X, "class"), run(model, X)[0])
    largest = [helper.make_node("ArgMax", ["Y"], ["I"], axis=1, keepdims=0), cast("I", TensorProto.INT32, "J")]
    model = model_of([operator(trees), *largest], ["J", "Y"])
    read = check(model)
    np.testing.assert_array_equal(read.predict(X, "class"), run(model, X)[0])


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize(("kind", "inputs"), [("Mul", ["Y", "one"]), ("Mul", ["one", "Y"]), ("Div", ["Y", "one"])])
def test_factors_of_one(kind: str, inputs: list[str], raw: bool) -> None:
    def model(factor: float) -> Any:
        made = model_of([operator(random_trees(9, 9, 2, True)), helper.make_node(kind, inputs, ["Z"])])
        values = np.float32(factor).tobytes() if raw else [factor]
        made.graph.initializer.append(helper.make_tensor("one", TensorProto.FLOAT, [1], values, raw=raw))
        return made

    check(model(1.0))
    with pytest.raises(UnsupportedModelError, match=f"node '{kind}' after the trees"):
        gpuqs.from_model(model(2.0))


@pytest.mark.parametrize("kind", ["Mul", "Div"])
def test_what_is_no_factor_of_one(kind: str) -> None:
    """1 / Y is not a factor of one, nor is a 1 whose shape turns each score into a row."""
    for inputs, dims in ((["one", "Y"], [1] * (kind == "Div")), (["Y", "one"], [1, 1, 1])):
        model = model_of([operator(random_trees(9, 9, 2, True)), helper.make_node(kind, inputs, ["Z"])])
        if dims:
            model.graph.initializer.append(helper.make_tensor("one", TensorProto.FLOAT, dims, [1.0]))
        with pytest.raises(UnsupportedModelError, match=f"node '{kind}' after the trees"):
            gpuqs.from_model(model)


def test_what_is_said_of_nodes_after_the_trees_helps() -> None:
    model = model_of([operator([STUMP]), helper.make_node("Abs", ["Y"], ["Z"])])
    with pytest.raises(UnsupportedModelError) as refused:
        gpuqs.from_model(model)
    advice = str(refused.value).partition("return the trees' output: ")[2]
    exec(advice, {"model": model})
    assert gpuqs.from_model(model).predict(np.array([[0.0], [1.0]], np.float32)).tolist() == [-1.5, 2.5]


def test_outputs_that_are_constants() -> None:
    copied = helper.make_node("Identity", ["kept"], ["labels"])  # as skl2onnx gives class labels
    for nodes, name in (([copied], "kept"), ([], "labels")):
        trees = operator(random_trees(9, 9, 3, True), ["a", "b", "c"])
        model = model_of([*nodes, trees], ["L", "Y", "labels"])
        model.graph.initializer.append(helper.make_tensor(name, TensorProto.STRING, [3], [b"a", b"b", b"c"]))
        read = gpuqs.from_model(model)
        X = documents(read.forest, np.float32)
        np.testing.assert_array_equal(read.predict(X), run(model, X)[1])
        del model.graph.output[:2]
        with pytest.raises(UnsupportedModelError, match="returns 0 kinds of scores"):
            gpuqs.from_model(model)


def test_bools() -> None:
    nodes = [cast("X", TensorProto.FLOAT, "F"), operator([STUMP], inputs=("F",))]
    X = np.array([[False], [True]])
    model = model_of(nodes, dtype=np.bool_)
    np.testing.assert_array_equal(gpuqs.from_model(model).predict(X), run(model, X)[0][:, 0])


def test_a_graph_without_the_number_of_columns() -> None:
    model, X = model_of(operator([STUMP])), np.zeros((3, 4), np.float32)
    with pytest.raises(InputError, match="X has 4 features; the model was trained on 1") as refused:
        gpuqs.from_model(model).predict(X)
    exec(str(refused.value).partition("set ")[2] + " = 4", {"model": model})
    np.testing.assert_array_equal(gpuqs.from_model(model).predict(X), run(model, X)[0][:, 0])


REFUSED = {
    "Scaler": (
        [helper.make_node("Scaler", ["X"], ["S"], domain=ML, scale=[2.0]), operator([STUMP], inputs=("S",))],
        None,
    ),
    "Normalizer": ([operator([STUMP]), helper.make_node("Normalizer", ["Y"], ["N"], domain=ML, norm="L1")], None),
    "Mul": ([operator([STUMP]), helper.make_node("Mul", ["Y", "Y"], ["M"])], None),
    "Cast": ([operator([STUMP]), cast("Y", TensorProto.INT64, "I")], None),
    "ArgMax": ([operator([STUMP]), helper.make_node("ArgMax", ["Y"], ["I"], axis=0)], None),
    "several|kinds of scores": ([operator([STUMP]), helper.make_node("Exp", ["Y"], ["E"])], ["Y", "E"]),
    "has 2 tree ensembles": ([operator([STUMP]), operator([STUMP])], None),
    "has 0 tree ensembles": ([helper.make_node("Identity", ["X"], ["Y"])], None),
    "'TreeEnsemble' is not evaluated": ([helper.make_node("TreeEnsemble", ["X"], ["Y"], domain=ML)], None),
    "aggregate_function MIN": ([operator([STUMP], aggregate_function="MIN")], None),
    "aggregate_function MAX": ([operator([STUMP], aggregate_function="MAX")], None),
    "AVERAGE with base_values": ([operator([STUMP], aggregate_function="AVERAGE", base_values=[1.0])], None),
    # onnxruntime adds a base value only where a document met a weight.
    "base_values of a target": ([operator([[STUMP[0], {0: 1.0, 1: 2.0}, {0: 3.0}]], base_values=[10.0, 20.0])], None),
    "base_values of a class": ([operator([[STUMP[0], {0: -1.0}, {}]], [0, 1], base_values=[0.5])], None),
    # Even if they are zeros: onnxruntime then takes the first column for the second class's.
    "two classes with base_values": (
        [operator([[STUMP[0], {0: 1.0, 1: -1.0}, {0: -3.0, 1: 3.0}]], [0, 1], base_values=[0.0, 0.0])],
        None,
    ),
    "PROBIT": ([operator([STUMP], post_transform="PROBIT")], None),
    "SOFTMAX_ZERO": ([operator(random_trees(0, 2, 3, False), [0, 1, 2], post_transform="SOFTMAX_ZERO")], None),
    "one class": ([operator([STUMP], [4])], None),
    r"tests x == 0\.5": ([operator([[("BRANCH_EQ", 0, 0.5, 1, 2, 0), {0: 1.0}, {0: 2.0}]])], None),
    r"tests x != -1\.0": ([operator([[("BRANCH_NEQ", 0, -1.0, 1, 2, 0), {0: 1.0}, {0: 2.0}]])], None),
}


@pytest.mark.parametrize("named", REFUSED)
def test_refused_by_name(named: str) -> None:
    nodes, outputs = REFUSED[named]
    with pytest.raises(UnsupportedModelError, match=f"onnx.ModelProto: .*({named})"):
        gpuqs.from_model(model_of(nodes, outputs))


# -- converted models ----------------------------------------------------------------------------


@cache
def converted(kind: str) -> Any:
    from trained import labels, lightgbm_trained, rows, xgboost_trained

    X, target = rows(np.random.default_rng(3), 400)
    if kind.startswith(("lgb ", "xgb ")):
        tools = pytest.importorskip("onnxmltools")
        types = [("X", tools.convert.common.data_types.FloatTensorType([None, X.shape[1]]))]
        if kind.startswith("lgb "):
            return tools.convert_lightgbm(lightgbm_trained(kind[4:]).booster, initial_types=types)
        return tools.convert_xgboost(xgboost_trained(kind[4:]).booster, initial_types=types)
    to_onnx = pytest.importorskip("skl2onnx").to_onnx
    import sklearn.ensemble as ensembles

    y = target if kind.endswith("Regressor") else labels("binary" if kind.endswith("2") else "class", target)
    estimator = getattr(ensembles, kind.rstrip("2"))(n_estimators=7, max_depth=4, random_state=0)
    return to_onnx(estimator.fit(X.astype(np.float32), y), X[:1].astype(np.float32))


CONVERTED = ["lgb regression", "lgb nan", "lgb poisson", "lgb binary", "lgb multiclass", "xgb regression", "xgb nan"]
CONVERTED += [
    "lgb categories",
    "xgb categories",
    "xgb categories of classes",
    "xgb binary",
    "xgb softprob",
    "RandomForestRegressor",
    "ExtraTreesClassifier",
]
CONVERTED += ["RandomForestClassifier2", "GradientBoostingRegressor", "GradientBoostingClassifier2"]


@pytest.mark.parametrize("kind", CONVERTED)
def test_converted(kind: str, tmp_path: Path) -> None:
    model = converted(kind)
    path = tmp_path / "model"
    path.write_bytes(model.SerializeToString())
    read = gpuqs.load(path)
    X = documents(read.forest, np.float32)
    answer = run(model, X)
    expected = scores_of(answer)[:, -read.n_outputs :]
    exact = read.forest.link == "identity"
    np.testing.assert_allclose(
        read.predict(X).reshape(expected.shape), expected, rtol=0 if exact else 1e-6, atol=0 if exact else 3e-7
    )
    if len(answer) == 2:
        np.testing.assert_array_equal(read.predict(X, "class"), answer[0])


@pytest.mark.parametrize("kind", ["Regressor", "Classifier", "Classifier of three"])
def test_catboost_writes_onnx(kind: str, tmp_path: Path) -> None:
    catboost = pytest.importorskip("catboost")
    from trained import labels, rows

    X, target = rows(np.random.default_rng(3), 400)
    y = target if kind == "Regressor" else labels("class" if kind.endswith("three") else "binary", target).astype(int)
    trainer = getattr(catboost, f"CatBoost{kind.split()[0]}")(iterations=6, depth=3, verbose=0, thread_count=1)
    trainer.fit(X.astype(np.float32), y).save_model(str(tmp_path / "m"), format="onnx")
    model = onnx.load(str(tmp_path / "m"))
    read = gpuqs.load(tmp_path / "m")
    X = documents(read.forest, np.float32)
    answer = run(model, X)
    np.testing.assert_allclose(read.predict(X).reshape(len(X), -1), scores_of(answer), atol=3e-7)
    if kind != "Regressor":
        np.testing.assert_array_equal(read.predict(X, "class"), answer[0])


# -- bad input -----------------------------------------------------------------------------------


def edited(name: str, **fields: Any) -> Any:
    """A model of two trees with one attribute changed, or (without fields) removed."""
    model = model_of(operator([STUMP, STUMP]))
    attributes = model.graph.node[0].attribute
    (at,) = [i for i, attribute in enumerate(attributes) if attribute.name == name]
    if not fields:
        del attributes[at]
    for key, value in fields.items():
        held = getattr(attributes[at], key)
        if isinstance(value, dict):
            for place, item in value.items():
                held[place] = item
        else:
            del held[:]
            held.extend(value)
    return model


BAD = {
    "nodes_truenodeids': node 0: child is not a node": ("nodes_truenodeids", {"ints": {3: 7}}),
    "tree 1, field 'nodes_falsenodeids'": ("nodes_falsenodeids", {"ints": {3: -1}}),
    "tree 0, field 'nodes_truenodeids/nodes_falsenodeids': node 2: the node has several": (
        "nodes_truenodeids",
        {"ints": {0: 2}},
    ),
    "tree 1, .*: node 0: the node has several parents .or is a root": ("nodes_truenodeids", {"ints": {3: 0}}),
    "holds 5 values, not 6": ("nodes_values", {"floats": [0.0] * 5}),
    "nodes_modes': node 0: mode 'BRANCH_ODD'": ("nodes_modes", {"strings": {0: b"BRANCH_ODD"}}),
    "tree 0, field 'nodes_modes'.*first node is a leaf": ("nodes_modes", {"strings": {0: b"LEAF"}}),
    "the ensemble has no nodes": ("nodes_nodeids", {}),
    "tree 1, field 'nodes_nodeids': node 0 appears twice": ("nodes_nodeids", {"ints": {4: 0}}),
    "tree 2, field 'nodes_treeids': nodes are not contiguous": ("nodes_treeids", {"ints": {2: 1, 3: 0, 4: 0, 5: 0}}),
    "feature is not in": ("nodes_featureids", {"ints": {0: -1}}),
    "nodes_featureids': node 0: feature is not": ("nodes_featureids", {"ints": {3: 2**40}}),
    "threshold is NaN": ("nodes_values", {"floats": {0: np.nan}}),
    "value is not finite": ("target_weights", {"floats": {0: np.inf}}),
    "a weight does not belong to a leaf": ("target_nodeids", {"ints": {0: 0}}),
    "field 'target_nodeids': a weight": ("target_treeids", {"ints": {0: 5}}),
    "two weights for one output": ("target_nodeids", {"ints": {0: 2}}),
    "target_ids": ("target_ids", {"ints": {0: 1}}),
    "holds 0 values, not 4": ("target_ids", {}),
}


@pytest.mark.parametrize("problem", BAD)
def test_damaged(problem: str) -> None:
    name, fields = BAD[problem]
    with pytest.raises(ModelFormatError, match=f"onnx.ModelProto.*({problem})"):
        gpuqs.from_model(edited(name, **fields))


def test_huge_and_foreign() -> None:
    for more, problem in (
        ({"n_targets": 2**40}, "field 'n_targets'"),
        ({"n_targets": 0}, "field 'n_targets'"),
        ({"base_values": [1.0, 2.0]}, "field 'base_values': holds 2 values for 1"),
        ({"n_targets": 1.5}, "field 'n_targets': is of type"),
    ):
        with pytest.raises(ModelFormatError, match=problem):
            gpuqs.from_model(model_of(operator([STUMP], **more)))
    with pytest.raises(ModelFormatError, match="columns"):
        gpuqs.from_model(model_of(operator([STUMP]), n_features=2**40))
    wide = [[*STUMP[:2], {65_000: 1.0}]] * 1000
    with pytest.raises(ModelFormatError, match="too much memory"):
        gpuqs.from_model(model_of(operator(wide)))
    with pytest.raises(ModelFormatError, match="classlabels_strings': a label is longer"):
        gpuqs.from_model(model_of(operator([STUMP], ["a", "b" * 2000])))
    node = operator([STUMP], tensors=True)
    tensor = next(attribute.t for attribute in node.attribute if attribute.name == "nodes_values_as_tensor")
    tensor.data_location = TensorProto.EXTERNAL
    with pytest.raises(ModelFormatError, match="lies in another file"):
        gpuqs.from_model(model_of(node, dtype=np.float64))
    loop = [helper.make_node("Identity", ["B"], ["A"]), helper.make_node("Identity", ["A"], ["B"])]
    with pytest.raises(ModelFormatError, match="cycle"):
        gpuqs.from_model(model_of([*loop, operator([STUMP], inputs=("A",))]))
    with pytest.raises(UnsupportedModelError, match="one that holds all features"):
        gpuqs.from_model(model_of([helper.make_node("Cast", [], ["A"], to=1), operator([STUMP], inputs=("A",))]))
    with pytest.raises(ModelFormatError, match="is not computed from the trees' output"):
        gpuqs.from_model(model_of([operator([STUMP]), helper.make_node("Identity", [], ["Z"])]))
    with pytest.raises(ModelFormatError, match="is not an output of any node"):
        gpuqs.from_model(model_of(operator([STUMP]), ["nothing"]))


def test_recognised_by_content() -> None:
    data = model_of(operator([STUMP])).SerializeToString()
    assert onnx_trees.recognises(data[:4096])
    for other in (
        b"",
        b"\x08",
        b"tree\nversion=v4\n",
        b'{"learner": {}}',
        b"\x08\x09\x7f\x01",
        b"\x08\x01\x12\x04\x0a\x02ab",  # CoreML
        b"\x08\x09\x3a\x02ab\xff\xff",
    ):
        assert not onnx_trees.recognises(other)
    with pytest.raises(ModelFormatError, match="truncated or damaged"):
        gpuqs.load(data[:-20])
    np.testing.assert_array_equal(gpuqs.load(data).predict(np.array([[0], [1]], np.float32)), [-1.5, 2.5])


def test_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    data = model_of(operator([STUMP])).SerializeToString()
    monkeypatch.setitem(__import__("sys").modules, "onnx", None)
    with pytest.raises(UnsupportedModelError, match="pip install onnx"):
        gpuqs.load(data)


def test_a_name_that_is_no_text_without_protobufs_compiled_modules() -> None:
    data = model_of(operator(random_trees(2, 3, 1, False)), n_features=5).SerializeToString()
    assert data.count(b"nodes_modes") == 1
    code = "import sys, gpuqs; gpuqs.load(sys.stdin.buffer.read())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=data.replace(b"nodes_modes", b"nodes_mod\xed\xed"),
        capture_output=True,
        env={**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": "python"},
    )
    assert b"gpuqs.errors.ModelFormatError" in done.stderr and b"damaged" in done.stderr


def test_mutated_bytes() -> None:
    """Whatever the bytes: the result is a forest whose leaves are all numbers, or one of our errors."""
    data = model_of(operator(random_trees(10, 3, 1, False), base_values=[0.5]), n_features=5).SerializeToString()
    rng = np.random.default_rng(11)
    X = rng.normal(size=(3, 5)).astype(np.float32)

    def broken() -> bytes:
        copy = bytearray(data)
        for _ in range(rng.integers(1, 4)):
            copy[rng.integers(len(copy))] = rng.integers(256)
        return bytes(copy)

    assert_reads_or_refuses((broken() for _ in range(1500)), X)


def test_equality_is_a_category_set() -> None:
    forest = gpuqs.from_model(model_of(operator([[("BRANCH_EQ", 0, 40.0, 1, 2, 0), {0: 1.0}, {0: 2.0}]]))).forest
    assert forest.routing[0] & CATEGORICAL and forest.category_words.tolist() == [0, 1 << 8]
