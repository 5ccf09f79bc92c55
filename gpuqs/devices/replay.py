"""Repeat recorded launches on a CUDA device: arguments are packed once, several launches become one graph.

    foreach array whose address changes from call to call: its argument words <- its address in this call
    one launch: launch it
    several: update the graph's launches whose argument words have changed; launch the graph
"""

from __future__ import annotations

import ctypes
import os
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from gpuqs.devices.bindings import bindings, checked
from gpuqs.devices.recording import Launch, Moving, Recording
from gpuqs.errors import DeviceError
from gpuqs.kept import keep_some

#: Upper limit of streams whose arguments and graphs are kept.
STREAMS = 32
#: CUDA's ``CU_STREAM_LEGACY``: the stream that CuPy calls 0, whatever cuda-python takes 0 for.
LEGACY = 1


class Replay:
    """A recorded call of a CUDA device; threads may share it.

    Parameters
    ----------
    cupy : module
    recording : Recording
    note : callable
        Called with each stream on which a call was queued.
    """

    def __init__(self, cupy: Any, recording: Recording, note: Callable[[Any], None]) -> None:
        self._cuda, self._scratch_bytes, self._note = cupy.cuda, recording.scratch_bytes, note
        self._launches = recording.launches  # which keep their arrays alive
        self._graphs = len(self._launches) > 1
        self._idle: dict[int, list[_Packed]] = {}

    def __call__(self, documents: Any, out: Any) -> bool:
        """Queue the call on the current stream, for documents and an answer of the recorded form.

        Returns False, and queues nothing, if its scratch memory cannot be allocated in one piece.
        """
        current = self._cuda.get_current_stream()
        stream = current.ptr
        try:  # freed when this returns, but only later work on this stream can reuse it
            scratch = self._cuda.alloc(self._scratch_bytes) if self._scratch_bytes else None
        except MemoryError:
            return False
        # One per thread, as the driver reads it while other threads write theirs; one per stream, as launches of one
        # graph wait for each other.
        idle = self._of_stream(stream)
        try:
            packed = idle.pop()
        except IndexError:
            packed = _Packed(self._launches)
        changed = packed.move(documents.data.ptr, out.data.ptr, scratch.ptr if scratch is not None else 0)
        if self._graphs and packed.graph is None:
            try:
                packed.graph, changed = _Graph(packed), set()
            except DeviceError:  # launches that cannot become a graph here can still be made
                self._graphs = False
        try:
            if self._graphs and packed.graph is not None:
                packed.graph.launch(changed, stream)
            else:
                for function, sizes, shared_mem, arguments in packed.launches:
                    self._cuda.driver.launchKernel(function, *sizes, shared_mem, stream, arguments, 0)
        finally:
            self._note(current)
        idle.append(packed)
        return True

    def _of_stream(self, stream: int) -> list[_Packed]:
        """A stream's packed launches that no thread uses now: one for each thread that has used the stream at once."""
        idle = self._idle.get(stream)
        return keep_some(self._idle, stream, [], STREAMS) if idle is None else idle


class _Packed:
    """Launches in the driver's form: one 64-bit word per argument, and the addresses of these words."""

    def __init__(self, launches: list[Launch]) -> None:
        n = sum(len(launch.arguments) for launch in launches)
        self._words = (ctypes.c_uint64 * n)()
        begin = ctypes.addressof(self._words)
        self._places = (ctypes.c_void_p * n)(*range(begin, begin + 8 * n, 8))
        self._moving: list[tuple[int, int, int, int]] = []
        self.launches: list[tuple[int, tuple[int, ...], int, int]] = []
        self.graph: _Graph | None = None
        at = 0
        for index, launch in enumerate(launches):
            arguments = ctypes.addressof(self._places) + 8 * at
            grid, block = (tuple(map(int, size)) + (1,) * (3 - len(size)) for size in (launch.grid, launch.block))
            self.launches.append((launch.kernel.pointer, grid + block, launch.shared_mem, arguments))
            for argument in launch.arguments:
                if isinstance(argument, Moving):
                    self._moving.append((at, argument.within, argument.offset, index))
                elif isinstance(argument, np.generic):
                    number = argument.tobytes()
                    ctypes.memmove(begin + 8 * at, number, len(number))
                else:
                    self._words[at] = argument.data.ptr
                at += 1

    def move(self, *begins: int) -> set[int]:
        """Set where the documents, the answer and the scratch memory begin; return the launches that this changes."""
        words, changed = self._words, set()
        for at, within, offset, index in self._moving:
            place = begins[within] + offset
            if words[at] != place:
                words[at] = place
                changed.add(index)
        return changed


class _Graph:
    """Consecutive launches as one graph, which is launched at once; made with their current arguments."""

    def __init__(self, packed: _Packed) -> None:
        self._driver = driver = bindings("driver")
        graph = checked(driver.cuGraphCreate(0), "the driver makes no graph")
        weakref.finalize(self, _give_back, driver.cuGraphDestroy, graph, os.getpid()).atexit = False
        self._nodes: list[tuple[Any, Any]] = []
        for function, sizes, shared_mem, arguments in packed.launches:
            node = driver.CUDA_KERNEL_NODE_PARAMS()
            node.func, node.sharedMemBytes, node.kernelParams = driver.CUfunction(function), shared_mem, arguments
            node.gridDimX, node.gridDimY, node.gridDimZ, node.blockDimX, node.blockDimY, node.blockDimZ = sizes
            before = [self._nodes[-1][0]] if self._nodes else None
            added = driver.cuGraphAddKernelNode(graph, before, len(before or ()), node)
            self._nodes.append((checked(added, "a launch does not become part of a graph"), node))
        self._made = checked(driver.cuGraphInstantiate(graph, 0), "the driver does not make a graph ready")
        # The driver's manual says that work under way is completed first.
        weakref.finalize(self, _give_back, driver.cuGraphExecDestroy, self._made, os.getpid()).atexit = False

    def launch(self, changed: set[int], stream: int) -> None:
        """Queue all launches; ``changed``: those whose arguments differ from the previous launch of the graph."""
        driver = self._driver
        for index in changed:
            told = driver.cuGraphExecKernelNodeSetParams(self._made, *self._nodes[index])
            checked(told, "a graph does not take other arguments")
        checked(driver.cuGraphLaunch(self._made, driver.CUstream(stream or LEGACY)), "a graph is not launched")


def _give_back(destroy: Callable[[Any], Any], what: Any, process: int) -> None:
    """Destroy an object if this process made it; a forked child has no driver."""
    if os.getpid() == process:
        destroy(what)
