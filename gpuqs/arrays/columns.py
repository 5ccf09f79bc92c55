"""Which columns of a table are the model's features."""

from __future__ import annotations

import re

from gpuqs.errors import InputError
from gpuqs.forest import Forest

#: Names that LightGBM and XGBoost make up for features that have none.
_MADE_UP_NAME = re.compile(r"(Column_|f|feature_)\d+")


def columns_of(names: list[str], named: bool, forest: Forest, what: str = "X") -> list[int] | None:
    """Positions of the model's features among ``names``; None to take all as they come.

    Parameters
    ----------
    names : list of str
    named : bool
        Whether the names are real ones, not positions.
    forest : Forest
    what : str
        What has these columns, for error messages.

    Raises
    ------
    InputError
        The model's features are not among them.
    """
    wanted = forest.feature_names
    position: dict[str, int] = {}
    for at, name in enumerate(names):
        for spelling in (name, name.replace(" ", "_")):  # LightGBM stores blanks as underscores
            position.setdefault(spelling, at)
    missing = [name for name in wanted if name not in position]
    if wanted and not missing:
        take = [position[name] for name in wanted]
        return None if take == list(range(len(names))) else take
    real = named and wanted and not all(_MADE_UP_NAME.fullmatch(name) for name in wanted)
    if real:
        shown = ", ".join(repr(name) for name in missing[:5]) + (", ..." if len(missing) > 5 else "")
        raise InputError(
            f"{what} lacks {len(missing)} of the model's {len(wanted)} features: {shown}; "
            "rename its columns, or give an array without names to go by position"
        )
    if len(names) != forest.n_features:
        raise InputError(f"{what} has {len(names)} columns; the model was trained on {forest.n_features} features")
    return None
