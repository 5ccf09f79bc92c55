"""Edits of model files that are JSON documents, by the path of what they change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Edit = Callable[[dict[str, Any]], Any]


def at(*path: str | int, value: Any) -> Edit:
    """The edit that puts `value` at `path`."""

    def edit(model: Any) -> None:
        for key in path[:-1]:
            model = model[key]
        model[path[-1]] = value

    return edit


def without(*path: str | int) -> Edit:
    """The edit that takes away what stands at `path`."""

    def edit(model: Any) -> None:
        for key in path[:-1]:
            model = model[key]
        del model[path[-1]]

    return edit
