"""Live objects whose predictions are not their library's: subclasses and objects with methods of their own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpuqs.errors import UnsupportedModelError


def refuse_own_methods(obj: Any, package: str, names: Iterable[str]) -> None:
    """Refuse an object one of whose methods is not its library's, and so may predict something else.

    Parameters
    ----------
    obj : object
    package : str
        The library's, as "lightgbm".
    names : iterable of str
        Methods that say what the object predicts.

    Raises
    ------
    UnsupportedModelError
    """
    kind = type(obj)
    for name in names:
        method = getattr(kind, name, None)
        method = getattr(method, "fget", method)  # of a property
        if name not in vars(obj) and (method is None or _package(getattr(method, "__module__", "")) == package):
            continue
        base = next(base.__name__ for base in kind.__mro__ if _package(base.__module__) == package)
        raise UnsupportedModelError(
            f"{_package(kind.__module__)}.{kind.__name__}: has a method {name} of its own, and so may predict "
            f"something else than {base} does; pass an estimator of that class itself"
        )


def _package(module: Any) -> str:
    return str(module).partition(".")[0]
