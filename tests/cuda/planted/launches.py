"""Faults of the host code: launches, layouts, the cache of kernels."""

from __future__ import annotations

from planted.campaign import Fault

_CACHE = ("test_kernel_cache.py",)
_MODELS = ("test_models_on_devices.py",)
_CASES = ("test_emulated.py", "-k", "equals_reference")
_CHUNKS = ("test_emulated.py::test_documents_cut_into_chunks_give_the_same_bits",)
_LARGE = ("test_emulated.py::test_shared_memory_beyond_48_kib",)
_CODES = ("test_emulated.py::test_as_many_tests_as_a_pivot_counts",)
_ROUNDED = ("test_emulated.py::test_integers_that_are_rounded_twice",)

_PLACED, _QS, _LAYOUT = "engines/gpu/placed.py", "engines/gpu/qs_placed.py", "layout/qs_gpu.py"

_TRANSPOSED = """            (-(-n // TILE), -(-self.n_columns // TILE)),
            (TILE, 8),
            shared_bytes=TILE * (TILE + 1) * values.dtype.itemsize if along else 0,
"""

LAUNCHES = [
    Fault(
        "a use of a cached kernel is not written down",
        "devices/kernel_cache.py",
        "            os.utime(path)\n",
        "            pass\n",
        _CACHE,
    ),
    Fault(
        "the kernel cache loses what was used last",
        "devices/kernel_cache.py",
        "sorted(found, reverse=True)",
        "sorted(found)",
        _CACHE,
    ),
    Fault("every chunk's sums go to the first rows", _QS, "sums[chunk], started", "sums[:n], started", _CHUNKS),
    Fault(
        "every chunk's leaves go to the first rows",
        _QS,
        "out=out[chunk],",
        "out=out,",
        _CHUNKS,
    ),
    Fault(
        "a chunk's last document is left out",
        _QS,
        "min(start + step, documents.shape[0])",
        "min(start + step - 1, documents.shape[0])",
        _CHUNKS,
    ),
    Fault(
        "every chunk transposes the first documents",
        _QS,
        "self._transpose(documents[chunk], values)",
        "self._transpose(documents[:n], values)",
        _CHUNKS,
    ),
    Fault(
        "partial sums have room for one tree block",
        _QS,
        "(max(self.n_blocks, 1), n, self.n_outputs)",
        "(1, n, self.n_outputs)",
        _CASES,
    ),
    Fault(
        "pivots have room for one tree block",
        _QS,
        "(max(self.n_blocks, 1), n_groups, n_columns, together)",
        "(1, n_groups, n_columns, together)",
        _CASES,
    ),
    Fault(
        "pivots lie as for more documents a thread block than it scores",
        _QS,
        "self._pivots(documents, together)",
        "self._pivots(documents, self.documents)",
        _CASES,
    ),
    Fault(
        "of tests with one threshold the first alone clears",
        _LAYOUT,
        "np.bitwise_and.reduceat(mask, firsts)",
        "mask[firsts]",
        _CASES,
    ),
    Fault(
        "a missing list begins where the next column does",
        _LAYOUT,
        "[begins[..., 0], begins[..., 1],",
        "[begins[..., 0], begins[..., 1] + room[..., 1],",
        _CASES,
    ),
    Fault(
        "no thread block for the last group of documents",
        _QS,
        "(-(-n // together), self.n_blocks)",
        "(max(n // together, 1), self.n_blocks)",
        _CASES,
    ),
    Fault(
        "no thread block for the last tile of documents",
        _QS,
        _TRANSPOSED,
        _TRANSPOSED.replace("-(-n // TILE)", "max(n // TILE, 1)"),
        _CASES,
    ),
    Fault(
        "no thread block for the last sums",
        _PLACED,
        "(-(-n_elements // 256),)",
        "(max(n_elements // 256, 1),)",
        _CHUNKS,
    ),
    Fault(
        "strides change places",
        _QS,
        "document_stride, feature_stride = map(np.int64, documents.strides)",
        "feature_stride, document_stride = map(np.int64, documents.strides)",
        _CASES,
    ),
    Fault(
        "a tile in shared memory has no padding",
        _QS,
        "shared_bytes=TILE * (TILE + 1) * self.pivot_dtype.itemsize",
        "shared_bytes=TILE * TILE * self.pivot_dtype.itemsize",
        _CASES,
    ),
    Fault(
        "large shared memory is not asked for",
        _QS,
        "            kernel.max_dynamic_shared_size_bytes = self.device.attributes.shared_per_block\n",
        "            pass\n",
        _LARGE,
    ),
    Fault(
        "pivots have no code left for missing values",
        _QS,
        "if most < np.iinfo(t).max)",
        "if most <= np.iinfo(t).max)",
        _CODES,
    ),
    Fault("integers are rounded once", _PLACED, "return documents.astype(self.integer_dtype)", "pass", _ROUNDED),
    Fault(
        "documents that lie in the midst of elements are read",
        "placement.py",
        "if not is_aligned(adopted,",
        "if False and not is_aligned(adopted,",
        _MODELS,
    ),
    Fault(
        "an answer is written over the documents",
        "calls.py",
        "                refuse_overlap(documents, memory.answer, cast(GpuDevice, where))\n",
        "                pass\n",
        _MODELS,
    ),
]
