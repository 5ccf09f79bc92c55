"""The parameters of engines: what may be tuned, within which limits. No value changes a score."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

#: Values of an engine's parameters, by name; those left out have their defaults.
Params: TypeAlias = Mapping[str, int]
#: Parameters that differ from their defaults, as `changed` returns them.
Changed: TypeAlias = tuple[tuple[str, int], ...]
NONE_GIVEN: Params = {}


@dataclass(frozen=True)
class Parameter:
    """One parameter of an engine.

    Parameters
    ----------
    name : str
    meaning : str
        One-line description.
    default, lowest, highest : int
        The value unless another is given, and the legal range, both ends included.
    """

    name: str
    meaning: str
    default: int
    lowest: int
    highest: int


def settings(engine: str, parameters: tuple[Parameter, ...], params: Params) -> dict[str, int]:
    """A value for each parameter of an engine.

    Raises
    ------
    ValueError
        The engine has no such parameter, or the value is out of range.
    TypeError
        The value is not an integer.
    """
    known = {parameter.name: parameter for parameter in parameters}
    values = {parameter.name: parameter.default for parameter in parameters}
    for name, value in params.items():
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise ValueError(f"engine {engine!r} has no parameter {name!r}; {has}")
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"{name} of engine {engine!r} must be an integer, not {value!r}")
        parameter, number = known[name], operator.index(value)
        if not parameter.lowest <= number <= parameter.highest:
            shown = number if abs(number) < 10**12 else "a number that large"
            raise ValueError(
                f"{name} of engine {engine!r} must be in [{parameter.lowest:,}, {parameter.highest:,}], not {shown}"
            )
        values[name] = number
    return values


def changed(engine: str, parameters: tuple[Parameter, ...], params: Params) -> Changed:
    """The parameters that differ from their defaults, in a fixed order, so that equal settings compare equal.

    Raises
    ------
    ValueError, TypeError
        As `settings`.
    """
    values = settings(engine, parameters, params)
    return tuple((p.name, values[p.name]) for p in parameters if values[p.name] != p.default)
