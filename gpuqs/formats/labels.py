"""Class labels of live classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np


def labels_of(values: Any) -> tuple[Any, ...]:
    """A classifier's ``classes_`` as Python's values; of one class only, which training saw, it is for both answers.

    Times stay NumPy's: Python would have those of nanoseconds as numbers.
    """
    values = np.asarray(values)
    labels = tuple(values if values.dtype.kind in "mM" else values.tolist())
    return labels * 2 if len(labels) == 1 else labels
