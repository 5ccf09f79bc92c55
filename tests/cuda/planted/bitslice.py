"""Faults of the bit-sliced engine: barriers, missing values, polarity, slots, planes, parts, chunks."""

from __future__ import annotations

from planted.campaign import Fault

_FILE = "test_bitslice_emulated.py"
_SMALL = (_FILE, "-k", "test_equals_reference and words")
_LARGE = (_FILE, "-k", "test_equals_reference and many")
_MORE = (_FILE, "-k", "test_equals_reference and every")
_ORDERS = (_FILE, "-k", "orders_of_threads and (words or many or every)")
_SETTINGS = (_FILE, "-k", "random_forests_and_settings")
_BLOCKS = (f"{_FILE}::test_tree_blocks_have_rows_of_their_own",)
_ROUNDS = (_FILE, "-k", "few_documents_by_rounds")
_BLOCK_WORDS = (_FILE, "-k", "a_block_ranks_a_tile")
_EVEN = (_FILE, "-k", "keep_multiprocessors_even")
_FOUR = (_FILE, "-k", "sums_of_many_documents and words")
_TILES = (f"{_FILE}::test_tiles_of_documents_in_other_orders_of_threads",)
_LENGTHS = (f"{_FILE}::test_ranks_of_columns_of_any_length",)
_MANY = (f"{_FILE}::test_thousands_of_documents",)
_PER_TREE = (f"{_FILE}::test_per_tree_values_are_the_exit_leaves",)

_SAME = (_FILE, "-k", "same_planes and (words or chains)")

_RANK, _DECODE = "cuda/rank_documents.cu", "cuda/decode_predicates.cu"
_SLOTS, _STEPS, _STEPS_LAYOUT = "cuda/slots.cu", "cuda/steps.cu", "layout/steps.py"
_FEW = "cuda/sum_few.cu"
_EXACT, _FAST, _CODES = "cuda/sum_exact.cu", "cuda/sum_fast.cu", "cuda/leaf_codes.cuh"
_HOST, _LAYOUT = "engines/gpu/bitslice_placed.py", "layout/bitslice_gpu.py"

BITSLICE = [
    Fault(
        "no barrier after thresholds are staged",
        _RANK,
        "staged[i] = levels[begin + i];\n    __syncwarp();\n",
        "staged[i] = levels[begin + i];\n",
        _TILES,
    ),
    Fault("no barrier between a tile's documents and columns", _RANK, "if (BY_ROW) __syncthreads();", "", _ORDERS),
    Fault("one tile where two are in use", _RANK, "turn ^= COLUMNS * PITCH", "turn ^= 0", _TILES),
    Fault(
        "no barrier before planes are written",
        _RANK,
        "    __syncthreads();\n    const int all_planes",
        "    const int all_planes",
        _ORDERS,
    ),
    Fault("missing values rank lowest", _RANK, "!(threshold[i] >= x.of[i])", "threshold[i] < x.of[i]", _SMALL),
    Fault("a threshold's own value ranks above it", _RANK, "threshold[i] >= x.of[i]", "threshold[i] > x.of[i]", _SMALL),
    Fault("missing values are not marked", _RANK, "x.of[i] != x.of[i]", "x.of[i] < x.of[i]", _SMALL),
    Fault("zeros that are missing are read as zeros", _RANK, "if (flags & SPECIAL)", "if (flags & 0)", _SMALL),
    Fault("levels that are not staged are read as if they were", _RANK, "- 1 <= n_staged", "- 1 <= 65535", _LENGTHS),
    Fault("every thread block ranks a tile", _RANK, "block * block_words * WARP", "block * WORDS * WARP", _BLOCK_WORDS),
    Fault(
        "ranks are written as those of a tile",
        _RANK,
        "words_before = block * block_words",
        "words_before = block * WORDS",
        _BLOCK_WORDS,
    ),
    Fault("thread blocks are those of tiles", _HOST, "(WARP // block_words) *", "1 *", _BLOCK_WORDS),
    Fault("missing values go right", _DECODE, "if (segment.marked)", "if (segment.marked > 1)", _SMALL),
    Fault("the high bits of ranks are not compared", _DECODE, "equal.of[w] & of.of[w] & ~set", "0 & ~set", _SMALL),
    Fault("rows have another polarity", _DECODE, "segment.flip >> b & 1", "segment.low >> b & 1", _SMALL),
    Fault("rows have no polarity", _DECODE, "0u - (segment.flip >> b & 1)", "0u & segment.flip", _SMALL),
    Fault("a tree's planes begin as the last tree's", _SLOTS, "plane[k * WARP] = all<W>(0);", ";", _SAME),
    Fault("every node enters the first plane", _SLOTS, "of[i].plane * WARP", "n_slots * WARP", _SAME),
    Fault("what closes a subtree is not taken back", _STEPS, "top = sp[-WARP];", ";", _SMALL),
    Fault("what closes a subtree is not kept", _STEPS, "*sp = top;", ";", _SMALL),
    Fault("a step's rows are those of the group before", _STEPS, "coming : group + STEPS", "coming : group", _SMALL),
    Fault("the next page's rows are this one's", _STEPS, "ends ? coming", "false ? coming", _SAME),
    Fault(
        "a tree's low planes begin as the last tree's",
        _STEPS,
        "low[k]);\n                low[k] = all<W>(0);",
        "low[k]);",
        _SAME,
    ),
    Fault(
        "a page is staged where other lanes still read",
        _STEPS,
        "        __syncwarp();\n        if (carries)",
        "        if (carries)",
        _ORDERS,
    ),
    Fault("a popped step's flag is left out", _STEPS_LAYOUT, "flags[after] |= POP", "flags[after] |= 0", _SMALL),
    Fault(
        "no barrier before leaf numbers are read",
        _EXACT,
        "    __syncthreads();\n#pragma unroll 1\n    for (; left",
        "#pragma unroll 1\n    for (; left",
        _ORDERS,
    ),
    Fault("no barrier after leaf numbers are read", _EXACT, "        __syncthreads();\n    }\n", "    }\n", _ORDERS),
    Fault(
        "the higher byte of a leaf's number is left out",
        _EXACT,
        "byte_of(from.high[at], b) << BYTE",
        "(from.high[at] & 0) << BYTE",
        _LARGE,
    ),
    Fault("a thread's documents are one", _EXACT, "b = of_warp * D + d;", "b = of_warp * D;", _FOUR),
    Fault("a value's words are one", _EXACT, "words[w * (TREES * TABLE)]", "words[0]", _SMALL),
    Fault("trees that are taken together are too many for four", _EXACT, "OF_WARP = WARP / SPAN", "OF_WARP = 4", _FOUR),
    Fault("a thread sums as many documents as waste the most", _HOST, "* d * WAVEFRONTS[d]", "* d", _EVEN),
    Fault(
        "no barrier before few documents' values are added",
        _FEW,
        "    __syncthreads();\n#pragma unroll 1\n    for (; left",
        "#pragma unroll 1\n    for (; left",
        _ROUNDS,
    ),
    Fault(
        "no barrier after few documents' values are added",
        _FEW,
        "        __syncthreads();\n    }\n    if (role",
        "    }\n    if (role",
        _ROUNDS,
    ),
    Fault(
        "what few documents add next takes the place of what they add",
        _FEW,
        "store(together[turn ^ 1]);",
        "store(together[turn]);",
        _ROUNDS,
    ),
    Fault("all warps prepare every round", _FEW, "} else if (own_turn != turn) {", "} else {", _ROUNDS),
    Fault("warps prepare the rounds of the others", _FEW, "own_turn != turn", "own_turn == turn", _ROUNDS),
    Fault("warps ask for every round", _FEW, "coming += 2 * TREES", "coming += TREES", _ROUNDS),
    Fault("all ask first for the first round", _FEW, "begin + own_turn * TREES +", "begin +", _ROUNDS),
    Fault(
        "few documents' second sixteen numbers are the first",
        _FEW,
        "from.numbers[thread] + first)",
        "from.numbers[thread])",
        _ROUNDS,
    ),
    Fault(
        "few documents have their neighbours' sums",
        _FEW,
        "* WARP + thread / SPAN : n_documents",
        "* WARP + thread % WARP : n_documents",
        _ROUNDS,
    ),
    Fault("few documents' sums begin with zero", _FEW, "!started ? start[output]", "!started ? Sum(0)", _ROUNDS),
    Fault(
        "few documents add the last tree's values for those not there",
        _FEW,
        "for (int i = 0; i < left; ++i)",
        "for (int i = 0; i < TREES; ++i)",
        _ROUNDS,
    ),
    Fault("few documents add one output's values", _FEW, "k = width > 1 ? output : 0", "k = 0", _ROUNDS),
    Fault("the next trees take the place of those that are added", _EXACT, "turn ^ 1]", "turn]", _MORE),
    Fault(
        "sums take the place of tables in use",
        _FAST,
        "    __syncthreads();\n#pragma unroll\n    for (int d = 0; d < WARP; ++d) sums",
        "#pragma unroll\n    for (int d = 0; d < WARP; ++d) sums",
        _ORDERS,
    ),
    Fault(
        "trees that are not there have values",
        _FAST,
        "tables[t * TABLE + lane] = tables[t * TABLE + lane + WARP] = 0;",
        ";",
        _SMALL,
    ),
    Fault("bits two apart do not change places", _CODES, "    exchange<2>(x);\n", "", _SMALL),
    Fault(
        "the highest bit of a leaf's number is left out",
        "cuda/look_up_leaves.cu",
        "k < n_planes; ++k",
        "k < n_planes - 1; ++k",
        _PER_TREE,
    ),
    Fault(
        "rows are decoded for the first tree block alone", _HOST, "part.block != decoded", "decoded is None", _BLOCKS
    ),
    Fault("a tree block has the rows of the first", _HOST, "self._decode(part.block,", "self._decode(0,", _BLOCKS),
    Fault("each part's sums begin anew", _HOST, "started or part.first > 0", "started", _SETTINGS),
    Fault(
        "every batch's bit slices are summed in the first rows",
        _HOST,
        "words, sums[batch], started",
        "words, sums[: batch.stop - batch.start], started",
        _MANY,
    ),
    Fault(
        "every batch ranks the first documents",
        _HOST,
        "_rounded_once(documents[batch])",
        "_rounded_once(documents[: batch.stop - start])",
        _MANY,
    ),
    Fault(
        "a boundary's slot is given back too early",
        "layout/slots.py",
        "goes_first[inner], keep_mine[at]",
        "goes_first[inner], keep_mine[at] & (place[at] < 0)",
        _SAME,
    ),
    Fault(
        "children keep their places", _LAYOUT, "swapped = negated[of_all]", "swapped = negated[of_all] & False", _SMALL
    ),
]
