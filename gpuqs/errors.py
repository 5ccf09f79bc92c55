"""Exceptions that gpuqs raises on purpose; each says what is wrong, where, and how to fix it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class GpuqsError(Exception):
    """Base class of every exception that gpuqs raises on purpose."""


class ModelFormatError(GpuqsError, ValueError):
    """A model that cannot be read: damaged, hostile, or not a model at all.

    Parameters
    ----------
    problem : str
        What is wrong, and how to fix it.
    source : str, optional
        The file (or the kind of object) that was read.
    tree : int, optional
        The tree where the problem lies.
    field : str, optional
        The field of the format where the problem lies.
    """

    def __init__(
        self,
        problem: str,
        *,
        source: str | None = None,
        tree: int | None = None,
        field: str | None = None,
    ) -> None:
        place = [source] if source else []
        if tree is not None:
            place.append(f"tree {tree}")
        if field is not None:
            place.append(f"field {field!r}")
        super().__init__(f"{', '.join(place)}: {problem}" if place else problem)
        self.problem = problem
        self.source = source
        self.tree = tree
        self.field = field

    def at(self, source: str) -> ModelFormatError:
        """The same error, with the file that it was found in."""
        return ModelFormatError(self.problem, source=source, tree=self.tree, field=self.field)


class UnsupportedModelError(GpuqsError, NotImplementedError):
    """A valid model that uses something gpuqs does not evaluate; the message names it, and nothing is scored."""


@contextmanager
def naming(source: str) -> Iterator[None]:
    """Add the model's file, or its kind of object, to errors about it that are raised inside the block."""
    try:
        yield
    except ModelFormatError as error:
        raise error.at(source) from error.__cause__
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"{source}: {error}") from None


class InputError(GpuqsError, ValueError):
    """Documents that cannot be scored: wrong shape, wrong type, missing columns."""


class DeviceError(GpuqsError, RuntimeError):
    """A requested device is not available; says which package, driver or device is missing."""
