"""Check against a model's trees which columns hold its categories according to the caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gpuqs.errors import InputError
from gpuqs.forest import CATEGORICAL, Forest


def told(forest: Forest, categories: Mapping[str | int, Sequence[Any]] | Sequence[str | int]) -> Forest:
    """The forest with the positions of its category columns filled in.

    Parameters
    ----------
    forest : Forest
    categories : mapping or sequence
        As for `gpuqs.schema.Schema.placed`.

    Raises
    ------
    InputError
        The schema refuses them; or the model's file does not give their positions, and its trees test a column in a way
        in which they could not test codes.
    """
    schema = forest.schema.placed(categories, forest.given.n_features)
    if forest.schema.in_order:
        for feature in schema.stated:
            how = _contradiction(forest, feature, schema.categories[feature] or ())
            if how:
                raise InputError(
                    f"categories names column {schema.name_of(feature)}, but the model's trees {how}; name "
                    "only category columns of the training frame"
                )
    return replace(forest, schema=schema)


def _contradiction(forest: Forest, feature: int, known: Sequence[Any]) -> str:
    """How the trees test a feature in a way that LightGBM never tests codes of ``known``; empty if they do not."""
    nodes = np.flatnonzero(forest.feature == feature)
    is_set = (forest.routing[nodes] & CATEGORICAL) != 0
    thresholds = forest.threshold[nodes[~is_set]]
    # LightGBM's thresholds are halfway between two codes, or at zero (written as 1e-35), or beyond all numbers.
    doubtful = thresholds[(np.abs(thresholds) > 1e-30) & (np.abs(thresholds) < 1e300)]
    amid = (doubtful > 0) & (doubtful < len(known) - 1) & (np.abs(2 * doubtful - np.rint(2 * doubtful)) < 1e-6)
    if not amid.all():
        return (
            f"compare it with {doubtful[~amid][0]:g}, which is not halfway between two codes of {len(known)} "
            f"categories, such as {known[:2]}"
        )
    for node in nodes[is_set]:
        words = forest.category_words[forest.category_offsets[node] : forest.category_offsets[node + 1]]
        codes = np.flatnonzero(np.unpackbits(words.astype("<u4").view(np.uint8), bitorder="little"))
        if len(codes) and codes[-1] >= len(known):
            return f"test it for the code {codes[-1]}, but there are only {len(known)} categories, such as {known[:2]}"
    return ""
