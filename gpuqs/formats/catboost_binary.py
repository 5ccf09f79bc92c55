"""CatBoost's binary models (``.cbm``, what ``save_model`` writes): FlatBuffers, converted to the form of its JSON.

After 8 bytes (the magic, the size of the first buffer) comes a buffer with trees and features. If there are CTRs, the
number of their tables follows, then each table as a size and a buffer. Fields are numbered as CatBoost's schemas list
them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpuqs.errors import ModelFormatError, UnsupportedModelError
from gpuqs.formats.catboost_ctrs import CLASSES, MEANS, NO_KEY, CtrTable, sorted_table
from gpuqs.formats.catboost_tests import Tests
from gpuqs.formats.catboost_trees import MAX_DEPTH, Trees, complete_trees
from gpuqs.formats.fields import parse_json
from gpuqs.formats.flatbuffers import Table
from gpuqs.formats.growing import offsets

MAGIC: Final = b"CBM1"

_MAX_OUTPUTS: Final = 1 << 20
_NAN_TREATMENTS: Final = ("AsIs", "AsFalse", "AsTrue")
_CTR_TYPES: Final = (
    *("Borders", "Buckets", "BinarizedTargetMeanValue", "FloatTargetMeanValue"),
    *("Counter", "FeatureFreq"),
)
#: Name of the part after the trees that holds CTRs.
_CTR_PART: Final = "static_provider_v1"
_BUCKET: Final = np.dtype([("key", "<u8"), ("row", "<u4")])
_STEP: Final = np.dtype([("left", "<u2"), ("right", "<u2")])
_MEAN: Final = np.dtype([("sum", "<f4"), ("count", "<i4")])
_FLOAT_TEST: Final = np.dtype([("feature", "<i4"), ("border", "<f4")])
_ONE_HOT_TEST: Final = np.dtype([("feature", "<i4"), ("value", "<i4")])


def taken_apart(data: memoryview) -> tuple[dict[str, Any], Callable[[Tests, int], Trees]]:
    """A model in the form of CatBoost's JSON, without its trees, and a function that reads these, given their tests.

    Raises
    ------
    ModelFormatError
    UnsupportedModelError
    """
    core, behind = _sized(data, 4)
    root = Table(core)
    trees = root.table(1)
    if trees is None:
        raise ModelFormatError("is missing: the file is damaged", field="trees")
    info: dict[str, Any] = {pair.text(0): pair.text(1) for pair in root.tables(2)}
    for name in ("class_params", "params"):
        text = info.pop(name, "")
        if text:  # sums of models leave it empty
            info[name] = parse_json(text)
    parts = root.texts(3)
    if any(part != _CTR_PART for part in parts):
        raise UnsupportedModelError("text and embedding features are not evaluated; turn them into numbers beforehand")
    document = {
        "model_info": info,
        "features_info": _features(trees),
        "ctr_data": dict(_tables(data[behind:])) if parts else {},
        "scale_and_bias": [trees.number(14, "d", 1.0), _bias(trees)],
    }
    return document, partial(_trees, trees)


def _sized(data: memoryview, at: int) -> tuple[memoryview, int]:
    """A buffer that is preceded by its size, and where it ends."""
    size = int.from_bytes(data[at : at + 4], "little")
    if at + 4 + size > len(data):
        raise ModelFormatError("is cut short, or damaged: a part of it would lie outside the file")
    return data[at + 4 : at + 4 + size], at + 4 + size


# -- features ---------------------------------------------------------------------------------


def _features(trees: Table) -> dict[str, Any]:
    values = {feature.number(0, "i", -1): feature.numbers(1, "<i4").tolist() for feature in trees.tables(6)}
    floats, categorical = [], []
    for feature in trees.tables(5):
        treatment = feature.number(5, "b", 0)
        if not 0 <= treatment < len(_NAN_TREATMENTS):
            raise ModelFormatError(f"{treatment} is not known", field="NanValueTreatment")
        floats.append(
            {
                "has_nans": bool(feature.number(0, "B", 0)),
                "feature_index": feature.number(1, "i", -1),
                "flat_feature_index": feature.number(2, "i", -1),
                "borders": feature.numbers(3, "<f4").tolist(),
                "feature_id": feature.text(4),
                "nan_value_treatment": _NAN_TREATMENTS[treatment],
            }
        )
    for feature in trees.tables(4):
        index = feature.number(0, "i", -1)
        categorical.append(
            {
                "feature_index": index,
                "flat_feature_index": feature.number(1, "i", -1),
                "feature_id": feature.text(2),
                "values": values.pop(index, []),
            }
        )
    if values:
        raise ModelFormatError(f"feature {min(values)} is not among the categorical features", field="OneHotFeatures")
    if trees.tables(12) or trees.tables(13) or trees.tables(18):
        raise UnsupportedModelError("text and embedding features are not evaluated; turn them into numbers beforehand")
    return {
        "float_features": floats,
        "categorical_features": categorical,
        "ctrs": [_ctr(feature) for feature in trees.tables(7)],
    }


def _ctr(feature: Table) -> dict[str, Any]:
    ctr = _there(feature.table(0), "Ctr")
    elements, kind, identifier = _base(_there(ctr.table(0), "Base"))
    return {
        "ctr_type": kind,
        "identifier": identifier,
        "elements": elements,
        "target_border_idx": ctr.number(1, "i", 0),
        "prior_numerator": ctr.number(2, "f", 0.0),
        "prior_denomerator": ctr.number(3, "f", 1.0),
        "shift": ctr.number(4, "f", 0.0),
        "scale": ctr.number(5, "f", 1.0),
        "borders": feature.numbers(1, "<f4").tolist(),
    }


def _base(base: Table) -> tuple[list[dict[str, Any]], str, str]:
    """What a CTR counts by, its type, and a name that identifies its table."""
    combination, kind = _there(base.table(0), "FeatureCombination"), base.number(1, "b", 0)
    if not 0 <= kind < len(_CTR_TYPES):
        raise UnsupportedModelError(f"statistics of categories of type {kind} are not evaluated")
    elements: list[dict[str, Any]] = [
        {"combination_element": "cat_feature_value", "cat_feature_index": index}
        for index in combination.numbers(0, "<i4").tolist()
    ]
    elements += [
        {"combination_element": "float_feature", "float_feature_index": index, "border": border}
        for index, border in combination.numbers(1, _FLOAT_TEST).tolist()
    ]
    elements += [
        {"combination_element": "cat_feature_exact_value", "cat_feature_index": index, "value": value}
        for index, value in combination.numbers(2, _ONE_HOT_TEST).tolist()
    ]
    return elements, _CTR_TYPES[kind], repr((elements, kind, base.number(2, "i", 0)))


def _there(table: Table | None, name: str) -> Table:
    if table is None:
        raise ModelFormatError("is missing: the file is damaged", field=name)
    return table


def _tables(data: memoryview) -> Iterator[tuple[str, CtrTable]]:
    """The tables of CTRs after the trees, by the names that `_base` gives."""
    n, at = int.from_bytes(data[:4], "little"), 4
    for _ in range(n):
        buffer, at = _sized(data, at)
        table = Table(buffer)
        _, kind, identifier = _base(_there(table.table(0), "ModelCtrBase"))
        counts = _counts(kind, table.numbers(2, "<u1"), table.number(4, "i", 0))
        buckets = table.numbers(1, "<u1")
        buckets = buckets[: buckets.size // _BUCKET.itemsize * _BUCKET.itemsize].view(_BUCKET)
        buckets = buckets[buckets["key"] != NO_KEY]
        if len(buckets) > len(counts) or (len(buckets) and buckets["row"].max() >= len(counts)):
            problem = f"{len(buckets)} keys for {len(counts)} rows of counts, or a key that points past the last row"
            raise ModelFormatError(problem, field="IndexHashRaw")
        denominator = table.number(3, "i", 0)
        yield identifier, sorted_table(buckets["key"].copy(), counts[buckets["row"]], denominator)


def _counts(kind: str, blob: npt.NDArray[np.uint8], n_classes: int) -> npt.NDArray[np.float64]:
    """What was counted, row by row."""
    if kind in MEANS:
        means = blob[: blob.size // _MEAN.itemsize * _MEAN.itemsize].view(_MEAN)
        return np.stack([means["sum"].astype(np.float64), means["count"].astype(np.float64)], axis=1)
    columns = max(1, n_classes) if kind in CLASSES else 1
    n_rows = blob.size // (4 * columns)
    return blob[: n_rows * 4 * columns].view("<i4").reshape(n_rows, columns).astype(np.float64)


# -- trees ------------------------------------------------------------------------------------


def _bias(trees: Table) -> Any:
    """The bias of each output; releases before 1.0 kept one for all."""
    biases = trees.numbers(16, "<f8").tolist()
    one, n_outputs = trees.number(15, "d", 0.0), _n_outputs(trees)
    if len(biases) not in (0, n_outputs):
        raise ModelFormatError(f"{len(biases)} biases for {n_outputs} outputs", field="MultiBias")
    if biases or n_outputs == 1:
        return biases or [one]
    if one != 0:
        raise ModelFormatError(f"one bias for {n_outputs} outputs", field="Bias")
    return [0.0] * n_outputs


def _n_outputs(trees: Table) -> int:
    n: int = trees.number(0, "i", 0)
    if not 1 <= n <= _MAX_OUTPUTS:
        raise ModelFormatError(f"is {n}, not in [1, {_MAX_OUTPUTS:,}]", field="ApproxDimension")
    return n


def _trees(trees: Table, tests: Tests, n_outputs: int) -> Trees:
    """All trees."""
    places, sizes, starts = (trees.numbers(field, "<i4").astype(np.int64) for field in (1, 2, 3))
    if len(starts) != len(sizes) or (sizes < 0).any() or not np.array_equal(starts, np.cumsum(sizes) - sizes):
        raise ModelFormatError("does not fit TreeSizes", field="TreeStartOffsets")
    if sizes.sum() != len(places):
        raise ModelFormatError(f"{len(places)} splits for trees of {sizes.sum()}", field="TreeSplits")
    values, steps = trees.numbers(8, "<f8"), trees.numbers(10, _STEP)
    if not len(steps):
        _check_sizes(sizes, len(values), n_outputs)
        test = _tests(places, np.repeat(np.arange(len(sizes)), sizes), tests)
        return complete_trees(test, sizes, values.reshape(-1, n_outputs))
    leaves = trees.numbers(11, "<u4")
    if not len(steps) == len(leaves) == len(places):
        problem = f"{len(steps)} and {len(leaves)} for {len(places)} splits"
        raise ModelFormatError(problem, field="NonSymmetricStepNodes")
    return _stepped(places, sizes, steps, leaves, values, tests, n_outputs)


def _check_sizes(sizes: npt.NDArray[np.int64], n_values: int, n_outputs: int) -> None:
    """Check that symmetric trees have the number of values that their splits require."""
    asked = np.cumsum(np.where(sizes <= MAX_DEPTH, n_outputs << np.minimum(sizes, MAX_DEPTH), n_values + 1))
    if (asked > n_values).any():
        tree = int(np.argmax(asked > n_values))
        raise ModelFormatError(f"too few values for its {sizes[tree]} splits", tree=tree, field="LeafValues")
    if asked[-1:].sum() != n_values:
        raise ModelFormatError(f"holds {n_values} values, but the trees need {asked[-1:].sum()}", field="LeafValues")


def _tests(places: npt.NDArray[np.int64], tree: np.ndarray, tests: Tests) -> npt.NDArray[np.int64]:
    """Numbers of the tests that trees name by position among all borders and values of categories."""
    wrong = (places < 0) | (places >= len(tests.table))
    if wrong.any():
        at = int(np.argmax(wrong))
        problem = f"names split {places[at]} of only {len(tests.table)}"
        raise ModelFormatError(problem, tree=int(tree[at]), field="TreeSplits")
    return tests.listed(places)


def _stepped(
    places: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    steps: np.ndarray,
    leaves: npt.NDArray[np.uint32],
    values: npt.NDArray[np.float64],
    tests: Tests,
    n_outputs: int,
) -> Trees:
    """Trees that are not symmetric, with CatBoost's own number of each leaf.

    A node's two steps are distances ahead to its children. A step of 0 ends at the node's own leaf; if both steps are
    0, the node is only that leaf.
    """
    starts, tree = offsets(sizes), np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)

    def refuse(bad: Any, problem: str, field: str) -> None:
        if bad.any():
            node = int(np.argmax(bad))
            problem = f"node {node - starts[tree[node]]}{problem}"
            raise ModelFormatError(problem, tree=int(tree[node]), field=field)

    if not sizes.all():
        raise ModelFormatError("has no nodes", tree=int(np.argmin(sizes)), field="TreeSizes")
    step = np.stack([steps["left"], steps["right"]], axis=1).astype(np.int32)
    inner = (steps["left"] > 0) | (steps["right"] > 0)
    ends = (step == 0) & inner[:, None]
    is_leaf = ~inner | ends[:, 0] | ends[:, 1]
    n_leaves = int(np.count_nonzero(is_leaf))
    if n_leaves * n_outputs > len(values):  # leaves would share values
        raise ModelFormatError(f"{len(values)} values for {n_leaves} leaves", field="LeafValues")
    child = np.arange(len(step), dtype=np.int32)[:, None] + step
    refuse(child.max(axis=1) >= starts[1:][tree], " leads to no node", "NonSymmetricStepNodes")
    n_parents = np.bincount(child[step > 0], minlength=len(step))
    n_parents[starts[:-1]] += 1
    refuse(n_parents == 0, ": no node leads to it", "NonSymmetricStepNodes")
    refuse(n_parents > 1, ": several nodes lead to it", "NonSymmetricStepNodes")
    wrong = is_leaf & ((leaves % n_outputs != 0) | (leaves > len(values) - n_outputs))
    problem = f" leads to value {leaves[np.argmax(wrong)]}, at which no leaf begins"
    refuse(wrong, problem, "NonSymmetricNodeIdToLeafId")

    # Nodes stay in the file's order; leaves are put in the order of their values.
    of_leaf = np.flatnonzero(is_leaf)
    of_leaf = of_leaf[np.lexsort((leaves[of_leaf], tree[of_leaf]))]
    leaf_offsets = np.searchsorted(tree[of_leaf], np.arange(len(sizes) + 1))
    leaf = np.zeros(len(step), np.int32)
    leaf[of_leaf] = ~(np.arange(n_leaves) - leaf_offsets[tree[of_leaf]])
    place = np.cumsum(inner, dtype=np.int32) - inner  # of each inner node among those of all trees
    place = np.where(inner, place - place[starts[:-1]][tree], leaf)
    left, right = (np.where(ends[inner, side], leaf[inner], place[child[inner, side]]) for side in (0, 1))
    at = leaves[of_leaf]
    first = np.repeat(at[leaf_offsets[:-1]], np.diff(leaf_offsets))
    return Trees(
        _tests(places[inner], tree[inner], tests),
        left,
        right,
        values[at[:, None] + np.arange(n_outputs)],
        (at - first) // n_outputs,
        np.diff(leaf_offsets),
    )
