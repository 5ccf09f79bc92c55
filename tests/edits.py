"""Edits of JSON model files, each given by the path of the changed element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Edit = Callable[[dict[str, Any]], Any]


def at(*path: str | int, value: Any) -> Edit:
    """An edit that puts `value` at `path`."""

    def edit(model: Any) -> None:
        for key in path[:-1]:
            model = model[key]
        model[path[-1]] = value

    return edit


def without(*path: str | int) -> Edit:
    """An edit that removes the element at `path`."""

    def edit(model: Any) -> None:
        for key in path[:-1]:
            model = model[key]
        del model[path[-1]]

    return edit
