"""The faults that `planted_faults` plants: in the host code that queues work, and in the kernels."""

from __future__ import annotations

from planted_faults import Fault

_QUEUED = ("test_queued_work.py",)
_CUPY = ("test_cuda_device.py",)
_MODEL = ("test_device_model.py",)
_CASES = ("test_emulated.py", "-k", "equals_reference")
_ALL = ("test_emulated.py",)
_RACES = ("test_emulation.py", "-k", "real_kernels and thread")

_HOST, _FOREST = "engines/gpu_host.py", "engines/gpu_forest.py"
_LEAVES, _REDUCE = "cuda/leaf_indexes.cuh", "cuda/block_reduce.cuh"
_TRANSPOSE, _FIND, _FINISH = "cuda/transpose.cu", "cuda/find_false_nodes.cu", "cuda/finish_scores.cu"
_SCORES, _OUTPUTS, _EXITS = "cuda/update_scores.cu", "cuda/update_outputs.cu", "cuda/exit_leaves.cu"

_IN_STREAM = """        with self.stream:
            self.device.copy_in(self.documents[:n], self.pinned_in[:n])
            run(self.documents[:n], self.results[:n])
            self.device.copy_out(self.pinned_out[:n], self.results[:n])
"""
_LANES = "        lanes = [_Lane(forest.device, stream, rows, documents, out) for stream in streams]\n"
_LAST = """            for lane in lanes:
                lane.collect(out)
        finally:"""

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
        "                lane.collect(out)\n                lane.start(",
        "                lane.start(",
        _QUEUED,
    ),
    Fault(
        "another lane is waited for",
        _HOST,
        "lane.collect(out)\n                lane.start(",
        "lanes[index % n_lanes - 1].stream.synchronize()\n                lane.stream.synchronize = lambda: None\n"
        "                lane.collect(out)\n                lane.start(",
        _QUEUED,
    ),
    Fault(
        "documents are copied in on the default stream",
        _HOST,
        _IN_STREAM,
        _IN_STREAM.replace(
            "        with self.stream:\n            self.device.copy_in(self.documents[:n], self.pinned_in[:n])\n",
            "        self.device.copy_in(self.documents[:n], self.pinned_in[:n])\n        with self.stream:\n",
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
            "            self.device.copy_out", "        with self.stream:\n            self.device.copy_out"
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
        "        with self.stream:\n            self.documents",
        "        if True:\n            self.documents",
        _QUEUED,
    ),
    Fault("the last chunks are not collected", _HOST, _LAST, "        finally:", _QUEUED),
    Fault(
        "an interrupt does not wait for the copies under way",
        _HOST,
        "            for lane in lanes:\n                lane.stream.synchronize()",
        "            pass",
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
        "a program gives way while it is in use",
        "device_model.py",
        "                    self.device.wait()  # other streams may still read what is given back here\n",
        "",
        _QUEUED,
    ),
    Fault(
        "an `out` of another library is not ordered back",
        "device_model.py",
        "        for given in (X, out):",
        "        for given in (X,):",
        _QUEUED,
    ),
    Fault(
        "an X of another library is not ordered back where `out` is given",
        "device_model.py",
        "        for given in (X, out):",
        "        for given in (out,):",
        _QUEUED,
    ),
    Fault(
        "chunks of the host's documents go to the wrong rows",
        "device_model.py",
        "table[start:stop])",
        "table[: stop - start])",
        _QUEUED,
    ),
    Fault("a graph's forest is not kept", "engines/qs_gpu.py", "        device.retain(placed)\n", "", _QUEUED),
    Fault(
        "a graph's class labels are not kept",
        "device_model.py",
        "            self.device.retain(self._labels)\n",
        "",
        _QUEUED,
    ),
    Fault(
        "a forest is copied to whatever device is the current one",
        _FOREST,
        "        with device.active():\n            self._upload",
        "        if device:\n            self._upload",
        _ALL,
    ),
    Fault(
        "an upload does not wait",
        "arrays_cuda.py",
        "        self._cupy.cuda.get_current_stream().synchronize()  # other streams may read it from now on\n",
        "",
        _CUPY,
    ),
    Fault(
        "a copy goes to the default stream", "arrays_cuda.py", "n_bytes, kind, stream.ptr)", "n_bytes, kind, 0)", _CUPY
    ),
    Fault(
        "a copy in is declared a copy out",
        "arrays_cuda.py",
        "source.nbytes, self._cupy.cuda.runtime.memcpyHostToDevice",
        "source.nbytes, self._cupy.cuda.runtime.memcpyDeviceToHost",
        _CUPY,
    ),
    Fault(
        "a copy out takes one byte an element",
        "arrays_cuda.py",
        "source.data.ptr, target.nbytes",
        "source.data.ptr, target.size",
        _CUPY,
    ),
    Fault(
        "lent streams wait for the default stream",
        "arrays_cuda.py",
        "Stream(non_blocking=True)",
        "Stream(non_blocking=False)",
        _CUPY,
    ),
    Fault(
        "two callers are lent one stream",
        "arrays_cuda.py",
        "[self._idle.pop() for _ in range(min(n, len(self._idle)))]",
        "self._idle[:n]",
        _CUPY,
    ),
    Fault(
        "an upload is captured",
        "arrays_cuda.py",
        '        self._refuse_capture("copying the model to the device")\n',
        "",
        _CUPY,
    ),
    Fault(
        "a wait is captured",
        "arrays_cuda.py",
        '            self._refuse_capture("giving back a model that other streams may use")\n',
        "",
        _CUPY,
    ),
    Fault(
        "a kernel is compiled while work is captured",
        "arrays_cuda.py",
        '            self._refuse_capture(f"compiling {name}")\n',
        "",
        _CUPY,
    ),
    Fault(
        "documents of the host are scored while work is captured",
        "arrays_cuda.py",
        '        self._refuse_capture("scoring documents of the host")\n',
        "",
        _CUPY,
    ),
]

LAUNCHES = [
    Fault("every chunk's sums go to the first rows", _FOREST, "(sums[chunk],),", "(sums,),", _ALL),
    Fault(
        "every chunk's leaves go to the first rows",
        _FOREST,
        "np.int32(self.n_trees), out[chunk])",
        "np.int32(self.n_trees), out)",
        _QUEUED,
    ),
    Fault(
        "a chunk's last document is left out",
        _FOREST,
        "min(start + step, documents.shape[0])",
        "min(start + step - 1, documents.shape[0])",
        _ALL,
    ),
    Fault(
        "every chunk transposes the first documents",
        _FOREST,
        "self._transpose(documents[chunk], values)",
        "self._transpose(documents[:n], values)",
        _ALL,
    ),
    Fault(
        "partial sums have room for one tree block",
        _FOREST,
        "(max(self.n_blocks, 1), n, self.n_outputs)",
        "(1, n, self.n_outputs)",
        _CASES,
    ),
    Fault(
        "pivots have room for one tree block",
        _FOREST,
        "(max(self.n_blocks, 1), n, max(self.n_columns, 1))",
        "(1, n, max(self.n_columns, 1))",
        _CASES,
    ),
    Fault(
        "no thread block for the last group of documents",
        _FOREST,
        "(-(-n // together), self.n_blocks)",
        "(max(n // together, 1), self.n_blocks)",
        _CASES,
    ),
    Fault(
        "no thread block for the last tile of documents",
        _FOREST,
        "(-(-n // TILE), -(-self.n_columns // TILE)),\n            (TILE, 8),\n            (\n                documents.view",
        "(max(n // TILE, 1), -(-self.n_columns // TILE)),\n            (TILE, 8),\n            (\n                documents.view",
        _CASES,
    ),
    Fault("no thread block for the last sums", _FOREST, "(-(-n // 256),)", "(max(n // 256, 1),)", _ALL),
    Fault(
        "strides change places",
        _FOREST,
        "np.int64(row),\n                np.int64(column),",
        "np.int64(column),\n                np.int64(row),",
        _CASES,
    ),
    Fault(
        "a tile in shared memory has no padding",
        _FOREST,
        "shared_mem=TILE * (TILE + 1) * self.pivot_dtype.itemsize",
        "shared_mem=TILE * TILE * self.pivot_dtype.itemsize",
        _CASES,
    ),
    Fault(
        "large shared memory is not asked for",
        _FOREST,
        "            kernel.max_dynamic_shared_size_bytes = self.device.attributes.shared_per_block\n",
        "            pass\n",
        _ALL,
    ),
    Fault(
        "pivots have no code left for missing values",
        _FOREST,
        "if most < np.iinfo(t).max)",
        "if most <= np.iinfo(t).max)",
        _ALL,
    ),
    Fault("integers are rounded once", _FOREST, "documents = documents.astype(self.integer_dtype)", "pass", _ALL),
]

KERNELS = [
    Fault(
        "no barrier after leafindexes are set to ones",
        _LEAVES,
        "~static_cast<Word>(0);\n    __syncthreads();",
        "~static_cast<Word>(0);",
        _CASES,
    ),
    Fault("no barrier after the masks", _LEAVES, "    }\n    __syncthreads();\n}", "    }\n}", _CASES),
    Fault(
        "leafindexes of the first document alone are set to ones",
        _LEAVES,
        "i < DOCUMENTS * n_slots",
        "i < n_slots",
        _CASES,
    ),
    Fault(
        "a plain store for atomicAnd",
        _LEAVES,
        "if (DOCUMENTS == 1 || i < pivot[d]) atomicAnd(leafindexes + d * n_slots + slot, mask);",
        "if (DOCUMENTS == 1 || i < pivot[d]) leafindexes[d * n_slots + slot] &= mask;",
        _RACES,
    ),
    Fault(
        "a plain store for atomicAnd, of missing values",
        _LEAVES,
        "atomicAnd(leafindexes + d * n_slots + missing.slot[i], missing.mask[i]);",
        "leafindexes[d * n_slots + missing.slot[i]] &= missing.mask[i];",
        _RACES,
    ),
    Fault("the test at the pivot clears, too", _LEAVES, "i = lane; i < last;", "i = lane; i <= last;", _CASES),
    Fault(
        "several documents share the last one's pivot",
        _LEAVES,
        "if (DOCUMENTS == 1 || i < pivot[d]) atomicAnd",
        "atomicAnd",
        _CASES,
    ),
    Fault("missing values are pivots like others", _LEAVES, "if (p == missing_pivot<Pivot>())", "if (false)", _CASES),
    Fault(
        "documents beyond the last are read",
        _LEAVES,
        "            if (DOCUMENTS > 1 && first_document + d >= n_documents) continue;\n",
        "",
        _RACES,
    ),
    Fault(
        "tuples of the first tree block are read for all",
        _LEAVES,
        "tests.offsets + static_cast<i64>(blockIdx.y) * (n_columns + 1)",
        "tests.offsets",
        _CASES,
    ),
    Fault(
        "an exit leaf is looked for in two words at most",
        _LEAVES,
        "    while (*words == 0) {",
        "    if (*words == 0) {",
        _CASES,
    ),
    Fault(
        "no barrier before warps' sums are added",
        _REDUCE,
        "    __syncthreads();\n    if (threadIdx.x != 0)",
        "    if (threadIdx.x != 0)",
        _CASES,
    ),
    Fault(
        "lanes are added in another order",
        _REDUCE,
        "for (int offset = 1; offset < WARP; offset <<= 1)",
        "for (int offset = WARP / 2; offset > 0; offset >>= 1)",
        _CASES,
    ),
    Fault(
        "the first warp is added twice", _REDUCE, "int warp = 1; warp < n_warps", "int warp = 0; warp < n_warps", _CASES
    ),
    Fault(
        "warps are added in reverse",
        _REDUCE,
        "for (int warp = 1; warp < n_warps; ++warp)",
        "for (int warp = n_warps - 1; warp > 0; --warp)",
        _CASES,
    ),
    Fault("half of the lanes in a shuffle's mask", _REDUCE, "0xffffffffu", "0x0000ffffu", _CASES),
    Fault(
        "warps' sums of several documents share a place",
        _REDUCE,
        "scratch[k * n_warps + threadIdx.x / WARP] = value[k];",
        "scratch[threadIdx.x / WARP] = value[k];",
        _CASES,
    ),
    Fault(
        "warps' sums lie over the leafindexes",
        _SCORES,
        "shared + DOCUMENTS * (blockDim.x / WARP) * sizeof(u64)",
        "shared + sizeof(u64)",
        _RACES,
    ),
    Fault(
        "sums of documents beyond the last are written",
        _SCORES,
        "        if (first_document + d < n_documents)\n",
        "",
        _CASES,
    ),
    Fault(
        "every tree is taken for one word",
        _SCORES,
        "MANY ? trees.slot_offsets[tree] - first_slot : tree - first_tree",
        "tree - first_tree",
        _CASES,
    ),
    Fault(
        "trees beyond the threads are left out",
        _SCORES,
        "tree < end_tree; tree += blockDim.x)",
        "tree < end_tree; tree += 1 << 20)",
        _CASES,
    ),
    Fault("every lane writes its output's sum", _OUTPUTS, "        if (threadIdx.x % WARP == 0)\n", "", _CASES),
    Fault(
        "outputs beyond the warps are left out", _OUTPUTS, "output += blockDim.x / WARP)", "output += 1 << 20)", _CASES
    ),
    Fault("vector leaves give their first value", _OUTPUTS, "(every_tree ? output : 0)", "0", _CASES),
    Fault("vector leaves overlap", _EXITS, "table[leaf * width + k]", "table[leaf + k]", _ALL),
    Fault("no barrier between a tile's rows and columns", _TRANSPOSE, "    __syncthreads();\n", "", _CASES),
    Fault(
        "columns beyond the last are written",
        _TRANSPOSE,
        "document < n_documents && out_column < n_columns",
        "document < n_documents",
        _CASES,
    ),
    Fault(
        "a tile is read without its padding",
        _TRANSPOSE,
        "tile[threadIdx.x * (TILE + 1) + row]",
        "tile[threadIdx.x * TILE + row]",
        _CASES,
    ),
    Fault(
        "all negative numbers are zeros that are missing", _TRANSPOSE, "x >= -limit && x <= limit", "x <= limit", _CASES
    ),
    Fault("small denormals alone are zeros that are missing", _TRANSPOSE, "= 1e-35f", "= 1e-36f", _CASES),
    Fault(
        "a word beyond a category set is read",
        _TRANSPOSE,
        "code / 32 < reading.n_words &&",
        "code / 32 <= reading.n_words &&",
        _ALL,
    ),
    Fault(
        "bits of a category's word are counted from the other end",
        _TRANSPOSE,
        ">> (code % 32) & 1",
        ">> (31 - code % 32) & 1",
        _ALL,
    ),
    Fault(
        "documents are rounded to float32 on the way",
        _TRANSPOSE,
        "static_cast<Value>(*reinterpret_cast<const Input*>(at))",
        "static_cast<Value>(static_cast<float>(*reinterpret_cast<const Input*>(at)))",
        _CASES,
    ),
    Fault(
        "a value on a threshold fails its test",
        _FIND,
        "threshold[low + half] < x",
        "threshold[low + half] <= x",
        _CASES,
    ),
    Fault("a search stops one short", _FIND, "low + half + 1 : low", "low + half : low", _CASES),
    Fault(
        "NaN is a number",
        _FIND,
        "x == x ? static_cast<Pivot>(low) : missing_pivot<Pivot>()",
        "static_cast<Pivot>(low)",
        _CASES,
    ),
    Fault("no barrier between columns and documents", _FIND, "    __syncthreads();\n", "", _CASES),
    Fault(
        "pivots of columns beyond the last are written",
        _FIND,
        "out_document < n_documents && column < n_columns",
        "out_document < n_documents",
        _CASES,
    ),
    Fault(
        "thresholds of the first tree block are searched for all",
        _FIND,
        "test_offsets + static_cast<i64>(blockIdx.z) * (n_columns + 1)",
        "test_offsets",
        _CASES,
    ),
    Fault("sums beyond the last are written", _FINISH, "    if (i >= n) return;\n    Sum sum", "    Sum sum", _CASES),
    Fault(
        "tree blocks are added in reverse",
        _FINISH,
        "for (int block = 0; block < n_blocks; ++block)",
        "for (int block = n_blocks - 1; block >= 0; --block)",
        _CASES,
    ),
    Fault("the first output's start is every output's", _FINISH, "start[i % n_outputs]", "start[0]", _CASES),
    Fault("the first output's base score is added to all", _FINISH, "add_last[i % n_outputs]", "add_last[0]", _MODEL),
]

FAULTS = [*STREAMS, *LAUNCHES, *KERNELS]
