"""Frames to compare: rows that hold categories in place of codes, so that each library codes them itself."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuqs.forest import Forest
from gpuqs.schema import Schema


def category_lists(forest: Forest) -> dict[int, tuple[Any, ...]]:
    """Features that frames hold as categories, and the model's lists for them.

    If the model does not give their positions, any will do, as LightGBM goes by the frame's order: first those that
    are tested as categories, then those whose thresholds lie between codes, as for ordered categories.
    """
    schema = forest.schema
    if not schema.in_order:
        return {feature: known for feature, known in enumerate(schema.categories) if known is not None}
    tested = sorted(forest.tested_as_categories)
    with np.errstate(invalid="ignore"):  # of infinite thresholds
        between = np.abs(forest.threshold - np.floor(forest.threshold) - 0.5) < 1e-6
    numeric = np.bincount(forest.feature, minlength=forest.n_features)
    ordered = np.bincount(forest.feature, weights=between, minlength=forest.n_features) / np.maximum(numeric, 1)
    others = [feature for feature in np.argsort(-ordered, kind="stable").tolist() if feature not in tested]
    features = [*tested, *others][: len(schema.in_order)]
    return dict(zip(sorted(features), schema.in_order, strict=True))


def made_frame(
    X: np.ndarray, forest: Forest, rng: np.random.Generator, pandas: Any, untested: Collection[int] = ()
) -> Any:
    """A frame of the rows ``X`` [D, n_features], with categories in another order, some unseen, some missing.

    ``untested``: categorical features for which the model keeps no list, as its trees do not test them.
    """
    columns: dict[int, Any] = {feature: X[:, feature] for feature in range(X.shape[1])}
    for feature, known in category_lists(forest).items():
        codes = X[:, feature].astype(np.float64)
        unseen = _unseen(known, forest.schema)
        lowest, highest = -int(not forest.schema.rules.missing_refused), len(known) + len(unseen)
        drawn = rng.integers(lowest, max(highest, lowest + 1), len(X))
        with np.errstate(invalid="ignore"):
            sound = (codes >= 0) & (codes < len(known)) & (codes == np.floor(codes))
        places = np.where(sound, np.where(sound, codes, 0).astype(np.int64), drawn)
        columns[feature] = _shuffled([*known, *unseen], places, rng, pandas)
    columns |= dict.fromkeys(untested, np.zeros(len(X), np.int64))
    frame = pandas.DataFrame(columns)
    frame.columns = list(forest.schema.names) or [f"f{feature}" for feature in range(X.shape[1])]
    return frame


def given_frame(table: Any, forest: Forest, pandas: Any) -> Any:
    """A frame of an Arrow table whose columns are the model's features in order.

    They get the model's names, as a file may have none. Strings that the trees test as categories become categories;
    the library gets everything else as it is in the table.
    """
    frame, schema = table.to_pandas(ignore_metadata=True), forest.schema
    frame.columns = list(schema.names or frame.columns)
    known = schema.categories or (None,) * len(frame.columns)
    for at, name in enumerate(frame.columns):
        dtype = frame.dtypes[name]
        text = not isinstance(dtype, (pandas.CategoricalDtype, np.dtype)) or dtype.kind == "O"
        if known[at] is not None or (schema.in_order and text and at in forest.tested_as_categories):
            frame[name] = _whole_numbers(frame[name].astype("category"))
    return frame


def _whole_numbers(column: Any) -> Any:
    """Convert float categories, as read from CSV, to integers if all are whole: XGBoost accepts no float categories."""
    values = column.cat.categories
    if values.dtype.kind != "f" or not (values == np.floor(values)).all():
        return column
    return column.cat.rename_categories(values.astype(np.int64))


def _unseen(known: tuple[Any, ...], schema: Schema) -> list[Any]:
    """A list of one category of the same type that is not in ``known``; empty where unseen ones are refused."""
    if schema.rules.unseen_refused or not known or all(isinstance(value, bool) for value in known):
        return []
    if any(isinstance(value, str) for value in known):
        return ["a category that this model has not seen"]
    return [max(known) + 1]


def _shuffled(levels: list[Any], places: npt.NDArray[np.int64], rng: np.random.Generator, pandas: Any) -> Any:
    order = rng.permutation(len(levels))
    place_of = np.append(np.argsort(order), -1)
    return pandas.Categorical.from_codes(place_of[places], [levels[at] for at in order], ordered=bool(rng.integers(2)))
