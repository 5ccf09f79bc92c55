"""What the papers measured, by table: bench/papers/ holds their numbers as printed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "papers"

#: By panel, row and x; None where the paper says NA.
Values = Mapping[str, Mapping[str, Mapping[str, float | None]]]


@cache
def paper_of(table: str) -> dict[str, Any]:
    """A table's numbers ("values"), parameters, processor, and what the text says; and the paper's title."""
    held = json.loads((FOLDER / f"{table[:3]}.json").read_text())
    found: dict[str, Any] = held["tables"][table]
    return {"paper": held["paper"], "parameters": {}, "text": [], **found}


def ratio(values: Values, panel: str, label: str, x: str, base: str, more_is_better: bool = False) -> float | None:
    """How many times as fast as the base a row is; None where either has no value."""
    row = values.get(panel, {})
    value, reference = row.get(label, {}).get(x), row.get(base, {}).get(x)
    if not value or not reference:
        return None
    return value / reference if more_is_better else reference / value
