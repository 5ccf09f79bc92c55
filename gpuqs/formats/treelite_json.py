"""Treelite models: its JSON dump (``Model.dump_as_json``) and live ``treelite.Model`` objects.

Scores are those of ``treelite.gtil.predict``: sums in the type of the leaf outputs, in tree order, divided
by the number of trees where they are averaged, base scores last, as float64. Raw scores have the same bits. gtil
takes documents of the leaf outputs' type only: a float32 model casts documents to float32 here.

Outputs are ordered as in gtil's answer [rows, targets, classes], the last two axes made one. "raw" is the margin; in
models that average, it is the average. "leaf" is what ``treelite.gtil.predict_leaf`` gives. Treelite has no
classes: "class" is the largest or the likeliest of its outputs.
"""

from __future__ import annotations

import re
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpuqs.errors import ModelFormatError, UnsupportedModelError, naming
from gpuqs.forest import Forest
from gpuqs.formats.fields import get, numbers, parse_json, whole
from gpuqs.formats.sklearn_trees import forest_arrays
from gpuqs.formats.treelite_trees import MAX_FEATURES, condensed, flag, tables_of
from gpuqs.schema import Schema

NAME: Final = "Treelite JSON"

#: The features that are read, by the columns of `gpuqs.formats.FEATURES`.
FEATURES: Final = {
    "files": "JSON (`dump_as_json`)",
    "live objects": "`treelite.Model`",
    "missing values": "NaN",
    "categories": "codes",
    "outputs": "one, one per class, vector leaves",
    "raw scores": "same bits as `treelite.gtil`'s",
}

#: Postprocessor -> our link, and the name of the factor inside it (ratio_c becomes its negative inverse).
_LINKS: Final = {
    "identity": ("identity", ""),
    "identity_multiclass": ("identity", ""),
    "signed_square": ("sqrt_signed", ""),
    "hinge": ("hinge", ""),
    "sigmoid": ("sigmoid", "sigmoid_alpha"),
    "multiclass_ova": ("ova_sigmoid", "sigmoid_alpha"),
    "exponential": ("exp", ""),
    "exponential_standard_ratio": ("exp2", "ratio_c"),
    "logarithm_one_plus_exp": ("log1p_exp", ""),
    "softmax": ("softmax", ""),
}

#: Postprocessors that gtil applies to the first class of a target only: the others are for all classes.
_OF_ONE_CLASS: Final = (
    *("signed_square", "hinge", "sigmoid", "exponential"),
    *("exponential_standard_ratio", "logarithm_one_plus_exp"),
)

_TYPES: Final = ("float32", "float64")
_MAX_OUTPUTS: Final = 1 << 16


def recognises(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is JSON that begins with one of Treelite's keys."""
    keys = rb"threshold_type|leaf_output_type|num_feature|task_type|average_tree_output"
    return re.match(rb"\s*\{\s*\"(%s)\"\s*:" % keys, head) is not None


def from_object(obj: Any) -> Forest | None:
    """The Forest of a ``treelite.Model``; None for anything else."""
    kinds = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(obj).__mro__}
    if ("treelite", "Model") not in kinds:
        return None
    return read(obj.dump_as_json(pretty_print=False).encode(), "treelite.Model")


def read(data: bytes | memoryview, source: str) -> Forest:
    """Read Treelite's JSON.

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
        A postprocessor or a form of leaves that is not evaluated.
    """
    with naming(source):
        try:
            document = parse_json(data, condensed)
        except ModelFormatError:
            if not re.search(rb"\"threshold\":\s*,", data):
                raise
            raise UnsupportedModelError(
                "Treelite leaves out infinite thresholds, as in tests only for missing values; load the model as its "
                "training library saved it"
            ) from None
        return _forest(document)


def _forest(document: Any) -> Forest:
    dtype = _dtype(document)
    n_targets = whole(document, "num_target", 1, _MAX_OUTPUTS)
    n_classes = _ints(document, "num_class", n_targets, 1, _MAX_OUTPUTS)
    width = int(n_classes.max())
    if n_targets * width > _MAX_OUTPUTS:
        raise ModelFormatError(f"{n_targets} targets of {width} classes are too many", field="num_class")
    #: Which of the outputs [targets x classes] exist.
    real = (np.arange(width) < n_classes[:, None]).ravel()
    trees = get(document, "trees", list)
    if not trees:
        raise ModelFormatError("the model has no trees", field="trees")
    outputs = _outputs_of_trees(document, len(trees), n_targets, width)
    n_features = whole(document, "num_feature", 1, MAX_FEATURES)
    tables = tables_of(trees, outputs, n_targets * width, np.dtype(dtype), real)
    base = numbers(get(document, "base_scores", list), "base_scores", np.float64)
    if len(base) != len(real):
        raise ModelFormatError(f"holds {len(base)} values, not {len(real)}", field="base_scores")
    average = flag(document, "average_tree_output")
    if average:
        _check_average(outputs, base, real)
    link, scale = _link(document, n_targets, width)
    classes: tuple[Any, ...] = ()
    if n_targets == 1 and width > 1 and get(document, "task_type", str, "") == "kMultiClf":
        classes = tuple(range(width))
    scalar = all(len(places) == 1 for places in outputs)
    arrays: dict[str, Any] = forest_arrays(tables)
    return Forest(
        n_features=n_features,
        **arrays,
        sum_dtype=dtype,
        input_dtype=dtype,
        integer_dtype=dtype,
        n_outputs=n_targets * width,
        tree_output=np.array([places[0] if scalar else 0 for places in outputs], np.int32),
        base_score=np.where(real, base, 0.0),
        base_first=False,
        average=average,
        average_raw=average,
        link=link,
        link_scale=scale,
        schema=Schema(absent=np.nan),
        classes=classes,
        source="Treelite",
        objective=f"{get(document, 'task_type', str, '')} {get(document, 'postprocessor', str)}".strip(),
    )


def _dtype(document: Any) -> str:
    """The type of thresholds, documents, leaves and sums."""
    get(document, "trees", list)
    if "threshold_type" not in document:
        raise ModelFormatError("is missing: dump the model with Treelite 4.3 or later", field="threshold_type")
    kinds: set[str] = {get(document, key, str) for key in ("threshold_type", "leaf_output_type")}
    if len(kinds) > 1 or not kinds <= set(_TYPES):
        shown = " and ".join(sorted(kind[:20] for kind in kinds))
        raise ModelFormatError(f"{shown}: both must be float32, or both float64", field="threshold_type")
    return kinds.pop()


def _ints(document: Any, key: str, length: int, low: int, high: int) -> npt.NDArray[np.int64]:
    values = numbers(get(document, key, list), key, np.int64)
    if len(values) != length:
        raise ModelFormatError(f"holds {len(values)} values, not {length}", field=key)
    if ((values < low) | (values > high)).any():
        raise ModelFormatError(f"holds values outside of [{low}, {high}]", field=key)
    return values


def _outputs_of_trees(document: Any, n_trees: int, n_targets: int, width: int) -> list[npt.NDArray[np.int64]]:
    """Outputs that each tree's leaf values add to, in their order; -1 stands for all targets or classes."""
    shape = tuple(_ints(document, "leaf_vector_shape", 2, 1, _MAX_OUTPUTS).tolist())
    target = _ints(document, "target_id", n_trees, -1, n_targets - 1)
    of_class = _ints(document, "class_id", n_trees, -1, width - 1)
    everything = np.arange(n_targets * width).reshape(n_targets, width)
    known: dict[tuple[int, int], npt.NDArray[np.int64]] = {}
    for tree, (t, c) in enumerate(zip(target.tolist(), of_class.tolist(), strict=True)):
        if (t, c) not in known:
            places = everything[slice(None) if t < 0 else slice(t, t + 1), slice(None) if c < 0 else slice(c, c + 1)]
            known[t, c] = places.ravel()
            if places.shape != shape:
                problem = f"leaves have shape {shape}, but target {t} and class {c} need {places.shape}"
                raise ModelFormatError(problem, tree=tree, field="leaf_vector_shape")
    return [known[t, c] for t, c in zip(target.tolist(), of_class.tolist(), strict=True)]


def _check_average(
    outputs: list[npt.NDArray[np.int64]], base: npt.NDArray[np.float64], real: npt.NDArray[np.bool_]
) -> None:
    """Check that a Forest can express the averages: the same number of trees for each output, and no base scores."""
    n_trees = np.bincount(np.concatenate(outputs), minlength=len(real))
    scalar = all(len(places) == 1 for places in outputs)
    if (n_trees[real] != (len(outputs) / len(real) if scalar else len(outputs))).any():
        raise UnsupportedModelError("averages over different numbers of trees for the outputs are not evaluated")
    if base[real].any():
        raise UnsupportedModelError(
            "base scores added to an average (average_tree_output) are not evaluated; add them to the leaves instead"
        )


def _link(document: Any, n_targets: int, width: int) -> tuple[str, float]:
    name = get(document, "postprocessor", str)
    if name not in _LINKS:
        raise UnsupportedModelError(
            f"postprocessor {name[:40]!r} is not known, so neither is what scores mean; known are {', '.join(_LINKS)}"
        )
    if (name in _OF_ONE_CLASS and width > 1) or (name == "softmax" and n_targets > 1):
        raise UnsupportedModelError(
            f"postprocessor {name!r} of {n_targets} targets of {width} classes is not evaluated; use 'identity' and "
            "apply it yourself"
        )
    link, factor = _LINKS[name]
    if not factor:
        return link, 1.0
    (scale,) = numbers([document.get(factor)], factor, np.float64).tolist()
    if not 0.0 < scale < np.inf:
        raise ModelFormatError("is not a positive number", field=factor)
    return link, -1.0 / scale if factor == "ratio_c" else scale
