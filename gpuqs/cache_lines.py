"""Arrays aligned to cache lines: kernels load whole registers, and a load that spans two lines costs as much as two."""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np
import numpy.typing as npt

#: Bytes of a cache line, and of the widest register.
LINE: Final = 64


def zeros(shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
    """Like `numpy.zeros`, aligned to a cache line. Large arrays come zeroed from the system: no zeros are written."""
    dtype, shape = np.dtype(dtype), shape if isinstance(shape, tuple) else (shape,)
    size = prod(shape) * dtype.itemsize
    room = np.zeros(size + LINE, np.uint8)
    start = -room.ctypes.data % LINE
    return room[start : start + size].view(dtype).reshape(shape)
