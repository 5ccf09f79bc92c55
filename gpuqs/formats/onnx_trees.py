"""ONNX models of one TreeEnsembleRegressor or TreeEnsembleClassifier (operators of ai.onnx.ml 1 to 4).

The scores are onnxruntime's: float32 (float64 if the ensemble's input is double; onnxruntime rounds these
to float32 at the end), added up in tree order, ``base_values`` last. Raw scores have the same bits as
onnxruntime's if it adds in that order too, as it does with one thread; if it adds partial sums of
T trees (few documents, many trees, several threads), they differ by at most
``2 T eps (sum of |leaf value| + |base value|)``, eps being 2^-24.

"value" is the operator's scores, bit for bit; for a classifier of two classes with weights for one class, it is their
second column (onnxruntime writes -score or 1 - score in the first). As in onnxruntime, LOGISTIC and SOFTMAX change
nothing in regressors of one target, and SOFTMAX changes nothing in classifiers whose weights are all of class id 0.
"leaf" is a leaf's position among the nodes of its tree as the file lists them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpuqs.errors import ModelFormatError, UnsupportedModelError, naming
from gpuqs.forest import Forest
from gpuqs.formats.onnx_graph import Ensemble, find_ensemble
from gpuqs.formats.onnx_nodes import Attributes, Nodes, Weights
from gpuqs.formats.sklearn_trees import forest_arrays

NAME: Final = "ONNX tree ensembles"

#: The features that are read, by the columns of `gpuqs.formats.FEATURES`.
FEATURES: Final = {
    "files": "`.onnx` of a `TreeEnsembleRegressor` or `TreeEnsembleClassifier` (with the package onnx)",
    "live objects": "`onnx.ModelProto`",
    "missing values": "NaN",
    "categories": "equality with whole numbers, sets of them",
    "outputs": "one, one per class, vector leaves",
    "raw scores": "same bits as onnxruntime's with one thread",
}

_TRANSFORMS: Final = ("NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO")

#: Fields of a ModelProto; a serialised one begins with the first, ir_version.
_MODEL_FIELDS: Final = (*range(1, 9), 14, 20, 25, 26)

#: More outputs than any model has; a file may not make us allocate for more.
_MAX_OUTPUTS: Final = 1 << 16
#: Upper limit of a class label's length: in an array of strings each takes the space of the longest.
_MAX_LABEL: Final = 1000


def recognises(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is a serialised ``onnx.ModelProto``, by its outermost fields.

    Before version 3 of the format there were no trees; CoreML's files begin in a similar way.
    """
    if not re.match(rb"\x08[\x03-\x40][\x12\x1a\x22\x28\x32\x3a\x42]", head):
        return False
    return all(field in _MODEL_FIELDS for field in _fields(head))


def _fields(head: bytes) -> Iterator[int]:
    """Numbers of the protobuf fields that begin in ``head``; -1 for what is no field."""
    at = 0
    while at < len(head):
        key, at = _varint(head, at)
        yield key >> 3 if key & 7 in (0, 2) else -1
        size, at = _varint(head, at)
        at += size if key & 7 == 2 else 0


def _varint(head: bytes, at: int) -> tuple[int, int]:
    value = 0
    for i, byte in enumerate(head[at : at + 10]):
        value |= (byte & 127) << 7 * i
        if byte < 128:
            return value, at + i + 1
    return value, len(head)


def read(data: bytes | memoryview, source: str) -> Forest:
    """Read a serialised ``onnx.ModelProto``.

    Parameters
    ----------
    data : bytes or memoryview
    source : str
        What error messages call the model: its file.

    Raises
    ------
    ModelFormatError
        The model is damaged.
    UnsupportedModelError
        The package onnx is not installed, or the model does something that is not evaluated.
    """
    try:
        import onnx
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise UnsupportedModelError(
            f"{source}: is an ONNX model, which is read with the package onnx; install it: pip install onnx"
        ) from error
    try:
        model = onnx.ModelProto.FromString(bytes(data))
    except (DecodeError, UnicodeDecodeError) as error:  # the latter from protobuf without compiled modules
        raise ModelFormatError(
            f"is not an ONNX model, or is truncated or damaged: {str(error)[:200]}", source=source
        ) from None
    return _forest(model, source)


def from_object(obj: Any) -> Forest | None:
    """The Forest of an ``onnx.ModelProto``; None for anything else."""
    kind = type(obj)
    if kind.__name__ != "ModelProto" or kind.__module__.partition(".")[0] not in ("onnx", "onnx_ml_pb2"):
        return None
    return _forest(obj, "onnx.ModelProto")


def _forest(model: Any, source: str) -> Forest:
    with naming(source):
        fields = _fields_of(find_ensemble(model))
        producer = " ".join(f"{model.producer_name} {model.producer_version}".split())[:40]
        return Forest(source=f"ONNX ({producer})" if producer else "ONNX", **fields)


def _fields_of(ensemble: Ensemble) -> dict[str, Any]:
    """The fields of a Forest that follow from the operator."""
    attributes = Attributes(ensemble.node, ensemble.compares)
    post, aggregate = attributes.text("post_transform", "NONE"), attributes.text("aggregate_function", "SUM")
    average = aggregate == "AVERAGE" and not ensemble.is_classifier
    base = attributes.values("base_values").astype(np.float64)
    if post not in _TRANSFORMS:
        raise _unsupported(f"post_transform {post}")
    if not ensemble.is_classifier and aggregate not in ("SUM", "AVERAGE"):
        raise _unsupported(f"aggregate_function {aggregate}")
    if average and base.any():
        raise _unsupported("aggregate_function AVERAGE with base_values")
    labels = _labels(attributes) if ensemble.is_classifier else ()
    n_columns = len(labels) or attributes.number("n_targets", 1)
    if not 1 <= n_columns <= _MAX_OUTPUTS:
        raise ModelFormatError(f"is {n_columns}, not in [1, {_MAX_OUTPUTS}]", field="n_targets")
    nodes = Nodes(attributes)
    weights = nodes.weights(attributes, "class" if labels else "target", n_columns)
    if len(labels) == 1:
        raise _unsupported("a classifier of one class")
    if len(labels) == 2:
        fields = _two_classes(nodes, weights, labels, base, post)
    elif labels:
        fields = _classes(nodes, weights, labels, base, post)
    else:
        fields = _targets(nodes, weights, n_columns, base, post, ensemble.largest_is_class)
    if ensemble.link != "identity":
        if labels or fields["link"] != "identity":
            raise _unsupported(f"a node after the trees (link {ensemble.link}) with post_transform {post}")
        fields["link"] = ensemble.link
    if fields["n_outputs"] == 1:
        weights = Weights(weights.node, np.zeros_like(weights.output), weights.value)
    values, tree_output = nodes.leaf_values(weights, fields["n_outputs"], vectors=average)
    arrays = forest_arrays([nodes.table(values)])
    return {
        **arrays,
        **fields,
        "leaf_id": nodes.leaf_positions,
        "n_features": ensemble.n_features or int(arrays["feature"].max(initial=0)) + 1,
        "tree_output": tree_output,
        "sum_dtype": ensemble.compares,
        "input_dtype": ensemble.input_dtype,
        "integer_dtype": ensemble.integer_dtype,
        "base_first": False,
        "average": average,
        "objective": f"{ensemble.node.op_type} {post}",
    }


def _unsupported(what: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{what} is not evaluated the way onnxruntime does; export the trees again without it, or load the "
        "model as its training library saved it"
    )


def _labels(attributes: Attributes) -> tuple[Any, ...]:
    texts, numbers = attributes.strings("classlabels_strings"), attributes.ints("classlabels_int64s")
    if bool(texts) == bool(len(numbers)):
        raise ModelFormatError("one of classlabels_strings and classlabels_int64s must be given", field="classlabels")
    if max(map(len, texts), default=0) > _MAX_LABEL:
        raise ModelFormatError(f"a label is longer than {_MAX_LABEL} characters", field="classlabels_strings")
    return tuple(texts or numbers.tolist())


def _always(nodes: Nodes, weights: Weights, n: int) -> npt.NDArray[np.int64]:
    """Outputs, of n, for which some tree has a weight in each of its leaves, so that each document gets one."""
    key, n_weights = np.unique(nodes.tree[weights.node] * n + weights.output, return_counts=True)
    return np.unique(key[n_weights == np.bincount(nodes.tree[nodes.leaf])[key // n]] % n)


def _targets(
    nodes: Nodes, weights: Weights, n: int, base: npt.NDArray[np.float64], post: str, largest_is_class: bool
) -> dict[str, Any]:
    """Outputs of a regressor."""
    if len(base) not in (0, n):
        raise ModelFormatError(f"holds {len(base)} values for {n} targets", field="base_values")
    if n > 1 and not np.isin(np.flatnonzero(base), _always(nodes, weights, n)).all():
        raise _unsupported("base_values of a target for which a document may reach no weight")
    if n > 1 and post == "SOFTMAX_ZERO":
        raise _unsupported(f"post_transform {post}")
    link = {"LOGISTIC": "sigmoid", "SOFTMAX": "softmax"}.get(post, "identity") if n > 1 else "identity"
    fields = {"n_outputs": n, "base_score": base, "link": link}
    return {**fields, "classes": tuple(range(n))} if largest_is_class and n > 1 else fields


def _two_classes(
    nodes: Nodes, weights: Weights, labels: tuple[Any, ...], base: npt.NDArray[np.float64], post: str
) -> dict[str, Any]:
    """Outputs of a classifier of two classes, which has weights for one of them or for both."""
    columns = np.unique(weights.output).tolist()
    if columns == [0, 1]:
        return _both_classes(nodes, weights, labels, base, post)
    if len(base) > 1 or (columns == [1] and base.any()):
        raise _unsupported(f"{len(base)} base_values with weights of only class id {columns[0]}")
    if columns == [1] and post == "SOFTMAX_ZERO":
        raise _unsupported(f"post_transform {post}")
    if base.any() and not len(_always(nodes, weights, 2)):
        raise _unsupported("base_values of a class for which a document may reach no weight")
    link = "sigmoid" if post == "LOGISTIC" or (columns == [1] and post == "SOFTMAX") else "identity"
    # Weights none of which is negative count as probabilities: the second class is chosen if it has more than 1/2.
    probabilities = not (weights.value < 0).any()
    if probabilities and link == "sigmoid":
        raise _unsupported(f"post_transform {post} with no negative weights")
    rule = "value" if probabilities else "raw"
    return {"n_outputs": 1, "base_score": base, "link": link, "classes": labels, "class_rule": rule}


def _both_classes(
    nodes: Nodes, weights: Weights, labels: tuple[Any, ...], base: npt.NDArray[np.float64], post: str
) -> dict[str, Any]:
    """Outputs of a classifier of two classes with weights for both, as CatBoost writes them: w and -w."""
    if len(base) or post == "SOFTMAX_ZERO":
        raise _unsupported(f"weights of two classes with base_values or post_transform {post}")
    table = np.full((len(nodes.leaf), 2), np.nan)
    table[weights.node, weights.output] = weights.value
    if not np.array_equal(table[nodes.leaf, 0], -table[nodes.leaf, 1]):
        raise _unsupported("a classifier of two classes with weights for both, other than w and -w,")
    return {
        "n_outputs": 2,
        "base_score": np.zeros(2),
        "link": {"LOGISTIC": "ova_sigmoid", "SOFTMAX": "softmax"}.get(post, "identity"),
        # onnxruntime gives 0 and 1 here, whatever integers the labels are.
        "classes": labels if isinstance(labels[0], str) else (0, 1),
        "class_rule": "raw",
    }


def _classes(
    nodes: Nodes, weights: Weights, labels: tuple[Any, ...], base: npt.NDArray[np.float64], post: str
) -> dict[str, Any]:
    """Outputs of a classifier of three classes or more."""
    n = len(labels)
    if len(base) not in (0, n):
        raise ModelFormatError(f"holds {len(base)} values for {n} classes", field="base_values")
    if post == "SOFTMAX_ZERO":
        raise _unsupported(f"post_transform {post}")
    # A class without any weight in a document's exit leaves is never chosen: no such document may exist.
    share = np.bincount(weights.node, weights.value > 0, len(nodes.leaf))
    positive = not (weights.value < 0).any() and (share[nodes.leaf] > 0).all()
    if not len(base) and len(_always(nodes, weights, n)) != n and not positive:
        raise _unsupported("a classifier whose leaves leave classes without weights, or with negative ones,")
    link = {"LOGISTIC": "ova_sigmoid", "SOFTMAX": "softmax"}.get(post, "identity")
    return {"n_outputs": n, "base_score": base, "link": link, "classes": labels, "class_rule": "raw"}
