"""CatBoost's binary models (``.cbm``, what ``save_model`` writes): FlatBuffers, taken apart into what its JSON says.

After 8 bytes (the magic, the size of the first buffer) comes a buffer with trees and features; behind it, if there are
CTRs, the number of their tables, and each as a size and a buffer. Fields are numbered as CatBoost's schemas list them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gpuqs.errors import ModelFormatError, UnsupportedModelError
from gpuqs.formats.catboost_ctrs import CLASSES, MEANS, NO_KEY, CtrTable, sorted_table
from gpuqs.formats.catboost_trees import CTR, FLOAT, MAX_DEPTH, ONE_HOT, Split
from gpuqs.formats.fields import parse_json
from gpuqs.formats.flatbuffers import Table

MAGIC: Final = b"CBM1"

_MAX_OUTPUTS: Final = 1 << 20
_NAN_TREATMENTS: Final = ("AsIs", "AsFalse", "AsTrue")
_CTR_TYPES: Final = (
    *("Borders", "Buckets", "BinarizedTargetMeanValue", "FloatTargetMeanValue"),
    *("Counter", "FeatureFreq"),
)
#: The part behind the trees that holds CTRs.
_CTR_PART: Final = "static_provider_v1"
_BUCKET: Final = np.dtype([("key", "<u8"), ("row", "<u4")])
_STEP: Final = np.dtype([("left", "<u2"), ("right", "<u2")])
_MEAN: Final = np.dtype([("sum", "<f4"), ("count", "<i4")])
_FLOAT_TEST: Final = np.dtype([("feature", "<i4"), ("border", "<f4")])
_ONE_HOT_TEST: Final = np.dtype([("feature", "<i4"), ("value", "<i4")])


def document(data: memoryview) -> dict[str, Any]:
    """A model as CatBoost's JSON has it; numbers in arrays, splits one object for all that are alike.

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
    features = _features(trees)
    return {
        "model_info": info,
        "features_info": features,
        "ctr_data": dict(_tables(data[behind:])) if parts else {},
        "scale_and_bias": [trees.number(14, "d", 1.0), _bias(trees)],
        **_trees(trees, _splits(features)),
    }


def _sized(data: memoryview, at: int) -> tuple[memoryview, int]:
    """A buffer whose size stands before it, and where it ends."""
    size = int.from_bytes(data[at : at + 4], "little")
    if at + 4 + size > len(data):
        raise ModelFormatError("is cut short, or damaged: a part of it would lie outside of the file")
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
    """What a CTR counts by, its type, and a name that tells its table from all others."""
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
    """The tables of CTRs behind the trees, by the names that `_base` gives."""
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
            problem = f"{len(buckets)} keys for {len(counts)} rows of counts, or one that leads beyond these"
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


def _splits(features: dict[str, Any]) -> list[Split]:
    """What each number of a split stands for: borders of numbers, values of categories, borders of CTRs."""
    fields: list[dict[str, Any]] = []
    for feature in features["float_features"]:
        kind = {"split_type": FLOAT, "float_feature_index": feature["feature_index"]}
        fields += [{**kind, "border": border} for border in feature["borders"]]
    for feature in features["categorical_features"]:
        kind = {"split_type": ONE_HOT, "cat_feature_index": feature["feature_index"]}
        fields += [{**kind, "value": value} for value in feature["values"]]
    for ctr in features["ctrs"]:
        fields += [{"split_type": CTR, "border": border} for border in ctr["borders"]]
    return [Split({**of, "split_index": number}, None) for number, of in enumerate(fields)]


def _bias(trees: Table) -> Any:
    """The bias of each output; releases before 1.0 kept one for all."""
    biases = trees.numbers(16, "<f8").tolist()
    one, n_outputs = trees.number(15, "d", 0.0), _n_outputs(trees)
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


def _trees(trees: Table, splits: list[Split]) -> dict[str, Any]:
    tests, sizes, starts = (trees.numbers(field, "<i4").astype(np.int64) for field in (1, 2, 3))
    if len(starts) != len(sizes) or (sizes < 0).any() or not np.array_equal(starts, np.cumsum(sizes) - sizes):
        raise ModelFormatError("does not fit TreeSizes", field="TreeStartOffsets")
    if sizes.sum() != len(tests):
        raise ModelFormatError(f"{len(tests)} splits for trees of {sizes.sum()}", field="TreeSplits")
    values, steps = trees.numbers(8, "<f8"), trees.numbers(10, _STEP)
    n_outputs = _n_outputs(trees)
    if not len(steps):
        return {"oblivious_trees": list(_symmetric(tests, starts, sizes, values, splits, n_outputs))}
    leaves = trees.numbers(11, "<u4").astype(np.int64)
    if not len(steps) == len(leaves) == len(tests):
        raise ModelFormatError(f"{len(steps)} and {len(leaves)} for {len(tests)} splits", field="NonSymmetricStepNodes")
    n_leaves = 2 * len(steps) - int((steps["left"] > 0).sum() + (steps["right"] > 0).sum())
    n_leaves -= int(((steps["left"] == 0) & (steps["right"] == 0)).sum())
    if n_leaves * n_outputs > len(values):  # which leaves would share
        raise ModelFormatError(f"{len(values)} values for {n_leaves} leaves", field="LeafValues")
    found = []
    for number, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        of_tree = slice(start, start + size)
        shape = tests[of_tree].tolist(), steps[of_tree].tolist(), leaves[of_tree].tolist()
        found.append(_nested(*shape, values, splits, n_outputs, number))
    return {"trees": found}


def _symmetric(
    tests: npt.NDArray[np.int64],
    starts: npt.NDArray[np.int64],
    sizes: npt.NDArray[np.int64],
    values: np.ndarray,
    splits: list[Split],
    n_outputs: int,
) -> Iterator[dict[str, Any]]:
    first = 0
    for number, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        n_values = n_outputs << size if size <= MAX_DEPTH else len(values) + 1
        if first + n_values > len(values):
            raise ModelFormatError(f"too few values for its {size} splits", tree=number, field="LeafValues")
        of_tree = [_split(splits, test, number) for test in tests[start : start + size].tolist()]
        yield {"splits": of_tree, "leaf_values": values[first : first + n_values]}
        first += n_values
    if first != len(values):
        raise ModelFormatError(f"{len(values)} values, of which trees have {first}", field="LeafValues")


def _split(splits: list[Split], test: int, tree: int) -> Split:
    if not 0 <= test < len(splits):
        raise ModelFormatError(f"names split {test} of {len(splits)}", tree=tree, field="TreeSplits")
    return splits[test]


def _nested(
    tests: list[int],
    steps: list[tuple[int, int]],
    leaves: list[int],
    values: np.ndarray,
    splits: list[Split],
    n_outputs: int,
    number: int,
) -> Any:
    """A tree as `Condenser` makes it, with CatBoost's own number of each leaf.

    A step leads so many places ahead. One that leads nowhere ends at the leaf of its node; where both do, the node is
    that leaf alone.
    """
    if not tests:
        raise ModelFormatError("has no nodes", tree=number, field="TreeSizes")
    field, taken = "NonSymmetricStepNodes", [False] * len(tests)
    subtrees: list[Any] = []  # from the last node to the first

    def leaf(node: int) -> tuple[Any, int]:
        at = leaves[node]
        if at % n_outputs or at + n_outputs > len(values):
            problem = f"node {node} leads to value {at}, with which no leaf begins"
            raise ModelFormatError(problem, tree=number, field="NonSymmetricNodeIdToLeafId")
        value = values[at : at + n_outputs].tolist()
        return (value if n_outputs > 1 else value[0]), at // n_outputs

    def child(node: int, step: int) -> Any:
        if step == 0:
            return leaf(node)
        if node + step >= len(tests) or taken[node + step]:
            raise ModelFormatError(f"node {node} leads to no node, or to another one's", tree=number, field=field)
        taken[node + step] = True
        return subtrees[len(tests) - 1 - node - step]

    for node in range(len(tests) - 1, -1, -1):
        left, right = steps[node]
        if left or right:
            subtrees.append((_split(splits, tests[node], number), child(node, left), child(node, right)))
        else:
            subtrees.append(leaf(node))
    return subtrees[-1]
