"""Class labels of live classifiers."""

from __future__ import annotations

from typing import Any

import numpy as np


def labels_of(values: Any) -> tuple[Any, ...]:
    """A classifier's ``classes_`` as Python values; if training saw one class only, it stands for both answers.

    Times stay NumPy values: ``tolist`` would turn those in nanoseconds into integers.
    """
    values = np.asarray(values)
    labels = tuple(values if values.dtype.kind in "mM" else values.tolist())
    return labels * 2 if len(labels) == 1 else labels
