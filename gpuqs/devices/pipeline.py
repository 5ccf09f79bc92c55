"""Documents on the host: pinned double buffers, copies overlapped with scoring on two streams.

foreach chunk of documents, on the two lanes in turn:
    wait for the lane's last chunk; hand its results to the caller
    pinned buffer <- documents (the CPU copies while the other lane scores)
    queue on the lane's stream: copy in, score, copy out
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuqs.devices.base import GpuDevice, Stream

#: Bytes of one pinned buffer, of documents or of answers: enough for a copy to run at the bus's full speed.
BUFFER_BYTES = 16 << 20
N_LANES = 2


class _Lane:
    """One stream with its buffers, and the chunk that is under way on it."""

    def __init__(
        self, device: GpuDevice, stream: Stream, rows: int, documents: np.ndarray, out: np.ndarray
    ) -> None:
        self.device, self.stream = device, stream
        width, out_shape, dtype = documents.shape[1], out.shape[1:], documents.dtype
        self.pinned_in = device.pinned((rows, width), dtype)
        self.pinned_out = device.pinned((rows, *out_shape), out.dtype)
        with device.on(stream):
            self.documents = device.empty((rows, width), dtype)
            self.results = device.empty((rows, *out_shape), out.dtype)
        self.under_way: slice | None = None

    def collect(self, out: np.ndarray) -> None:
        """Wait for the chunk under way, and hand its results over."""
        if self.under_way is None:
            return
        self.stream.synchronize()
        out[self.under_way] = self.pinned_out[: self.under_way.stop - self.under_way.start]
        self.under_way = None

    def start(self, documents: np.ndarray, chunk: slice, run: Callable[[Any, Any], None]) -> None:
        n = chunk.stop - chunk.start
        self.under_way = chunk
        self.pinned_in[:n] = documents[chunk]
        with self.device.on(self.stream):
            self.device.copy_in(self.documents[:n], self.pinned_in[:n])
            run(self.documents[:n], self.results[:n])
            self.device.copy_out(self.pinned_out[:n], self.results[:n])


def run(device: GpuDevice, fill: Callable[[Any, Any], None], documents: Any, out: Any) -> None:
    """Run ``fill(documents, out)`` on the device; both arrays lie there, or both on the host.

    Parameters
    ----------
    documents : array [D, n_features]
        On the host: float32, float64 or integers, any strides.
    out : array [D, ...]
        As ``fill`` fills it; on the host it is filled when this returns.
    """
    with device.active():
        if device.holds(documents):
            fill(documents, out)
        else:
            _stream_from_host(device, fill, documents, out)


def _stream_from_host(
    device: GpuDevice, fill: Callable[[Any, Any], None], documents: npt.NDArray[Any], out: npt.NDArray[Any]
) -> None:
    n = len(documents)
    if n == 0:
        return
    n_bytes, answered = documents.nbytes // n, out.nbytes // n
    rows = min(n, max(1, BUFFER_BYTES // max(n_bytes, answered, 1)))
    n_lanes = min(N_LANES, -(-n // rows))
    with device.lend_streams(n_lanes) as streams, ExitStack() as at_the_end:
        lanes = [_Lane(device, stream, rows, documents, out) for stream in streams]
        for stream in streams:  # after interrupts, too: pinned buffers must outlive the copies queued on them
            at_the_end.callback(stream.synchronize)
        for index, start in enumerate(range(0, n, rows)):
            lane = lanes[index % n_lanes]
            lane.collect(out)
            lane.start(documents, slice(start, min(start + rows, n)), fill)
        for lane in lanes:
            lane.collect(out)
