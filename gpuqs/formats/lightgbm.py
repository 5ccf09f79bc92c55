"""LightGBM's text format (``Booster.save_model``, ``model_to_string``) and its live objects."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpuqs.errors import ModelFormatError, UnsupportedModelError, naming
from gpuqs.forest import (
    Forest,
)
from gpuqs.formats.fields import INT32_MAX, is_plain_number, refuse_depth
from gpuqs.formats.labels import labels_of
from gpuqs.formats.lightgbm_text import (
    count,
    fields_of,
    n_words,
    numbers,
    one_spaced,
    squeezed,
)
from gpuqs.formats.lightgbm_trees import Trees
from gpuqs.formats.own_methods import refuse_own_methods
from gpuqs.links import to_values
from gpuqs.schema import Schema

NAME: Final = "LightGBM text"

#: The features that are read, by the columns of `gpuqs.formats.FEATURES`.
FEATURES: Final = {
    "files": "text (`save_model`)",
    "live objects": "`Booster`, `LGBMModel`",
    "missing values": "NaN, zero, none",
    "categories": "codes; frames by `pandas_categorical`",
    "outputs": "one, one per class; linear leaves",
    "raw scores": "same bits",
}

#: More outputs than any model has; a file may not make us allocate for more.
_MAX_OUTPUTS: Final = 1 << 16

#: Lines that end the trees; the first from 2.2 on, the second before.
_END_OF_TREES: Final = (b"\nend of trees", b"\nfeature importances:")
#: Beginnings of the sections that may follow.
_SECTION: Final = re.compile(rb"\n(?:feature[_ ]importances|parameters|pandas_categorical):")

#: The last line of a model that was trained on a data frame with categories.
_PANDAS: Final = b"\npandas_categorical:"

#: Methods that determine what a live object predicts, and those by which it is read.
_METHODS: Final = ("predict", "predict_proba", "decision_function", "booster_", "model_to_string")

_LINK_OF_OBJECTIVE: Final = {
    **dict.fromkeys(
        (
            *("regression", "regression_l2", "regression_l1", "huber", "fair", "quantile", "mape"),
            *("lambdarank", "rank_xendcg", "custom", "none", "null", "na"),
        ),
        "identity",
    ),
    **dict.fromkeys(("poisson", "gamma", "tweedie"), "exp"),
    **dict.fromkeys(("binary", "cross_entropy", "xentropy"), "sigmoid"),
    **dict.fromkeys(("cross_entropy_lambda", "xentlambda"), "log1p_exp"),
    "multiclass": "softmax",
    "multiclassova": "ova_sigmoid",
}


def recognises(head: bytes) -> bool:
    """Whether a file that begins with ``head`` is LightGBM's text: its first line is "tree"."""
    return re.match(rb"tree\r?\n", head) is not None


def from_object(obj: Any) -> Forest | None:
    """The Forest of a ``lightgbm.Booster`` or ``LGBMModel``; None for anything else.

    As ``Booster.predict`` does by default, it stops at the best iteration if there is one.
    """
    kinds = {(kind.__module__.partition(".")[0], kind.__name__) for kind in type(obj).__mro__}
    labels: tuple[Any, ...] = ()
    is_estimator = ("lightgbm", "LGBMModel") in kinds
    if is_estimator:
        refuse_own_methods(obj, "lightgbm", _METHODS)
        labels = labels_of(getattr(obj, "classes_", ()))
        if not hasattr(obj, "booster_"):
            source = f"lightgbm.{type(obj).__name__}"
            raise ModelFormatError("the model is not fitted; call fit first", source=source)
        _refuse_early_stopping(obj)
        obj = obj.booster_
    elif ("lightgbm", "CVBooster") in kinds:
        raise UnsupportedModelError("lightgbm.CVBooster: holds a model for each fold; pass one of its boosters")
    elif ("lightgbm", "Booster") not in kinds:
        return None
    if not hasattr(obj, "model_to_string"):
        raise UnsupportedModelError(
            "lightgbm.Booster: LightGBM before 2.2 cannot return the text of a live model; call "
            "save_model('model.txt'), and load that file"
        )
    refuse_own_methods(obj, "lightgbm", _METHODS)
    try:
        text = obj.model_to_string()
    except (TypeError, ValueError) as error:  # from json, for categories such as times and intervals
        raise UnsupportedModelError(
            f"lightgbm.Booster: LightGBM cannot write the categories of its training frame ({error}); train with "
            "categories that are strings or numbers"
        ) from error
    forest = _with_whole_sigmoid(read(text.encode(), "lightgbm.Booster"), obj)
    if is_estimator:  # scikit-learn's checks of its arrays come first
        forest = replace(forest, schema=replace(forest.schema, objects_as_float64=True))
    if not forest.objective:  # a caller's own objective: LightGBM gives raw scores, not labels
        labels = ()
    best = obj.best_iteration if obj.best_iteration > 0 else None
    left_out = obj.current_iteration() - forest.n_iterations
    if best is None and not labels and not left_out:
        return forest
    return replace(forest, classes=labels, best_iteration=best, iterations_left_out=left_out)


def _with_whole_sigmoid(forest: Forest, booster: Any) -> Forest:
    """The forest with all digits of the booster's parameter ``sigmoid``, if its own values show that it uses them.

    Its text has six digits. A booster that was read from a text uses only these, but keeps the training's parameters.
    """
    given = booster.params.get("sigmoid")
    if forest.link not in ("sigmoid", "ova_sigmoid") or not isinstance(given, (int, float, np.number)):
        return forest
    whole = replace(forest, link_scale=float(given))
    if not 0 < whole.link_scale < np.inf or whole.link_scale == forest.link_scale:
        return forest
    X = np.repeat([[-1.0], [0.0], [1.0]], forest.n_features, axis=1)
    raw, values = (np.reshape(booster.predict(X, raw_score=of), (len(X), -1)) for of in (True, False))
    return whole if np.array_equal(to_values(whole, raw), values) else forest


def _refuse_early_stopping(estimator: Any) -> None:
    """Refuse an estimator whose ``predict`` leaves trees out once a score seems certain (``pred_early_stop``)."""
    asked = estimator.get_params().get("pred_early_stop")
    if asked is not None and str(asked).lower() not in ("false", "-"):
        raise UnsupportedModelError(
            f"lightgbm.{type(estimator).__name__}: pred_early_stop={asked!r} would leave out trees, which gpuqs "
            "never does; call estimator.set_params(pred_early_stop=False), or pass "
            "estimator.booster_, whose predict uses all"
        )


def read(data: bytes | memoryview, source: str) -> Forest:
    """Read LightGBM's text.

    Parameters
    ----------
    data : bytes or memoryview
    source : str
        What error messages call the model: its file.

    Raises
    ------
    ModelFormatError
        Names the source, the tree and the field.
    UnsupportedModelError
        An objective that is not known.
    """
    with naming(source):
        return _read(bytes(data))


def _read(data: bytes) -> Forest:
    if b"\r\n" in data[:64]:
        data = data.replace(b"\r\n", b"\n")
    if (nul := data.find(b"\0")) != -1:  # LightGBM would take it for the text's end
        raise ModelFormatError(f"byte {nul} of the text is NUL; save or copy the model again")
    first = data.find(b"\nTree=")
    ends = (data.find(marker, max(first, 0)) for marker in _END_OF_TREES)
    end = next((place for place in ends if place != -1), -1)
    if end == -1:
        raise ModelFormatError("the file is cut short: no line 'end of trees'; save or copy the model again")
    if b"=" in _SECTION.split(data[end:], 1)[0]:  # LightGBM goes by tree_sizes, or reads on
        raise ModelFormatError("holds fields after the line 'end of trees'; save or copy the model again")
    _check_tail(data[end:], re.search(rb"\nversion=v[34]\s", data[:first]) is not None)
    header = _Header(data[: first if first != -1 else end], data[end:].partition(_PANDAS)[2])
    trees = Trees()
    if first != -1:
        trees.read(data, first, end, sized=b"tree_sizes" in header.fields)
    header.check_tree_sizes(trees.starts.array())
    return _forest(header, trees)


def _check_tail(tail: bytes, recent: bool) -> None:
    """Refuse files that are cut off after the trees, which may have lost the categories of a data frame.

    From version v3 on, whole files end with parameters (from LightGBM), categories (from its Python package), or both.
    """
    sections, _, categories = tail.partition(_PANDAS)
    cut = b"\nparameters:" in sections and b"\nend of parameters" not in sections
    cut |= recent and b"\nparameters:" not in sections and _PANDAS not in tail
    last = sections.rstrip().rpartition(b"\n")[2]
    cut |= _PANDAS not in tail and last.startswith(b"pandas_") and _PANDAS[1:].startswith(last)
    if cut or (_PANDAS in tail and not categories.strip()):
        raise ModelFormatError(
            "the file is cut short after its trees, where parameters and categories are; save or copy the model again"
        )


class _Header:
    """The lines before the first tree, and the one on the categories of a data frame."""

    def __init__(self, text: bytes, pandas: bytes) -> None:
        self.fields = fields_of(text)
        self.pandas = pandas
        self.n_features = self._count("max_feature_idx", 0, INT32_MAX - 1) + 1
        n_classes = self._count("num_class", 1, _MAX_OUTPUTS)
        self.n_outputs = n_classes
        if b"num_tree_per_iteration" in self.fields:
            self.n_outputs = self._count("num_tree_per_iteration", 1, _MAX_OUTPUTS)
        self.average = b"average_output" in self.fields
        self.source = f"LightGBM {self.fields.get(b'version', b'v2').decode(errors='replace').lstrip('v')}"
        self.objective = self.fields.get(b"objective", b"").decode(errors="replace").strip()
        self.link, self.link_scale = _link(self.objective)

    @property
    def schema(self) -> Schema:
        """The features' names, and the lists of categories, whose columns the file does not name."""
        text = one_spaced(self.fields.get(b"feature_names", b"").rstrip(b"\r"))  # names may hold tabs
        if text and n_words(text) != self.n_features:
            raise ModelFormatError(
                f"{n_words(text)} names for {self.n_features} features; save or copy the model again",
                field="feature_names",
            )
        names = tuple(text.decode(errors="replace").split(" ")) if text else ()
        return Schema(names, in_order=_category_lists(self.pandas), library="LightGBM")

    def check_tree_sizes(self, starts: npt.NDArray[np.int64]) -> None:
        """Refuse files whose trees are not where the line tree_sizes (absent before 2.1) says."""
        text = self.fields.get(b"tree_sizes")
        if text is None:
            return
        text = squeezed(text)
        n_trees = n_words(text)
        if n_trees != len(starts):
            raise ModelFormatError(
                f"lists {n_trees} trees but the file holds {len(starts)}; save or copy the model again "
                "(or, where it was edited by hand, delete the line tree_sizes)",
                field="tree_sizes",
            )
        sizes = numbers(text, n_trees, np.int64, "tree_sizes", None)
        misplaced = np.flatnonzero(np.diff(starts) != sizes[:-1])
        if len(misplaced):
            tree = int(misplaced[0])
            raise ModelFormatError(
                f"the tree takes {starts[tree + 1] - starts[tree]} bytes, not {sizes[tree]}; save or copy "
                "the model anew (or, where it was edited by hand, delete the line tree_sizes)",
                tree=tree,
                field="tree_sizes",
            )

    def _count(self, name: str, lowest: int, highest: int) -> int:
        return count(self.fields, name, lowest, highest, None)


def _forest(header: _Header, trees: Trees) -> Forest:
    n_trees = len(trees.n_leaves)
    if n_trees % header.n_outputs:
        raise ModelFormatError(
            f"{n_trees} trees are not whole iterations of {header.n_outputs}; save or copy the model again",
            field="num_tree_per_iteration",
        )
    return Forest(
        n_features=header.n_features,
        sum_dtype="float64",
        input_dtype="float64",
        integer_dtype="float32",
        n_outputs=header.n_outputs,
        tree_output=(np.arange(n_trees) % header.n_outputs).astype(np.int32),
        average=header.average,
        link=header.link,
        link_scale=header.link_scale,
        schema=header.schema,
        source=header.source,
        objective=header.objective,
        **trees.arrays(header.n_features),
    )


def _link(objective: str) -> tuple[str, float]:
    """Link and its scale, from the line objective ("binary sigmoid:1")."""
    name, *options = objective.split() or ["custom"]
    link = _LINK_OF_OBJECTIVE.get(name)
    if link is None:
        raise UnsupportedModelError(
            f"objective {name[:40]!r} is not known to gpuqs, so neither is the meaning of its scores; to read "
            "the model for its raw scores, delete the line objective= from the file"
        )
    if link == "identity" and "sqrt" in options:
        return "sqrt_signed", 1.0
    if name not in ("binary", "multiclassova"):
        return link, 1.0
    scales = [option.partition(":")[2] for option in options if option.startswith("sigmoid:")]
    try:
        scale = float(scales[-1]) if scales and is_plain_number(scales[-1]) else 0.0
    except ValueError:
        scale = 0.0
    if not 0.0 < scale < np.inf:
        raise ModelFormatError("sigmoid: is missing or not a positive number", field="objective")
    return link, scale


def _category_lists(text: bytes) -> tuple[tuple[Any, ...], ...]:
    """The lists of the line pandas_categorical, a JSON array of arrays, or null."""
    line = text.partition(b"\n")[0] or b"null"
    try:
        lists = tuple(tuple(values) for values in json.loads(line) or [])
    except RecursionError:
        refuse_depth(line, "pandas_categorical")
        raise
    except (ValueError, TypeError):
        lists = ((None,),)
    if not all(isinstance(value, (str, int, float)) for values in lists for value in values):
        raise ModelFormatError(
            "is not a JSON array of arrays of values; train with categories that are strings or numbers",
            field="pandas_categorical",
        )
    return lists
