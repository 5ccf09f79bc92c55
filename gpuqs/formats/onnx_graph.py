"""The nodes around the tree ensemble of an ONNX graph: casts of its input, links after its scores."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import prod
from typing import Any, Final

import numpy as np

from gpuqs.errors import ModelFormatError, UnsupportedModelError

#: Element types of tensors (TensorProto.DataType).
FLOAT: Final = 1
INT32: Final = 6
INT64: Final = 7
DOUBLE: Final = 11
_STRING: Final = 8
_BOOL: Final = 9
_INPUT_TYPES: Final = {FLOAT: "float", INT32: "int32", INT64: "int64", DOUBLE: "double", _BOOL: "bool"}

_ML: Final = "ai.onnx.ml"
_OPERATORS: Final = ("TreeEnsembleRegressor", "TreeEnsembleClassifier")

#: Nodes that transform every score -> their links.
_LINKS: Final = {"Exp": "exp", "Sigmoid": "sigmoid"}
#: Nodes of two inputs that change nothing if one of these is the constant 1.
_PRODUCTS: Final = ("Mul", "Div")

#: Far above any real model; a file may not make us allocate for more.
_MAX_FEATURES: Final = 1 << 24


@dataclass(frozen=True)
class Ensemble:
    """The tree ensemble of a graph.

    Parameters
    ----------
    node : onnx.NodeProto
    compares : {"float32", "float64"}
        Type of thresholds and sums.
    input_dtype, integer_dtype : {"float32", "float64"}
        As in `gpuqs.forest.Forest`.
    n_features : int or None
        Number of columns, if the graph states it.
    link : str
        What nodes after the ensemble apply to the scores.
    largest_is_class : bool
        Whether the graph gives the index of the largest score.
    """

    node: Any
    compares: str
    input_dtype: str
    integer_dtype: str
    n_features: int | None
    link: str
    largest_is_class: bool

    @property
    def is_classifier(self) -> bool:
        return bool(self.node.op_type == "TreeEnsembleClassifier")


def find_ensemble(model: Any) -> Ensemble:
    """The one tree ensemble of an ``onnx.ModelProto``, and what surrounds it.

    Raises
    ------
    ModelFormatError
        The graph is damaged.
    UnsupportedModelError
        There is none, or several, or nodes that change its input or its scores.
    """
    _check_texts(model)
    graph = model.graph
    found = [node for node in graph.node if node.op_type.startswith("TreeEnsemble") and node.domain == _ML]
    if len(found) != 1 or len(model.functions):
        kinds = sorted({node.op_type for node in graph.node})
        raise UnsupportedModelError(
            f"the graph must have one tree ensemble and no functions; it has {len(found)} tree ensembles among its "
            f"nodes {', '.join(kinds)[:200]!r} and {len(model.functions)} functions; if gpuqs reads the "
            "estimator that was converted (gpuqs.from_model) or its library's own file, use that instead"
        )
    node = found[0]
    if node.op_type not in _OPERATORS:
        raise UnsupportedModelError(
            f"operator {node.op_type[:40]!r} is not evaluated, only {' and '.join(_OPERATORS)}; export "
            f"with target_opset={{'': 18, '{_ML}': 3}}"
        )
    if len(node.input) != 1 or not 1 <= len(node.output) <= 2:
        raise ModelFormatError(f"{node.op_type} has {len(node.input)} inputs", field="graph")
    makers = {name: maker for maker in graph.node for name in maker.output if name}
    dtypes, n_features = _input(graph, node, makers)
    return Ensemble(node, *dtypes, n_features, *_outputs(graph, node, makers))


def _check_texts(model: Any) -> None:
    """Refuse names that are not UTF-8, which protobuf gives as bytes or not at all."""
    graph = model.graph
    try:
        names = [value.name for of in (graph.input, graph.output, graph.initializer, graph.node) for value in of]
        for node in graph.node:
            names += [node.op_type, node.domain, *node.input, *node.output]
            names += [attribute.name for attribute in node.attribute]
        names += [model.producer_name, model.producer_version]
        sound = all(isinstance(name, str) for name in names)
    except UnicodeDecodeError:
        sound = False
    if not sound:
        raise ModelFormatError("a name is not UTF-8 text: the file is damaged", field="graph")


def _input(graph: Any, node: Any, makers: dict[str, Any]) -> tuple[tuple[str, str, str], int | None]:
    """Types in which the ensemble compares, and to which documents and integers are cast; and the number of columns."""
    known = {value.name: value.type.tensor_type for value in graph.input}
    for tensor in graph.initializer:
        known.pop(tensor.name, None)
    before = list(_upstream(node.input[0], known, makers))
    casts = []
    for maker in reversed(before):
        if maker.op_type == "Cast" and maker.domain in ("", "ai.onnx"):
            casts.append(_whole(maker, "to", 0))
        elif maker.op_type != "Identity" or maker.domain not in ("", "ai.onnx"):
            raise UnsupportedModelError(
                f"node {maker.op_type[:40]!r} changes the documents before the trees see them, which is not "
                "evaluated; export only the trees, and apply that node to the documents yourself"
            )
    name = _start(before, node.input[0])
    if name is None or len(known) != 1 or name not in known:
        raise UnsupportedModelError(
            f"the graph has {len(known)} inputs, but must have one that holds all features: export with "
            "initial_types=[('X', FloatTensorType([None, n_features]))]"
        )
    kind = known[name].elem_type
    if kind not in _INPUT_TYPES or not {*casts} <= {FLOAT, DOUBLE}:
        raise UnsupportedModelError(
            f"input {name[:40]!r} is of TensorProto.DataType {kind}, and is cast to {casts or 'no other type'}; "
            "supported are "
            f"{', '.join(f'{text} ({number})' for number, text in _INPUT_TYPES.items())}, cast to float or double"
        )
    chain = [kind, *casts]
    compares = "float64" if chain[-1] == DOUBLE else "float32"
    # If float32 occurs anywhere, documents are rounded to it. Integers are compared as floats.
    rounded = FLOAT in chain or chain[-1] != DOUBLE
    cast = "float32" if rounded else "float64"
    dims = known[name].shape.dim
    n_features = int(dims[1].dim_value) if len(dims) == 2 and dims[1].dim_value else None
    if n_features is not None and not 0 < n_features <= _MAX_FEATURES:
        raise ModelFormatError(f"the input has {n_features} columns", field="graph.input")
    return (compares, cast, cast), n_features


def _outputs(graph: Any, node: Any, makers: dict[str, Any]) -> tuple[str, bool]:
    """The link that nodes after the ensemble apply, and whether they give the index of the largest score."""
    classifier = node.op_type == "TreeEnsembleClassifier"
    labels, scores = (node.output[0], node.output[-1]) if classifier else (None, node.output[0])
    constants = {tensor.name for tensor in graph.initializer}
    ends = {name: None for name in (*node.output, *constants)}
    links, largest, of_trees, ones = set(), False, False, _ones(graph)
    for output in graph.output:
        after = list(_upstream(output.name, ends, makers, ones))
        end = _start(after, output.name, ones)
        if end in constants:  # class labels, for example
            continue
        of_trees = True
        link = "identity"
        for maker in reversed(after):
            made = _after(maker, link, end == labels, ones)
            if made is None:
                raise UnsupportedModelError(
                    f"node {maker.op_type[:40]!r} after the trees changes their output, which is not evaluated; load "
                    "the model as its training library saved it, or make the graph return the trees' output: "
                    f"del model.graph.output[:]; model.graph.output.add(name={scores[:500]!r})"
                )
            link = made
        if end not in node.output:
            raise ModelFormatError(f"{output.name[:40]!r} is not computed from the trees' output", field="graph.output")
        if end == scores and link != "class":
            links.add(link)
        largest |= end == scores and link == "class"
    if len(links) > 1 or not of_trees:
        raise UnsupportedModelError(f"the graph returns {len(links)} kinds of scores, not one; export it again")
    return links.pop() if links else "identity", largest


def _after(maker: Any, link: str, of_labels: bool, ones: set[str]) -> str | None:
    """The scores' state after one more node: a link, "class", or None if it is not known."""
    kind, standard = maker.op_type, maker.domain in ("", "ai.onnx")
    if kind == "ZipMap" and maker.domain == _ML and link != "class" and not of_labels:
        return link
    if standard and (kind == "Identity" or (kind in _PRODUCTS and len(_inputs(maker, ones)) == 1)):
        return link
    if kind == "Cast" and standard:
        harmless = (FLOAT, DOUBLE, INT32, INT64, _STRING) if of_labels or link == "class" else (FLOAT, DOUBLE)
        return link if _whole(maker, "to", 0) in harmless else None
    if of_labels or link != "identity" or not standard:
        return None
    if kind == "ArgMax":
        last = _whole(maker, "select_last_index", 0)
        return "class" if _whole(maker, "axis", 0) in (1, -1) and not last else None
    return _LINKS.get(kind)


def _ones(graph: Any) -> set[str]:
    """Names of the constants that equal 1: multiplying or dividing by them changes nothing."""
    of = {FLOAT: ("float_data", "<f4"), DOUBLE: ("double_data", "<f8")}
    found = set()
    for tensor in graph.initializer:
        if tensor.data_type in of and len(tensor.dims) <= 1 and prod(tensor.dims) == 1:
            values, dtype = of[tensor.data_type]
            raw = tensor.raw_data
            held = np.frombuffer(raw, dtype) if len(raw) == int(dtype[2]) else np.array(getattr(tensor, values), dtype)
            if held.tolist() == [1.0]:
                found.add(tensor.name)
    return found


def _inputs(node: Any, ones: Collection[str]) -> list[str]:
    """A node's inputs, except for a 1 by which it multiplies or divides."""
    return [
        name
        for i, name in enumerate(node.input)
        if not (name in ones and node.op_type in _PRODUCTS and (i == 1 or node.op_type == "Mul"))
    ]


def _upstream(
    name: str, ends: dict[str, Any], makers: dict[str, Any], ones: Collection[str] = ()
) -> Iterator[Any]:
    """The nodes that make ``name``, followed upstream to one of ``ends`` or to a node without exactly one input."""
    for _ in range(len(makers) + 1):
        if name in ends:
            return
        maker = makers.get(name)
        if maker is None:
            raise ModelFormatError(f"{name[:40]!r} is not an output of any node", field="graph")
        yield maker
        inputs = _inputs(maker, ones)
        if len(inputs) != 1:
            return
        name = inputs[0]
    raise ModelFormatError("nodes form a cycle", field="graph")


def _start(chain: list[Any], name: str, ones: Collection[str] = ()) -> str | None:
    """The beginning of the chain of nodes that makes ``name``; None if its first node has no or several inputs."""
    if not chain:
        return name
    inputs = _inputs(chain[-1], ones)
    return inputs[0] if len(inputs) == 1 else None


def _whole(node: Any, name: str, default: int) -> int:
    """An integer attribute of a node."""
    return next((int(attribute.i) for attribute in node.attribute if attribute.name == name), default)
