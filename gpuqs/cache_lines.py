"""Arrays that begin on a whole cache line: kernels load whole registers, and one across two lines costs two loads."""

from __future__ import annotations

from math import prod
from typing import Final

import numpy as np
import numpy.typing as npt

#: Bytes of a line, and of the widest register.
LINE: Final = 64


def zeros(shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> np.ndarray:
    """What `numpy.zeros` gives, on a whole cache line. The system hands large arrays out as zeros: none are written."""
    dtype, shape = np.dtype(dtype), shape if isinstance(shape, tuple) else (shape,)
    size = prod(shape) * dtype.itemsize
    room = np.zeros(size + LINE, np.uint8)
    start = -room.ctypes.data % LINE
    return room[start : start + size].view(dtype).reshape(shape)
