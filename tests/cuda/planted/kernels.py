"""Faults of the kernels: barriers, atomics, tails, indices, orders of sums."""

from __future__ import annotations

from planted.campaign import Fault

_MODEL = ("test_models_on_devices.py",)
_CASES = ("test_emulated.py", "-k", "equals_reference")
_PER_TREE = ("test_emulated.py::test_per_tree_values_are_the_exit_leaves",)
_CATEGORIES = ("test_emulated.py::test_every_code_of_every_way_to_read_a_category",)
_RACES = ("test_emulation.py", "-k", "real_kernels and thread")
_EVEN = ("test_gpu_counts.py::test_warps_make_as_many_atomics_as_counted",)
_BOUNDS = ("test_emulation.py", "-k", "real_kernels and address")

_LEAVES, _WARP = "cuda/leaf_indexes.cuh", "cuda/warp.cuh"
_TRANSPOSE, _FIND, _FINISH = "cuda/transpose.cu", "cuda/find_false_nodes.cu", "cuda/finish_scores.cu"
_READING = "cuda/reading.cuh"
_SCORES, _OUTPUTS, _EXITS = "cuda/update_scores.cu", "cuda/update_outputs.cu", "cuda/exit_leaves.cu"

_CLEARED = "k == 0 ? word + j * WARP : reinterpret_cast<Word*>(reinterpret_cast<char*>(word) + offset[j])"

KERNELS = [
    Fault(
        "no barrier after leafindexes are set to ones",
        _LEAVES,
        "cut_rows(pivots, runs, n_columns, shares);\n    __syncthreads();",
        "cut_rows(pivots, runs, n_columns, shares);",
        _CASES,
    ),
    Fault("no barrier after the masks", _LEAVES, "    }\n    __syncthreads();\n}", "    }\n}", _CASES),
    Fault(
        "leafindexes of the first document alone are set to ones",
        _LEAVES,
        "i < words_of<STRIDE>(block.n_slots)",
        "i < words_of<1>(block.n_slots)",
        _CASES,
    ),
    Fault(
        "a plain store for atomicAnd",
        _LEAVES,
        f"atomicAnd({_CLEARED}, bits);",
        f"*({_CLEARED}) &= bits;",
        _RACES,
    ),
    Fault("the test at the pivot clears, too", _LEAVES, "i < stop; i += WARP", "i <= stop; i += WARP", _CASES),
    Fault(
        "several documents share the last one's pivot",
        _LEAVES,
        "min(end, limits.tuples(k))",
        "min(end, limits.tuples(DOCUMENTS - 1))",
        _CASES,
    ),
    Fault("four documents' limits are left unordered", _LEAVES, "        order(1, 2);\n", "", _CASES),
    Fault(
        "documents are left behind by their own numbers",
        _LEAVES,
        "(limit[k] & (DOCUMENTS - 1)) * (WARP * sizeof(Word))",
        "k * (WARP * sizeof(Word))",
        _CASES,
    ),
    Fault("missing values are pivots like others", _LEAVES, "is_missing ? 0 : of.of[d]", "of.of[d]", _CASES),
    Fault("missing lists are passed over", _LEAVES, "if (!any_missing || left == 0)", "if (left >= 0)", _CASES),
    Fault(
        "one document's missing value is every document's",
        _LEAVES,
        "of.of[d] == missing_pivot<Pivot>() ? run->n_missing : 0",
        "run->n_missing",
        _CASES,
    ),
    Fault(
        "rows of missing lists are in no warp's share",
        _LEAVES,
        "rows_of(far.tests) + rows_of(far.missing)",
        "rows_of(far.tests)",
        _CASES,
    ),
    Fault("shares are rounded down", _LEAVES, "(n_rows + n_warps - 1) / n_warps", "n_rows / n_warps", _CASES),
    Fault("the first warp takes all rows", _LEAVES, "(n_rows + n_warps - 1) / n_warps", "n_rows", _EVEN),
    Fault("shares begin in their column's first row", _LEAVES, "warp * share - begin}", "0}", _CASES),
    Fault(
        "the documents' words lie over one another",
        _LEAVES,
        "word / WARP * (STRIDE * WARP) + word % WARP",
        "word",
        _CASES,
    ),
    Fault(
        "a sum over the lanes before leaves one out",
        _WARP,
        "if (threadIdx.x % WARP >= offset)",
        "if (threadIdx.x % WARP > offset)",
        _CASES,
    ),
    Fault(
        "documents beyond the last have what the tile holds for pivots",
        _FIND,
        "first_document + row < n_documents ? tile[row * (TILE + 1) + column] : 0",
        "tile[row * (TILE + 1) + column]",
        _BOUNDS,
    ),
    Fault(
        "tuples of the first tree block are read for all",
        _LEAVES,
        "tuples.runs + static_cast<i64>(blockIdx.y) * n_columns",
        "tuples.runs",
        _CASES,
    ),
    Fault(
        "an exit leaf is looked for in two words at most",
        _LEAVES,
        "while (bits == 0) {",
        "if (bits == 0) {",
        _CASES,
    ),
    Fault(
        "no barrier before warps' sums are added",
        _WARP,
        "    __syncthreads();\n    if (threadIdx.x >= COUNT)",
        "    if (threadIdx.x >= COUNT)",
        _CASES,
    ),
    Fault(
        "lanes are added in another order",
        _WARP,
        "for (int offset = 1; offset < WARP; offset <<= 1)",
        "for (int offset = WARP / 2; offset > 0; offset >>= 1)",
        _CASES,
    ),
    Fault(
        "the first warp is added twice", _WARP, "u32 warp = 1; warp < n_warps", "u32 warp = 0; warp < n_warps", _CASES
    ),
    Fault(
        "warps are added in reverse",
        _WARP,
        "for (u32 warp = 1; warp < n_warps; ++warp)",
        "for (u32 warp = n_warps - 1; warp > 0; --warp)",
        _CASES,
    ),
    Fault("half of the lanes in a shuffle's mask", _WARP, "0xffffffffu", "0x0000ffffu", _CASES),
    Fault(
        "warps' sums of several documents share a place",
        _WARP,
        "scratch[k * n_warps + threadIdx.x / WARP] = sum;",
        "scratch[threadIdx.x / WARP] = sum;",
        _CASES,
    ),
    Fault(
        "scratch lies over the leafindexes",
        _LEAVES,
        "scratch(leafindexes + words_of<STRIDE>(n_slots))",
        "scratch(leafindexes)",
        _CASES,
    ),
    Fault(
        "sums of documents beyond the last are written",
        _SCORES,
        "threadIdx.x < DOCUMENTS && document < n_documents",
        "threadIdx.x < DOCUMENTS",
        _CASES,
    ),
    Fault(
        "every tree is taken for one word",
        _LEAVES,
        "MANY ? slot_offsets[tree] - first_slot : tree - first_tree",
        "tree - first_tree",
        _CASES,
    ),
    Fault(
        "trees beyond the threads are left out",
        _SCORES,
        "tree < block.end_tree; tree += blockDim.x)",
        "tree < block.end_tree; tree += 1 << 20)",
        _CASES,
    ),
    Fault("every lane writes its output's sum", _OUTPUTS, "if (threadIdx.x % WARP == 0) ", "", _CASES),
    Fault(
        "outputs beyond the warps are left out", _OUTPUTS, "output += blockDim.x / WARP)", "output += 1 << 20)", _CASES
    ),
    Fault("vector leaves give their first value", _OUTPUTS, "(every_tree ? output : 0)", "0", _CASES),
    Fault("vector leaves overlap", _EXITS, "table[leaf * width + k]", "table[leaf + k]", _PER_TREE),
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
        "all negative numbers are zeros that are missing", _READING, "x >= -limit && x <= limit", "x <= limit", _CASES
    ),
    Fault("small denormals alone are zeros that are missing", _READING, "= 1e-35f", "= 1e-36f", _CASES),
    Fault(
        "a word beyond a category set is read",
        _READING,
        "code / 32 < reading.n_words &&",
        "code / 32 <= reading.n_words &&",
        _CATEGORIES,
    ),
    Fault(
        "bits of a category's word are counted from the other end",
        _READING,
        ">> (code % 32) & 1",
        ">> (31 - code % 32) & 1",
        _CATEGORIES,
    ),
    Fault(
        "documents are rounded to float32 on the way",
        _READING,
        "static_cast<Value>(*at(document, column))",
        "static_cast<Value>(static_cast<float>(*at(document, column)))",
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
        "group < n_groups && first_column + column < n_columns",
        "group < n_groups",
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
