"""Live objects whose predictions are not their library's: subclasses and objects with methods of their own."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, Final

from gpuqs.errors import UnsupportedModelError

#: Where classes come from, beside the library itself, whose methods are not an object's own.
_BASES: Final = ("sklearn", "builtins")

#: What a class may do in its own way: it concerns training, or names the parameters of the object.
_FREE: Final = frozenset(("__init__", "get_params", "set_params", "_get_param_names"))

#: Methods that come before all others.
_BEFORE_ALL: Final = ("__getattribute__", "__getattr__")


def refuse_own_methods(obj: Any, package: str, names: Iterable[str]) -> None:
    """Refuse an object one of whose methods is not its library's, and so may predict something else.

    Watched are the methods given, and what of the object they use, and that in turn.

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
    of_library = (package, *_BASES)
    for name in _watched(kind, (*_BEFORE_ALL, *names)):
        owner = next(base for base in kind.__mro__ if name in vars(base))
        method = getattr(kind, name)
        method = getattr(method, "fget", method)  # of a property
        # A library's class whose method was replaced by a function from elsewhere.
        replaced = callable(method) and _package(getattr(method, "__module__", "")) not in of_library
        is_own = _package(owner.__module__) not in of_library or (replaced and owner.__module__ != "builtins")
        if is_own or name in getattr(obj, "__dict__", ()):
            base = next((base.__name__ for base in kind.__mro__ if _package(base.__module__) == package), package)
            raise UnsupportedModelError(
                f"{_package(kind.__module__)}.{kind.__name__}: has a method {name} of its own, and so may predict "
                f"something else than {base} does; pass an estimator of that class itself"
            )


@lru_cache(64)
def _watched(kind: type, names: tuple[str, ...]) -> tuple[str, ...]:
    """Those of the names that a class has, then what else of the class their code names, and that in turn."""
    found: dict[str, None] = {}
    left = list(names)
    while left:
        name = left.pop(0)
        owners = [vars(base) for base in kind.__mro__ if name in vars(base)]
        if owners and name not in found and name not in _FREE:
            found[name] = None
            left += (used for members in owners for code in _codes_of(members[name]) for used in code.co_names)
    return tuple(found)


def _codes_of(member: Any) -> Iterator[CodeType]:
    """The code of a method, or of what gives a property; of what it wraps, and of functions in it, too."""
    wrapped = (getattr(member, name, None) for name in ("fget", "fn", "__func__"))  # of properties, scikit-learn, class
    for function in (member, *wrapped):
        function = inspect.unwrap(function) if callable(function) else None
        codes = [function.__code__] if isinstance(function, FunctionType) else []
        while codes:
            code = codes.pop()
            yield code
            codes += (constant for constant in code.co_consts if isinstance(constant, CodeType))


def _package(module: Any) -> str:
    return str(module).partition(".")[0]
