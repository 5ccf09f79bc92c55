"""The CTRs of CatBoost's JSON: ``features_info.ctrs``, which trees test, and the counts of ``ctr_data``.

A CTR's table has a key for each category, or combination, that training has met, and the counts for it: the number of
labels of each class (Borders, Buckets), their sum and number (BinarizedTargetMeanValue, FloatTargetMeanValue), or how
often it came (Counter, FeatureFreq). The CTR is ``((good + prior) / (all + denominator) + shift) * scale``, in float32.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from gpuqs.ctrs import Ctrs, Projection
from gpuqs.errors import ModelFormatError, UnsupportedModelError
from gpuqs.formats.fields import INT32_MAX, get, numbers, whole

CLASSES: Final = ("Borders", "Buckets")
MEANS: Final = ("BinarizedTargetMeanValue", "FloatTargetMeanValue")
#: Types that count no labels.
_COUNTERS: Final = ("Counter", "FeatureFreq")

#: The key of an empty slot of CatBoost's hash table.
NO_KEY: Final = (1 << 64) - 1
#: Upper limits of a model's CTRs, and of their values: _FREE_VALUES plus _MAX_OF_COUNT for each count in the file.
_MAX_CTRS: Final = 1 << 16
_FREE_VALUES: Final = 1 << 20
_MAX_OF_COUNT: Final = 32


#: `Projection.categories`, ``above`` and ``equals``.
_Elements = tuple[tuple[int, ...], tuple[tuple[int, float, bool], ...], tuple[tuple[int, int], ...]]


class CtrTable(NamedTuple):
    """What was counted: keys, ascending, uint64 [M]; counts float64 [M, n]; the denominator of counters."""

    keys: npt.NDArray[np.uint64]
    counts: npt.NDArray[np.float64]
    denominator: int


def table(obj: dict[str, Any]) -> CtrTable:
    """A table of ``ctr_data``.

    Raises
    ------
    ModelFormatError
    """
    name = "hash_map"
    stride = whole(obj, "hash_stride", 2, 1 << 16)
    listed = get(obj, name, list)
    if len(listed) % stride:
        raise ModelFormatError(f"holds {len(listed)} numbers, which is not a multiple of {stride}", field=name)
    try:
        keys = np.fromiter(map(int, listed[::stride]), np.uint64, len(listed) // stride)
    except (TypeError, ValueError, OverflowError):
        raise ModelFormatError("holds a key that is not an unsigned 64-bit integer", field=name) from None
    counts = [numbers(listed[at::stride], name, np.float64) for at in range(1, stride)]
    there = keys != NO_KEY
    denominator = whole(obj, "counter_denominator", 0, INT32_MAX, 0)
    return sorted_table(keys[there], np.stack(counts, axis=1)[there], denominator)


def sorted_table(
    keys: npt.NDArray[np.uint64], counts: npt.NDArray[np.float64], denominator: int
) -> CtrTable:
    """A table of keys in any order."""
    order = np.argsort(keys)
    return CtrTable(keys[order], counts[order], denominator)


class _Ctr(NamedTuple):
    """How a CTR is computed from counts."""

    type: str
    target_border: int
    prior: np.float32
    denominator: np.float32
    shift: np.float32
    scale: np.float32
    table: CtrTable

    def values(self, keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.float32]:
        """The CTR for each key, and last for keys that training has not met; float32 [M + 1]."""
        counts, n = self.table.counts, self.table.counts.shape[1]
        if self.type in CLASSES:
            start = self.target_border + (self.type == "Borders")
            stop = n if self.type == "Borders" else start + 1
            if start >= n:
                raise ModelFormatError(f"uses class {start}, but there are {n}", field="target_border_idx")
            good, total = counts[:, start:stop].sum(axis=1), counts.sum(axis=1)
        elif n != 1 + (self.type in MEANS):
            raise ModelFormatError(f"the table of a {self.type} has {n} numbers per key", field="hash_stride")
        else:
            good = counts[:, 0]
            total = counts[:, 1] if self.type in MEANS else np.full(len(counts), float(self.table.denominator))
        if keys is self.table.keys:
            at, there = np.arange(len(keys)), np.ones(len(keys), bool)
        else:
            at = np.searchsorted(self.table.keys, keys)
            there = np.zeros(len(keys), bool)
            inside = at < len(self.table.keys)
            there[inside] = self.table.keys[at[inside]] == keys[inside]
        none = float(self.table.denominator) if self.type in _COUNTERS else 0.0
        all_good, all_total = np.zeros(len(keys) + 1, np.float32), np.full(len(keys) + 1, none, np.float32)
        all_good[:-1][there], all_total[:-1][there] = good[at[there]], total[at[there]]
        with np.errstate(all="ignore"):  # as CatBoost, in float32
            return ((all_good + self.prior) / (all_total + self.denominator) + self.shift) * self.scale


def read_ctrs(
    listed: list[Any],
    tables: dict[str, Any],
    floats: dict[int, tuple[int, bool]],
    columns: dict[int, int],
    codes: dict[int, tuple[int, ...]],
    n_given: int,
) -> tuple[Ctrs, list[int]]:
    """The CTRs of a model, and the column of each one ``listed``.

    Parameters
    ----------
    listed : list
        ``features_info.ctrs``.
    tables : dict
        ``ctr_data``.
    floats, columns : dict
        Columns of numeric features (and whether NaN counts as above a border), and of categorical ones, by
        feature_index.
    codes : dict
        As in `Ctrs`.
    n_given : int
        Columns that users give.
    """
    if len(listed) > _MAX_CTRS:
        raise ModelFormatError(f"{len(listed):,} CTRs", field="ctrs")
    of_projection: dict[_Elements, list[tuple[int, _Ctr]]] = {}
    for number, item in enumerate(listed):
        elements = _elements(get(item, "elements", list), floats, columns)
        of_projection.setdefault(elements, []).append((number, _ctr(item, tables)))
    projections, column_of, column = [], [0] * len(listed), n_given
    n_values, n_counted = 0, 0
    for elements, ctrs in of_projection.items():
        distinct = list({id(ctr.table): ctr.table for _, ctr in ctrs}.values())
        n_counted += sum(table.counts.size for table in distinct)
        keys = distinct[0].keys
        if not all(np.array_equal(table.keys, keys) for table in distinct[1:]):
            keys = np.unique(np.concatenate([table.keys for table in distinct]))
        n_values += (len(keys) + 1) * len(ctrs)
        if n_values > _FREE_VALUES + _MAX_OF_COUNT * n_counted:
            raise ModelFormatError(f"too many ({n_values:,}) statistics of {n_counted:,} counts", field="ctr_data")
        values = np.stack([ctr.values(keys) for _, ctr in ctrs], axis=1)
        projections.append(Projection(*elements, keys, np.ascontiguousarray(values)))
        for number, _ in ctrs:
            column_of[number] = column
            column += 1
    return Ctrs(n_given, codes, tuple(projections)), column_of


def refuse_lost_tables(listed: list[Any], params: dict[str, Any], *, several_targets: bool) -> None:
    """Refuse a model that has several tables of one name, of which CatBoost's JSON keeps only one.

    The JSON names a table by what it counts by and by its type, but not by its target or by how labels became classes.

    Parameters
    ----------
    listed : list
        ``features_info.ctrs``.
    params : dict
        The training's parameters; without them, tables may be lost (CatBoost's ``sum_models`` writes such models).
    several_targets : bool
        Whether documents bear several labels, each of which has tables.

    Raises
    ------
    UnsupportedModelError
    """
    of_labels = {kind for ctr in listed if (kind := get(ctr, "ctr_type", str)) not in _COUNTERS}
    if not of_labels:
        return
    options = params.get("cat_feature_params")
    if not several_targets and isinstance(options, dict):
        lists = [get(options, name, list, []) for name in ("simple_ctrs", "combinations_ctrs")]
        lists += get(options, "per_feature_ctrs", dict, {}).values()
        if all(len(_partings(ctrs, kind)) <= 1 for ctrs in lists for kind in of_labels):
            return
    if several_targets:
        why = "several targets"
    elif isinstance(options, dict):
        why = "the same type with several TargetBorderCount"
    else:
        why = "a model that does not record how it was trained, such as one made by sum_models,"
    raise UnsupportedModelError(
        f"statistics of categories (CTRs) of {why} are not evaluated, as CatBoost's JSON may lack some of "
        'their tables; save the model in its binary form, which has them all: model.save_model("model.cbm")'
    )


def _partings(ctrs: Any, kind: str) -> set[str]:
    """The different ways in which CTRs of a type divide labels into classes."""
    if not isinstance(ctrs, list):
        raise ModelFormatError("is not an array", field="per_feature_ctrs")
    return {str(get(ctr, "target_binarization", dict, {})) for ctr in ctrs if get(ctr, "ctr_type", str) == kind}


def _ctr(item: dict[str, Any], tables: dict[str, Any]) -> _Ctr:
    kind, identifier = get(item, "ctr_type", str), get(item, "identifier", str)
    if kind not in (*CLASSES, *MEANS, *_COUNTERS):
        raise UnsupportedModelError(f"statistics of categories of type {kind[:100]!r} are not evaluated")
    found = tables.get(identifier)
    if isinstance(found, dict):  # the parser could not convert it; raises what is wrong
        found = table(found)
    if not isinstance(found, CtrTable):
        raise ModelFormatError(f"has no table of {identifier[:100]!r}: the file is damaged", field="ctr_data")
    given = (item.get(name, 0) for name in ("prior_numerator", "prior_denomerator", "shift", "scale"))
    prior, denominator, shift, scale = numbers(list(given), "ctrs", np.float32)
    return _Ctr(kind, whole(item, "target_border_idx", 0, INT32_MAX, 0), prior, denominator, shift, scale, found)


def _elements(elements: list[Any], floats: dict[int, tuple[int, bool]], columns: dict[int, int]) -> _Elements:
    """What a CTR counts by: columns of categories, tests of numbers, tests of categories."""
    categories, above, equals = [], [], []
    for element in elements:
        kind = get(element, "combination_element", str)
        is_number = kind == "float_feature"
        index = whole(element, "float_feature_index" if is_number else "cat_feature_index", 0, INT32_MAX)
        if index not in (floats if is_number else columns):
            raise ModelFormatError(f"feature {index} is not in features_info", field="elements")
        if is_number:
            column, nan_right = floats[index]
            border = float(numbers([element.get("border")], "border", np.float32)[0])
            above.append((column, border, nan_right and border < np.inf))
        elif kind == "cat_feature_value":
            categories.append(columns[index])
        elif kind == "cat_feature_exact_value":
            equals.append((columns[index], whole(element, "value", -INT32_MAX - 1, 2 * INT32_MAX + 1) % (1 << 32)))
        else:
            raise UnsupportedModelError(f"statistics of categories by {kind[:100]!r} are not evaluated")
    return tuple(categories), tuple(above), tuple(equals)
