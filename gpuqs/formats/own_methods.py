"""Refuse live objects that may not predict as their library does: subclasses, and objects with their own methods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dis import get_instructions
from functools import lru_cache
from types import BuiltinFunctionType, CodeType, FunctionType
from typing import Any, Final

from gpuqs.errors import UnsupportedModelError

#: Packages besides the library itself whose methods do not count as an object's own.
_BASES: Final = ("sklearn", "builtins")

#: Methods that a class may define itself: they concern training, or name the parameters of the object.
_FREE: Final = frozenset(("__init__", "get_params", "set_params", "_get_param_names"))

#: Attributes in which properties, scikit-learn's decorators, class methods and Python's wrappers keep what they wrap.
_WRAPPED: Final = ("fget", "fn", "__func__", "__wrapped__")

#: Methods that are called for every attribute access, before all others.
_BEFORE_ALL: Final = ("__getattribute__", "__getattr__")


def refuse_own_methods(obj: Any, package: str, names: Iterable[str]) -> None:
    """Refuse an object with a method that is not its library's, as it may predict something else.

    The given methods are checked, and the members of the object that they use, directly or indirectly.

    Parameters
    ----------
    obj : object
    package : str
        The library's, such as "lightgbm".
    names : iterable of str
        Methods that determine what the object predicts.

    Raises
    ------
    UnsupportedModelError
    """
    kind = type(obj)
    of_library = (package, *_BASES)
    for name in _watched(kind, (*_BEFORE_ALL, *names)):  # type: ignore[arg-type]  # classes can be hashed
        if not _is_of_library(obj, name, of_library):
            continue
        owner = next(base for base in kind.__mro__ if name in vars(base))
        strangers = set() if owner is object else {_origin(part) for part in _layers(vars(owner)[name])}
        strangers.difference_update(of_library)
        if _package(owner.__module__) not in of_library or strangers or name in getattr(obj, "__dict__", ()):
            base = next((base.__name__ for base in kind.__mro__ if _package(base.__module__) == package), package)
            patched = _package(owner.__module__) == package and strangers
            mend = (
                f"{', '.join(sorted(strangers))} put it there; undo that (as mlflow.autolog(disable=True) does), or "
                "pass the estimator's booster or its file, where it has one"
                if patched
                else "pass an instance of that class itself"
            )
            raise UnsupportedModelError(
                f"{_package(kind.__module__)}.{kind.__name__}: has its own {name}, so it may "
                f"predict something other than {base} does; {mend}"
            )


def _is_of_library(obj: Any, name: str, of_library: tuple[str, ...]) -> bool:
    """Whether a name in the library's code may mean a member of this object; it may be one of another object."""
    if name.startswith("_") or name.endswith("_") or name in getattr(obj, "__dict__", ()):
        return True
    members = [vars(base) for base in type(obj).__mro__ if _package(base.__module__) in of_library]
    if any(name in each for each in members):
        return True
    starts = [code for each in members if "__init__" in each for code in _codes_of(each["__init__"])]
    steps = (step for code in starts for step in get_instructions(code))
    return any(step.opname == "STORE_ATTR" and step.argval == name for step in steps)


@lru_cache(64)
def _watched(kind: type, names: tuple[str, ...]) -> tuple[str, ...]:
    """The names that a class has, then the members of the class that their code names, directly or indirectly."""
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
    """The code of a method or property, of what it wraps, and of the functions within."""
    codes = [part.__code__ for part in _layers(member) if isinstance(part, FunctionType)]
    while codes:
        code = codes.pop()
        yield code
        codes += (constant for constant in code.co_consts if isinstance(constant, CodeType))


def _layers(member: Any) -> list[Any]:
    """A member of a class if it is callable or a descriptor, and all that it wraps, directly or indirectly."""
    found: list[Any] = []
    left = [member]
    while left:
        part = left.pop()
        if (callable(part) or hasattr(type(part), "__get__")) and not any(part is other for other in found):
            found.append(part)
            left += [inner for name in _WRAPPED if (inner := getattr(part, name, None)) is not None]
    return found


def _origin(part: Any) -> str:
    """The package whose code runs; a function's ``__module__`` does not show it, as `functools.wraps` copies that."""
    kind = type(part)
    if isinstance(part, (type, BuiltinFunctionType)):
        return _package(part.__module__)
    if kind is FunctionType or kind.__name__ == "cython_function_or_method":
        return _package(part.__globals__.get("__name__"))
    return _package(kind.__module__)


def _package(module: Any) -> str:
    return str(module).partition(".")[0]
