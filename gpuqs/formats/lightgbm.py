"""LightGBM's text format (``Booster.save_model``, ``model_to_string``) and its live objects."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpuqs.cpu_fallback import lightgbm_trees
from gpuqs.errors import ModelFormatError, UnsupportedModelError, naming
from gpuqs.forest import (
    CATEGORICAL,
    NAN_LEFT,
    NEGATIVE_FRACTION_IS_ZERO,
    ZERO_MISSING,
    ZERO_THRESHOLD,
    Forest,
)
from gpuqs.formats.fields import is_plain_number, refuse_depth
from gpuqs.formats.growing import GrowingArray, offsets
from gpuqs.formats.labels import labels_of
from gpuqs.formats.lightgbm_linear import LinearLeaves
from gpuqs.formats.lightgbm_text import (
    FieldNumbers,
    count,
    fields_of,
    n_words,
    needed,
    numbers,
    one_spaced,
    squeezed,
    tree_fields,
)
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

#: Bits of a node's decision_type.
_CATEGORICAL_BIT: Final = 1
_DEFAULT_LEFT_BIT: Final = 2
#: The two bits above them are the node's missing type, one of these three.
_MISSING_SHIFT: Final = 2
_MISSING_NONE: Final = 0
_MISSING_ZERO: Final = 1
_MISSING_NAN: Final = 2
_LARGEST_DECISION_TYPE: Final = _CATEGORICAL_BIT | _DEFAULT_LEFT_BIT | _MISSING_NAN << _MISSING_SHIFT

_INT32_MAX: Final = 2**31 - 1
#: More outputs than any model has; a file may not make us allocate for more.
_MAX_OUTPUTS: Final = 1 << 16

#: Bytes of text that are read between two checks for signals.
_BYTES_AT_ONCE: Final = 1 << 20

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
    trees = _Trees()
    if first != -1:
        trees.read(data, first, end, sized=b"tree_sizes" in header.fields)
    header.check_tree_sizes(trees.starts.array())
    return trees.forest(header)


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
        self.n_features = self._count("max_feature_idx", 0, _INT32_MAX - 1) + 1
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


class _Trees:
    """What the trees' text holds, tree by tree."""

    def __init__(self) -> None:
        self.starts = GrowingArray(np.int64)
        self.n_leaves = GrowingArray(np.int64)
        int32 = -_INT32_MAX, _INT32_MAX, "is outside int32"
        largest = _LARGEST_DECISION_TYPE
        self.feature = FieldNumbers("split_feature", np.int32, *int32)
        self.threshold = FieldNumbers("threshold", np.float64)
        self.decision = FieldNumbers("decision_type", np.uint8, 0, largest, f"is not in [0, {largest}]")
        self.left = FieldNumbers("left_child", np.int32, *int32)
        self.right = FieldNumbers("right_child", np.int32, *int32)
        self.leaf_value = FieldNumbers("leaf_value", np.float64)
        self._fields = self.feature, self.threshold, self.decision, self.left, self.right, self.leaf_value
        #: Category sets: the number of sets of each tree, the number of words of each set, and all words.
        self.n_sets, self.set_size = GrowingArray(np.int64), GrowingArray(np.int64)
        self.words = GrowingArray(np.uint32)
        self.linear = LinearLeaves()

    def read(self, data: bytes, first: int, end: int, sized: bool) -> None:
        """Read every tree of ``data[first:end]``; ``sized`` if a line tree_sizes says where they lie."""
        at = first
        while at != -1:
            at = self._read_plain_trees(data, at, end)
            if at == -1:
                break
            following = data.find(b"\nTree=", at + 1, end)
            text = data[at + 1 : following if following != -1 else end]
            tree = len(self.n_leaves)
            if following != -1 and not text.endswith((b"\n", b"\r")):
                problem = "ends without a blank line, so LightGBM would skip the trees that follow; add one"
                raise ModelFormatError(problem, tree=tree)
            self.starts.extend([at])
            self._read_tree(tree_fields(text, tree, sized))
            at = following

    def _read_plain_trees(self, data: bytes, at: int, end: int) -> int:
        """Read trees that are written exactly as LightGBM writes them; return where the next one is, or -1.

        Others, including damaged ones, are left to `_read_tree`, which takes ten times as long.
        """
        while at != -1:
            arrays, following = lightgbm_trees.read(
                data, at, end, len(self.n_leaves), _BYTES_AT_ONCE, _LARGEST_DECISION_TYPE
            )
            n_trees = len(arrays["n_leaves"])
            if n_trees == 0:
                break
            self.starts.extend(arrays["starts"])
            for values in self._fields:
                values.extend(arrays[values.name], n_trees)
            for name in ("n_leaves", "n_sets", "set_size", "words"):
                getattr(self, name).extend(arrays[name])
            self.linear.extend(*(arrays[name] for name in ("linear", "n_terms", "term_feature", "coefficient")))
            at = following
        return at

    def _read_tree(self, fields: dict[bytes, bytes]) -> None:
        tree = len(self.n_leaves)
        if fields[b"Tree"].strip() != b"%d" % tree:
            number = fields[b"Tree"][:20].decode(errors="replace")
            raise ModelFormatError(
                f"is numbered {number!r}: the trees before it are missing or out of order; "
                "save or copy the model again",
                tree=tree,
                field="Tree",
            )
        if b"num_cat" not in fields and b"num_leaves" in fields:
            raise ModelFormatError(
                "is missing: the file is cut or from a LightGBM before 2.0.5, whose models today's "
                "LightGBM does not read either; train again and save with LightGBM 2.1 or later",
                tree=tree,
                field="num_cat",
            )
        n_leaves = count(fields, "num_leaves", 1, _INT32_MAX, tree)
        n_sets = count(fields, "num_cat", 0, n_leaves - 1, tree)
        n_nodes = n_leaves - 1

        self.leaf_value.add(needed(fields, "leaf_value", tree), n_leaves)
        for values in (self.feature, self.threshold, self.left, self.right):
            # Trees of one leaf may lack the fields of nodes.
            values.add(needed(fields, values.name, tree) if n_nodes else b"", n_nodes)
        if n_nodes and b"decision_type" not in fields:
            fields[b"decision_type"] = b"0 " * n_nodes  # as in LightGBM
        self.decision.add(fields.get(b"decision_type", b""), n_nodes)
        if n_sets:
            boundaries = numbers(needed(fields, "cat_boundaries", tree), n_sets + 1, np.int64, "cat_boundaries", tree)
            if boundaries[0] != 0 or (np.diff(boundaries) < 0).any():
                raise ModelFormatError("does not rise from 0", tree=tree, field="cat_boundaries")
            words = numbers(needed(fields, "cat_threshold", tree), int(boundaries[-1]), np.int64, "cat_threshold", tree)
            if ((words < 0) | (words >= 1 << 32)).any():
                raise ModelFormatError("holds a value outside uint32", tree=tree, field="cat_threshold")
            self.set_size.extend(np.diff(boundaries))
            self.words.extend(words)
        self.linear.add(fields, n_leaves, tree)
        self.n_leaves.extend([n_leaves])
        self.n_sets.extend([n_sets])

    def forest(self, header: _Header) -> Forest:
        """The trees as a Forest; LightGBM's tests become ``x <= threshold`` and routing bits."""
        n_trees = len(self.n_leaves)
        if n_trees % header.n_outputs:
            raise ModelFormatError(
                f"{n_trees} trees are not whole iterations of {header.n_outputs}; save or copy the model again",
                field="num_tree_per_iteration",
            )
        leaf_offsets = offsets(self.n_leaves.array())
        node_offsets = leaf_offsets - np.arange(n_trees + 1)
        decision, threshold = self.decision.array(), self.threshold.array()
        categorical = (decision & _CATEGORICAL_BIT) != 0
        category_offsets, category_words = self._categories(categorical, threshold, node_offsets)

        missing = decision >> _MISSING_SHIFT
        # Without a missing type, LightGBM reads NaN as 0.
        nan_left = np.where(missing == _MISSING_NONE, threshold >= 0.0, (decision & _DEFAULT_LEFT_BIT) != 0)
        routing = (nan_left * np.uint8(NAN_LEFT)) | ((missing == _MISSING_ZERO) * np.uint8(ZERO_MISSING))
        routing[categorical] = CATEGORICAL | NEGATIVE_FRACTION_IS_ZERO  # NaN goes right
        threshold[categorical] = 0.0
        return Forest(
            n_features=header.n_features,
            node_offsets=node_offsets,
            leaf_offsets=leaf_offsets,
            feature=self.feature.array(),
            threshold=_with_near_zero_as_zero(threshold),
            left=self.left.array(),
            right=self.right.array(),
            routing=routing,
            leaf_value=self.leaf_value.array()[:, None],
            sum_dtype="float64",
            input_dtype="float64",
            integer_dtype="float32",
            n_outputs=header.n_outputs,
            tree_output=(np.arange(n_trees) % header.n_outputs).astype(np.int32),
            average=header.average,
            link=header.link,
            link_scale=header.link_scale,
            category_offsets=category_offsets,
            category_words=category_words,
            **self.linear.arrays(leaf_offsets, header.n_features),
            schema=header.schema,
            source=header.source,
            objective=header.objective,
        )

    def _categories(
        self, categorical: np.ndarray, threshold: np.ndarray, node_offsets: np.ndarray
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
        """Category sets in node order; a categorical node's threshold is the number of its set."""
        node, n_sets = np.flatnonzero(categorical), self.n_sets.array()
        if not len(node) and not n_sets.any():
            return np.zeros(len(categorical) + 1, np.int64), np.zeros(0, np.uint32)
        n_nodes = np.diff(np.searchsorted(node, node_offsets))
        tree, number, first = np.repeat(np.arange(len(n_sets)), n_nodes), threshold[node], offsets(n_sets)
        known = (number >= 0) & (number < n_sets[tree]) & (number == np.floor(number))
        of_node = first[tree] + np.where(known, number, 0).astype(np.int64)
        # One set a node, as LightGBM writes them: sharing would let a small file ask for much memory.
        once = np.bincount(of_node[known], minlength=int(first[-1])) == 1
        wrong = n_nodes != n_sets
        wrong[tree[~known]] = wrong[np.repeat(np.arange(len(n_sets)), n_sets)[~once]] = True
        if wrong.any():
            bad = int(np.argmax(wrong))
            raise ModelFormatError(
                f"{n_nodes[bad]} categorical nodes do not name each of {n_sets[bad]} category sets once",
                tree=bad,
                field="threshold",
            )
        size, words = self.set_size.array(), self.words.array()
        sizes = np.zeros(len(categorical), np.int64)
        sizes[node] = size[of_node]
        if (of_node[1:] < of_node[:-1]).any():  # LightGBM itself numbers sets in the order of nodes
            sorted_size = size[of_node]
            begin = np.repeat(offsets(size)[of_node] - offsets(sorted_size)[:-1], sorted_size)
            words = words[begin + np.arange(len(words))]
        return offsets(sizes), words


def _with_near_zero_as_zero(threshold: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Thresholds that send x where LightGBM's send it, which reads |x| <= 1e-35 as 0.

    LightGBM drops such values from every row of an array before it looks at a tree, so a
    threshold in that range only decides where all of them go.
    """
    threshold[(threshold >= 0.0) & (threshold < ZERO_THRESHOLD)] = ZERO_THRESHOLD
    below = (threshold < 0.0) & (threshold >= -ZERO_THRESHOLD)
    threshold[below] = np.nextafter(-ZERO_THRESHOLD, -np.inf)
    return threshold


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
