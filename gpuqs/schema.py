"""Schema: what the columns of a document are, as the training library saw them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from gpuqs.errors import ModelFormatError
from gpuqs.forks import lazy
from gpuqs.text_hashes import are_hashes


@dataclass(frozen=True)
class Schema:
    """What the columns of a document are: by it frames, tables, sparse matrices and files become numbers.

    Parameters
    ----------
    names : tuple of str
        Empty, or one name per feature.
    categories : tuple of (tuple or None)
        Empty, or per feature None (numbers) or its categories' values (str, int, float, bool) in code order, by
        which text and category columns are coded. Arrays hold codes.
    absent : float
        What the source library takes an entry for that a sparse row leaves out: 0.0, or NaN (missing).
    """

    names: tuple[str, ...] = ()
    categories: tuple[tuple[Any, ...] | None, ...] = ()
    absent: float = 0.0

    def __post_init__(self) -> None:
        if not (self.absent == 0 or math.isnan(self.absent)):
            raise ValueError(f"Schema.absent is {self.absent!r}, not 0.0 or NaN")

    def __repr__(self) -> str:
        names = ", ".join(self.names[:3]) + (f", ... ({len(self.names):,} columns)" if len(self.names) > 3 else "")
        coded = sum(categories is not None for categories in self.categories)
        absent = "missing" if math.isnan(self.absent) else "0"
        return f"<gpuqs.Schema: {names or 'no names'}; {coded:,} with categories; absent is {absent}>"

    @lazy
    def has_hashes(self) -> bool:
        """Whether categories are called after their hashes: their texts are not known."""
        return any(are_hashes(categories) for categories in self.categories if categories)

    def check(self, n_features: int) -> None:
        """Refuse a schema of another number of columns.

        Raises
        ------
        ModelFormatError
        """
        for field in ("names", "categories"):
            values = getattr(self, field)
            if values and len(values) != n_features:
                name = "feature_names" if field == "names" else field
                what = "feature names" if field == "names" else "columns' categories"
                raise ModelFormatError(f"{len(values)} {what} for {n_features} features", field=name)
