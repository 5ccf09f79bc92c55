"""Which columns of a table are the model's features."""

from __future__ import annotations

from gpuqs.arrays.refusals import trained_on
from gpuqs.errors import InputError
from gpuqs.forest import Forest


def columns_of(names: list[str], named: bool, forest: Forest, what: str = "X") -> list[int] | None:
    """Positions of the model's features among ``names``; None if all columns are taken in their order.

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
        The model's features are not among them, or one of them is there twice, or two have the same name.
    """
    wanted = forest.schema.names
    places: dict[str, list[int]] = {}
    spelled: dict[str, list[int]] = {}
    for at, name in enumerate(names):
        places.setdefault(name, []).append(at)
        if (stored := forest.schema.stored(name)) != name:
            spelled.setdefault(stored, []).append(at)
    found = [places.get(name, []) + spelled.get(name, []) for name in wanted]
    missing = [name for name, at in zip(wanted, found, strict=True) if not at]
    if wanted and not missing:
        twice = [name for name, at in zip(wanted, found, strict=True) if len(at) > 1]
        if twice:
            how = " (LightGBM replaces blanks by underscores)" if any(map(spelled.get, twice)) else ""
            raise InputError(f"{what} has several columns called {_shown(twice)}{how}; drop or rename all but one")
        if len(set(wanted)) < len(wanted):
            alike = [name for name in dict.fromkeys(wanted) if wanted.count(name) > 1]
            raise InputError(
                f"the model has several features called {_shown(alike)}, so {what}'s columns are ambiguous; "
                "pass an array with the columns as in training, or train with other names"
            )
        take = [at[0] for at in found]
        return None if take == list(range(len(names))) else take
    if named and (forest.schema.has_names or len(missing) < len(wanted)):
        raise InputError(
            f"{what} lacks {len(missing)} of the model's {len(wanted)} features: {_shown(missing)}; "
            "rename its columns, or pass an array, such as X.to_numpy(), to go by position"
        )
    if len(names) != forest.n_features:
        raise InputError(f"{what} has {len(names)} columns; {trained_on(forest, len(names))}")
    return None


def _shown(names: list[str]) -> str:
    return ", ".join(map(repr, names[:5])) + (", ..." if len(names) > 5 else "")
