"""Forest: an additive ensemble of binary decision trees in canonical flat arrays.

Every reader in `gpuqs.formats` makes a `Forest`, every layout in `gpuqs.layout` starts from
one. It is validated once, when it is made, and immutable from then on.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpuqs.cpu_fallback import making
from gpuqs.ctrs import Ctrs
from gpuqs.forest_arrays import checked, leaf_positions, left_out, select_trees
from gpuqs.forest_checks import check
from gpuqs.forks import lazy
from gpuqs.kept import Kept
from gpuqs.schema import Schema

#: `Forest.routing` bit: a missing value (NaN) goes left. Without it, right.
NAN_LEFT: Final = 1
#: `Forest.routing` bit: values with ``|x| <= ZERO_THRESHOLD`` count as missing (LightGBM "Zero").
ZERO_MISSING: Final = 2
#: `Forest.routing` bit: the node tests membership in a category set, not a threshold.
CATEGORICAL: Final = 4
#: `Forest.routing` bit of a categorical node: codes in the set go right (XGBoost); without it, left.
SET_RIGHT: Final = 8
#: `Forest.routing` bit of a categorical node: -1 < x < 0 is code 0 (LightGBM truncates toward zero).
NEGATIVE_FRACTION_IS_ZERO: Final = 16
#: `Forest.routing` bit of a categorical node: a value that is not an integer is in no set; without
#: it, values are truncated toward zero.
WHOLE_CODES: Final = 32

#: LightGBM's kZeroThreshold: the float32 value 1e-35, held as float64.
ZERO_THRESHOLD: Final = float(np.float32(1e-35))


@dataclass(frozen=True, eq=False)
class Forest:
    """An ensemble of decision trees; T trees, N internal nodes, L leaves, K outputs.

    The one canonical test of a numeric node is **left iff ``x <= threshold``**, in float64.
    Nodes and leaves of tree t are the slices ``node_offsets[t]:node_offsets[t + 1]`` and
    ``leaf_offsets[t]:leaf_offsets[t + 1]``. A tree's root is its node 0; a tree without nodes
    has one leaf. Arrays are taken over and become read-only.

    Parameters
    ----------
    n_features : int
        Number of features (columns) of a document, those of `ctrs` included.
    node_offsets, leaf_offsets : int64 [T + 1]
    feature : int32 [N]
        Feature that the node tests.
    threshold : float64 [N]
        Left iff ``x <= threshold``; +-inf allowed, NaN not. Ignored by categorical nodes.
    left, right : int32 [N]
        Child inside the tree: node ``i`` as ``i >= 0``, leaf ``i`` as ``~i < 0``.
    routing : uint8 [N]
        Bits `NAN_LEFT`, `ZERO_MISSING`, `CATEGORICAL`, `SET_RIGHT`, `NEGATIVE_FRACTION_IS_ZERO`,
        `WHOLE_CODES`.
    leaf_value : float64 [L, 1] or [L, K]
        One column: the leaf adds to output ``tree_output[t]``. K columns: to all outputs.
    sum_dtype : {"float64", "float32"}
        Type in which the source library adds leaf values up.
    input_dtype : {"float64", "float32"}
        float32: the source library casts documents to float32 first. float64: it compares
        them as they are, float32 or float64.
    integer_dtype : {"float64", "float32"}
        What the source library casts integer documents to.
    n_outputs : int
    tree_output : int32 [T], optional
        Output that each tree adds to (zeros by default; ignored for vector leaves).
    tree_weight : float64 [T], optional
        Factor of each tree (DART), applied to its leaf values in `sum_dtype`.
    base_score : float64 [K], optional
        Constant per output, in raw-score units.
    base_first : bool
        The source library starts its sum at `base_score` (True) or adds it last (False).
    average : bool
        Sums are divided by the number of trees per output before the link (random forests).
    average_raw : bool
        Raw scores are divided, too (Treelite); else raw scores are the sums.
    link : str
        One of `gpuqs.forest_checks.LINKS`: raw score -> value.
    link_scale : float
        Factor on the raw score inside the link (LightGBM's ``sigmoid`` parameter).
    leaf_id : int32 [L], optional
        The source library's own number of each leaf (position in the tree by default).
    category_offsets : int64 [N + 1], optional
        Node n's category set is ``category_words[category_offsets[n]:category_offsets[n + 1]]``.
    category_words : uint32 [...], optional
        Bitsets: code c is in the set iff bit ``c % 32`` of word ``c // 32`` is set.
    linear_offsets : int64 [L + 1], optional
        Leaf l's linear model has the terms ``linear_offsets[l]:linear_offsets[l + 1]``; a leaf without terms has only
        its value.
    linear_feature : int32 [...], optional
        Feature of each term: its value times the coefficient is added. -1 is the model's constant, its first term.
        Where a document lacks one of the values (NaN), the leaf has its `leaf_value`.
    linear_coefficient : float64 [...], optional
        May be NaN or infinite, as in LightGBM's models trained on infinite values.
    iteration_starts : int64 [I + 1], optional
        First tree of each boosting iteration, then T. By default each iteration has one tree for every output (one
        for all where leaves are vectors); if `tree_output` is in another order, all trees are one iteration.
    best_iteration : int, optional
        The best iteration that early stopping found, as the source library counts.
    iterations_left_out : int
        Number of iterations after the best one that the source model has and this forest does not.
    schema : Schema
        What the columns of documents are: names, categories, what an absent entry means.
    classes : tuple
        Class labels in the order of the outputs (two for one output of a binary classifier); empty
        for 0, 1, ...
    class_rule : str
        One of `gpuqs.forest_checks.CLASS_RULES`: how the source library decides classes. "value": the likeliest, or a
        probability above 1/2. "raw": the largest raw score, or one above 0. "raw_or_zero": also 0. "other": by a rule
        that gpuqs does not know; there is no output "class".
    source : str
        What the model was read from, such as "LightGBM 4" or "XGBoost 3.2". Its first word is `library`.
    objective : str
        The source library's name of the objective. The links of a few objectives are computed in a special way.
    ctrs : Ctrs, optional
        CatBoost's statistics of categories: the columns after those that users give. The schema describes the latter.
    """

    n_features: int
    node_offsets: npt.NDArray[np.int64]
    leaf_offsets: npt.NDArray[np.int64]
    feature: npt.NDArray[np.int32]
    threshold: npt.NDArray[np.float64]
    left: npt.NDArray[np.int32]
    right: npt.NDArray[np.int32]
    routing: npt.NDArray[np.uint8]
    leaf_value: npt.NDArray[np.float64]
    sum_dtype: str = "float64"
    input_dtype: str = "float64"
    integer_dtype: str = "float64"
    n_outputs: int = 1
    tree_output: npt.NDArray[np.int32] = field(default_factory=left_out)
    tree_weight: npt.NDArray[np.float64] = field(default_factory=left_out)
    base_score: npt.NDArray[np.float64] = field(default_factory=left_out)
    base_first: bool = True
    average: bool = False
    average_raw: bool = False
    link: str = "identity"
    link_scale: float = 1.0
    leaf_id: npt.NDArray[np.int32] = field(default_factory=left_out)
    category_offsets: npt.NDArray[np.int64] = field(default_factory=left_out)
    category_words: npt.NDArray[np.uint32] = field(default_factory=left_out)
    linear_offsets: npt.NDArray[np.int64] = field(default_factory=left_out)
    linear_feature: npt.NDArray[np.int32] = field(default_factory=left_out)
    linear_coefficient: npt.NDArray[np.float64] = field(default_factory=left_out)
    iteration_starts: npt.NDArray[np.int64] = field(default_factory=left_out)
    best_iteration: int | None = None
    iterations_left_out: int = 0
    schema: Schema = field(default_factory=Schema)
    classes: tuple[Any, ...] = ()
    class_rule: str = "value"
    source: str = "gpuqs"
    objective: str = ""
    ctrs: Ctrs | None = None

    def __post_init__(self) -> None:
        leaf_ids_given = np.size(self.leaf_id) > 0
        for name, array in checked(vars(self), self.n_outputs).items():
            object.__setattr__(self, name, array)
        object.__setattr__(self, "_depth", check(self, leaf_ids=leaf_ids_given))
        for value in vars(self).values():
            if isinstance(value, np.ndarray):
                value.setflags(write=False)

    def __repr__(self) -> str:
        return f"<gpuqs.Forest: {self.summary}>"

    @property
    def library(self) -> str:
        """The first word of `source`: the library whose arithmetic links follow where libraries differ in last bits."""
        return self.source.partition(" ")[0]

    @property
    def summary(self) -> str:
        """The source, the objective and the size, in one line."""
        return (
            f"{' '.join(filter(None, (self.source, self.objective)))}, {self.n_trees:,} trees of up to "
            f"{self.n_leaves:,} leaves, {self.given.n_features:,} features, "
            f"{self.n_outputs:,} output{'s' if self.n_outputs > 1 else ''}"
        )

    @property
    def n_trees(self) -> int:
        return len(self.node_offsets) - 1

    @property
    def n_iterations(self) -> int:
        return len(self.iteration_starts) - 1

    @property
    def n_nodes(self) -> int:
        return len(self.feature)

    @lazy
    def n_leaves(self) -> int:
        """Λ: the largest number of leaves of one tree (0 for a forest without trees)."""
        return int(np.diff(self.leaf_offsets).max(initial=0))

    @property
    def feature_names(self) -> tuple[str, ...]:
        return self.schema.names

    @property
    def vector_leaves(self) -> bool:
        """Whether each leaf holds a value for every output."""
        return self.n_outputs > 1 and self.leaf_value.shape[1] == self.n_outputs

    @property
    def has_categories(self) -> bool:
        return self.n_category_sets > 0

    @lazy
    def n_category_sets(self) -> int:
        """Nodes that test sets of categories."""
        return int(np.count_nonzero(self.routing & CATEGORICAL))

    @property
    def has_linear_leaves(self) -> bool:
        """Whether some leaf has a linear model."""
        return len(self.linear_feature) > 0

    @lazy
    def leaves_by_position(self) -> bool:
        """Whether the source library's number of each leaf is its position in the tree."""
        return np.array_equal(self.leaf_id, self.leaf_place)

    @property
    def leaf_place(self) -> npt.NDArray[np.int32]:
        """Position of each leaf in its tree, int32 [L]."""
        return leaf_positions(vars(self))

    @lazy
    def node_tree(self) -> npt.NDArray[np.int64]:
        """Tree of each node, int64 [N]."""
        return np.repeat(np.arange(self.n_trees, dtype=np.int64), np.diff(self.node_offsets))

    @property
    def depth(self) -> npt.NDArray[np.int32]:
        """Depth of each node, int32 [N]; roots have depth 0."""
        depth: npt.NDArray[np.int32] = vars(self)["_depth"]  # set by `__post_init__`
        return depth

    @lazy
    def tree_depth(self) -> npt.NDArray[np.int64]:
        """Most tests on a path through each tree, int64 [T]."""
        deepest = np.zeros(self.n_trees, np.int64)
        grown = np.diff(self.node_offsets) > 0
        if self.n_nodes:
            deepest[grown] = np.maximum.reduceat(self.depth, self.node_offsets[:-1][grown]) + 1
        return deepest

    @lazy
    def distinct_features(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
        """First node of each tested feature, features ascending; and the index of each node's feature among these."""
        first, of_node = making.distinct(self.feature)
        return first, of_node

    @lazy
    def tested(self) -> npt.NDArray[np.int64]:
        """Features that some node tests or some linear model uses, ascending; feature 0 if there are none."""
        tested = self.feature[self.distinct_features[0]].astype(np.int64)
        if self.has_linear_leaves:
            tested = np.union1d(tested, self.linear_feature[self.linear_feature >= 0]).astype(np.int64)
        return tested if len(tested) else np.zeros(min(1, self.n_features), np.int64)

    @lazy
    def tested_as_categories(self) -> frozenset[int]:
        """Features that some node tests by a set of categories."""
        return frozenset(np.unique(self.feature[(self.routing & CATEGORICAL) != 0]).tolist())

    @lazy
    def tested_as_numbers(self) -> frozenset[int]:
        """Features that some node compares with a threshold."""
        return frozenset(np.unique(self.feature[(self.routing & CATEGORICAL) == 0]).tolist())

    @lazy
    def place_of(self) -> npt.NDArray[np.int32]:
        """The place of each feature in `tested`, or -1."""
        place_of = np.full(self.n_features, -1, np.int32)
        place_of[self.tested] = np.arange(len(self.tested))
        return place_of

    @property
    def given(self) -> Forest:
        """The forest that documents are read for: this one; if it has CTRs, one of users' columns, without trees."""
        return self if self.ctrs is None else self._given

    @lazy
    def _given(self) -> Forest:
        assert self.ctrs is not None
        no_trees: dict[str, Any] = select_trees(vars(self), 0, 0)
        schema = replace(self.schema, hashed=True)
        return replace(self, **no_trees, n_features=self.ctrs.n_given, schema=schema, ctrs=None)

    @lazy
    def narrowed(self) -> Forest:
        """The same trees for documents with only the columns `tested`; the forest itself if these are all columns."""
        if len(self.tested) == self.n_features:
            return self
        columns = self.schema.names, self.schema.categories
        names, categories = (tuple(values[f] for f in self.tested) if values else () for values in columns)
        return replace(
            self,
            n_features=len(self.tested),
            feature=self.place_of[self.feature],
            linear_feature=np.where(self.linear_feature < 0, np.int32(-1), self.place_of[self.linear_feature]),
            schema=replace(self.schema, names=names, categories=categories, stated=(), lost=()),
        )

    @lazy
    def table_plans(self) -> Kept:
        """How tables and arrays like the last few are converted to documents; `gpuqs.arrays` caches it here."""
        return Kept(4)

    def weighted_leaves(self) -> npt.NDArray[np.floating[Any]]:
        """What each leaf adds to the sums: its value times its tree's weight, in `sum_dtype`, [L, 1] or [L, K]."""
        dtype = np.dtype(self.sum_dtype)
        if (self.tree_weight == 1).all():
            return self.leaf_value.astype(dtype, copy=False)
        weight = np.repeat(self.tree_weight.astype(dtype), np.diff(self.leaf_offsets))
        leaves: npt.NDArray[np.floating[Any]] = self.leaf_value.astype(dtype) * weight[:, None]
        return leaves

    def select(self, trees: slice) -> Forest:
        """The forest of a range of trees, for staged prediction.

        Parameters
        ----------
        trees : slice
            Step 1 or None, as in ``trees=slice(0, 100)``.
        """
        start, stop, step = trees.indices(self.n_trees)
        if step != 1:
            raise ValueError(f"trees must be a slice with step 1, not {step}")
        arrays: dict[str, Any] = select_trees(vars(self), start, max(start, stop))
        return replace(self, **arrays, base_score=self.base_of(start))

    def base_of(self, first_tree: int) -> npt.NDArray[np.float64]:
        """The base score of a range of trees."""
        if first_tree > 0 and self.schema.library == "CatBoost":  # which counts the bias with the first tree
            return np.zeros_like(self.base_score)
        return self.base_score

    def __reduce__(self) -> tuple[Any, ...]:
        # Through the constructor: what is unpickled is validated, and immutable again.
        return Forest, tuple(getattr(self, f.name) for f in fields(self))
