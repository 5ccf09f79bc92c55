"""Faults of the host code: streams, copies, memory."""

from __future__ import annotations

from planted.campaign import Fault

_QUEUED = ("test_queued_work.py",)
_CUPY, _FOREIGN = ("test_cuda_device.py",), ("test_foreign_arrays.py",)
_MODELS, _REPLAY = ("test_model_memory.py",), ("test_replay.py",)
_LARGE = ("test_emulated.py::test_shared_memory_beyond_48_kib",)

_HOST, _QS, _MEMORY = "devices/pipeline.py", "engines/gpu/qs_placed.py", "devices/model_memory.py"

_ON = "        with self.device.on(self.stream):\n"
_IN_STREAM = f"""{_ON}            self.device.copy_in(self.documents[:n], self.pinned_in[:n])
            run(self.documents[:n], self.results[:n])
            self.device.copy_out(self.pinned_out[:n], self.results[:n])
"""
_LANES = "        lanes = [_Lane(device, stream, rows, documents, out) for stream in streams]\n"
_LAST = """        for lane in lanes:
            lane.collect(out)
"""

STREAMS = [
    Fault(
        "results are taken without a wait",
        _HOST,
        "        self.stream.synchronize()\n        out[",
        "        out[",
        _QUEUED,
    ),
    Fault(
        "a lane takes its next chunk while the last is under way",
        _HOST,
        "            lane.collect(out)\n            lane.start(",
        "            lane.start(",
        _QUEUED,
    ),
    Fault(
        "documents are copied in on the default stream",
        _HOST,
        _IN_STREAM,
        _IN_STREAM.replace(
            _ON + "            self.device.copy_in(self.documents[:n], self.pinned_in[:n])\n",
            "        self.device.copy_in(self.documents[:n], self.pinned_in[:n])\n" + _ON,
        ),
        _QUEUED,
    ),
    Fault(
        "scores are copied out on the default stream",
        _HOST,
        "            self.device.copy_out(",
        "        self.device.copy_out(",
        _QUEUED,
    ),
    Fault(
        "scoring runs on the default stream",
        _HOST,
        _IN_STREAM,
        _IN_STREAM.replace("            run(", "        run(").replace(
            "            self.device.copy_out", _ON + "            self.device.copy_out"
        ),
        _QUEUED,
    ),
    Fault(
        "both lanes fill one pinned buffer",
        _HOST,
        _LANES,
        _LANES + "        lanes[-1].pinned_in = lanes[0].pinned_in\n",
        _QUEUED,
    ),
    Fault(
        "both lanes drain into one pinned buffer",
        _HOST,
        _LANES,
        _LANES + "        lanes[-1].pinned_out = lanes[0].pinned_out\n",
        _QUEUED,
    ),
    Fault(
        "both lanes copy to one buffer on the device",
        _HOST,
        _LANES,
        _LANES + "        lanes[-1].documents = lanes[0].documents\n",
        _QUEUED,
    ),
    Fault(
        "both lanes score into one buffer on the device",
        _HOST,
        _LANES,
        _LANES + "        lanes[-1].results = lanes[0].results\n",
        _QUEUED,
    ),
    Fault(
        "the lanes' memory is the default stream's",
        _HOST,
        "        with device.on(stream):\n            self.documents",
        "        if True:\n            self.documents",
        _QUEUED,
    ),
    Fault("the last chunks are not collected", _HOST, _LAST, "", _QUEUED),
    Fault(
        "an interrupt does not wait for the copies under way",
        _HOST,
        "            at_the_end.callback(stream.synchronize)\n",
        "            pass\n",
        _QUEUED,
    ),
    Fault(
        "another interrupt leaves copies under way",
        _HOST,
        "            at_the_end.callback(stream.synchronize)\n",
        "            pass\n        at_the_end.callback(lambda: [stream.synchronize() for stream in streams])\n",
        _QUEUED,
    ),
    Fault(
        "the copy in is missing",
        _HOST,
        "            self.device.copy_in(self.documents[:n], self.pinned_in[:n])\n",
        "",
        _QUEUED,
    ),
    Fault(
        "the copy out is missing",
        _HOST,
        "            self.device.copy_out(self.pinned_out[:n], self.results[:n])\n",
        "",
        _QUEUED,
    ),
    Fault(
        "the copy out comes before scoring",
        _HOST,
        _IN_STREAM,
        _IN_STREAM.replace("            run(self.documents[:n], self.results[:n])\n", "")
        + "            run(self.documents[:n], self.results[:n])\n",
        _QUEUED,
    ),
    Fault(
        "the wrong end of the pinned buffer is copied in",
        _HOST,
        "self.pinned_in[:n])\n",
        "self.pinned_in[-n:])\n",
        _QUEUED,
    ),
    Fault(
        "the wrong end of the results is taken",
        _HOST,
        "self.pinned_out[: self.under_way.stop - self.under_way.start]",
        "self.pinned_out[self.under_way.start - self.under_way.stop :]",
        _QUEUED,
    ),
    Fault(
        "memory that is not pinned is copied from",
        _HOST,
        "self.pinned_in = device.pinned((rows, width), dtype)",
        "self.pinned_in = np.empty((rows, width), dtype)",
        _QUEUED,
    ),
    Fault(
        "the last chunk is one document short",
        _HOST,
        "slice(start, min(start + rows, n))",
        "slice(start, min(start + rows, n - 1))",
        _QUEUED,
    ),
    Fault("one document between chunks is left out", _HOST, "range(0, n, rows)", "range(0, n, rows + 1)", _QUEUED),
    Fault(
        "a model gives way while it is in use",
        _MEMORY,
        "                for last in (*self._last.values(), *self._leaving):\n",
        "                for last in ():\n",
        _QUEUED,
    ),
    Fault(
        "a stream that gives way is not waited for",
        _MEMORY,
        "self.stream.wait_event(last.event)\n                    self._leaving",
        "self._leaving",
        _MODELS,
    ),
    Fault(
        "what a stream says as it gives way is lost", _MEMORY, "if self._last.get(key) is last:", "if True:", _MODELS
    ),
    Fault("memory that goes then does not wait for it", _MEMORY, ", *self._leaving):", ",):", _MODELS),
    Fault("a stream's number is taken for it", _MEMORY, " or last.stream is not stream:", ":", _MODELS),
    Fault(
        "threads share an event of a stream of their own",
        _MEMORY,
        "self._thread.key if stream.ptr == PER_THREAD else stream.ptr",
        "stream.ptr",
        _MODELS,
    ),
    Fault(
        "events are of any device",
        _MEMORY,
        "            with self._active():\n                for",
        "            with self._lock.held():\n                for",
        _MODELS,
    ),
    Fault(
        "what a call has used goes before the call is noted",
        "devices/cuda.py",
        "(self._captured if self._is_capturing() else self._entered.used).append(used)",
        "self._captured.append(used) if self._is_capturing() else None",
        _CUPY,
    ),
    Fault(
        "an `out` of another library is not ordered back",
        "calls.py",
        "dtype), out, (X, out))",
        "dtype), out, (X,))",
        _QUEUED,
    ),
    Fault(
        "an X of another library is not ordered back where `out` is given",
        "calls.py",
        "dtype), out, (X, out))",
        "dtype), out, (out,))",
        _QUEUED,
    ),
    Fault(
        "what a call that fails has queued is not ordered back",
        "calls.py",
        "                with suppress(Exception):\n                    where.hand_back(memory.answer, array)\n",
        "                pass\n",
        _QUEUED,
    ),
    Fault(
        "chunks of the host's documents go to the wrong rows",
        "calls.py",
        "documents.rows(start, stop, look_ups), memory.answer[start:stop])",
        "documents.rows(start, stop, look_ups), memory.answer[: stop - start])",
        _QUEUED,
    ),
    Fault(
        "a graph's forest is not kept",
        "engines/gpu/engine.py",
        "        self.forest.device.retain(self.forest)\n",
        "",
        _QUEUED,
    ),
    Fault(
        "a graph's class labels are not kept",
        "engines/gpu/engine.py",
        "        device.retain(program.labels)\n",
        "",
        _QUEUED,
    ),
    Fault(
        "a forest is copied to whatever device is the current one",
        _QS,
        "        with device.active():\n            self._upload",
        "        if device:\n            self._upload",
        _LARGE,
    ),
    Fault(
        "an upload does not wait",
        "devices/cuda.py",
        "        stream.synchronize()  # other streams may read it from now on\n",
        "",
        _CUPY,
    ),
    Fault(
        "a copy goes to the default stream", "devices/cuda.py", "n_bytes, kind, stream.ptr)", "n_bytes, kind, 0)", _CUPY
    ),
    Fault(
        "a copy in is declared a copy out",
        "devices/cuda.py",
        "source.nbytes, self._cupy.cuda.runtime.memcpyHostToDevice",
        "source.nbytes, self._cupy.cuda.runtime.memcpyDeviceToHost",
        _CUPY,
    ),
    Fault(
        "a copy out takes one byte an element",
        "devices/cuda.py",
        "source.data.ptr, target.nbytes",
        "source.data.ptr, target.size",
        _CUPY,
    ),
    Fault(
        "lent streams wait for the default stream",
        "devices/cuda.py",
        "Stream(non_blocking=True) for _",
        "Stream(non_blocking=False) for _",
        _CUPY,
    ),
    Fault(
        "two callers are lent one stream",
        "devices/cuda.py",
        "[self._idle.pop() for _ in range(min(n, len(self._idle)))]",
        "self._idle[:n]",
        _CUPY,
    ),
    Fault(
        "an upload is captured",
        "devices/cuda.py",
        '        self._refuse_capture("copying the model to the device")\n',
        "",
        _CUPY,
    ),
    Fault(
        "a call does not note its stream",
        "devices/cuda.py",
        "                self._model_memory.note(stream)\n",
        "                pass\n",
        _CUPY,
    ),
    Fault(
        "a call notes the stream on which it ends",
        "devices/cuda.py",
        "self._model_memory.note(stream)",
        "self._model_memory.note(cuda.get_current_stream())",
        _CUPY,
    ),
    Fault(
        "a stream of the caller's is forgotten",
        "devices/cuda.py",
        "        stream.use()\n        try:\n            yield\n        finally:\n            before.use()\n",
        "        with stream:\n            yield\n",
        _CUPY,
    ),
    Fault(
        "an interrupt leaves another stream current",
        "devices/cuda.py",
        "        try:\n            yield\n        finally:\n            before.use()\n",
        "        yield\n        before.use()\n",
        _CUPY,
    ),
    Fault(
        "answers to tensors are memory of CuPy's",
        "devices/cuda.py",
        "return foreign.torch_memory(X, shape, dtype)",
        "return None",
        _FOREIGN,
    ),
    Fault(
        "answers to JAX's arrays are of CuPy's pool",
        "devices/cuda.py",
        "if not foreign.reads_on(X) or",
        "if X is not None or",
        _FOREIGN,
    ),
    Fault(
        "another library's memory is not kept until it is read",
        "devices/cuda.py",
        "if not foreign.follows_streams(X):",
        "if foreign.is_jax(X):",
        _FOREIGN,
    ),
    Fault(
        "half as many streams are known",
        _MEMORY,
        "max(0, len(self._last) - STREAMS + 1)",
        "len(self._last) - STREAMS + 1",
        _MODELS,
    ),
    Fault(
        "a repeated call does not note its stream",
        "devices/replay.py",
        "            self._note(current)\n",
        "            pass\n",
        _REPLAY,
    ),
    Fault(
        "a copy does not go back by its loan",
        "devices/cuda.py",
        "self._model_memory.lend(copy), self.index)",
        "copy, self.index)",
        _CUPY,
    ),
    Fault(
        "copies of models wait for the default stream",
        "devices/cuda.py",
        "models = cupy.cuda.Stream(non_blocking=True)",
        "models = cupy.cuda.Stream(non_blocking=False)",
        _CUPY,
    ),
    Fault(
        "threads make a device twice",
        "devices/cuda.py",
        "_devices.setdefault(index, CudaDevice(index))",
        "_devices.update({index: CudaDevice(index)}) or _devices[index]",
        _CUPY,
    ),
    Fault(
        "JAX's arrays are not waited for",
        "devices/cuda.py",
        "            self.synchronize()  # what is queued",
        "            pass  # what is queued",
        _FOREIGN,
    ),
    Fault(
        "a thread that loads a kernel at once unloads another's",
        "devices/cuda.py",
        "self._kernels.setdefault((file, name), kernel)",
        "self._kernels[file, name] = kernel",
        _CUPY,
    ),
    Fault(
        "a graph takes memory of the pool's",
        "devices/cuda.py",
        "with self._may_allocate(), cuda.using_allocator(self._allocate_for_good):",
        "with self._may_allocate():",
        _CUPY,
    ),
    Fault(
        "a capture of another mode does not let memory be taken",
        "devices/cuda.py",
        "with self._may_allocate(), cuda",
        "with cuda",
        _CUPY,
    ),
    Fault(
        "a kernel is compiled while work is captured",
        "devices/cuda.py",
        '            self._refuse_capture(f"compiling {name}")\n',
        "",
        _CUPY,
    ),
    Fault(
        "documents of the host are scored while work is captured",
        "devices/cuda.py",
        '        self._refuse_capture("scoring documents of the host")\n',
        "",
        _CUPY,
    ),
]
