// sum_exact: planes of leaf numbers -> sums in tree order, in the source library's type.
//
//   parallel_block foreach (256 D documents, output):
//       foreach 32 / D trees of the output, in order:
//           parallel_warp foreach 4 / D of the trees: shared <- their leaf values; the documents' leaf numbers, as bytes
//           barrier
//           parallel_thread foreach D documents: foreach of the trees, in order: sum[document] += leaf value
//       sums[document][output] <- sum[document]
#include "leaf_codes.cuh"
#include "warp.cuh"
#include "words.cuh"

// D: documents per thread, 1 or 4. A thread block has SPAN = 8 D words of documents and adds TREES = 32 / D trees at a time, with a
// warp's trees side by side in its lanes; so it has NUMBERS words of leaf numbers for either D.
enum { NUMBERS = BYTE * BYTE * WARP };

// What a thread block adds at a time: the trees' leaf values, or where they begin; and leaf numbers [d][tree][word], with bytes of
// documents d, d + 8, d + 16 and d + 24 of a word, the low bytes of two-byte numbers apart from the high ones. The 4-byte words of a
// value are stored apart, because look-ups of four bytes have fewer bank conflicts.
template <class Leaf, bool SMALL, int TREES>
struct Together {
    u32 values[sizeof(Leaf) / sizeof(u32)][TREES * TABLE];
    u32 low[NUMBERS];
};
template <class Leaf, int TREES>
struct Together<Leaf, false, TREES> {
    i64 first[TREES];
    u32 low[NUMBERS], high[NUMBERS];
};

// A value and its words.
template <class Leaf>
union Value {
    Leaf whole;
    u32 words[sizeof(Leaf) / sizeof(u32)];
};

// Launch: 256 threads, blocks (256 D documents, outputs); n_planes planes of n_trees trees, tiles of W words a lane.
// SMALL: trees have up to 64 leaves, whose values [64][width] are copied to shared memory; otherwise numbers have two bytes, and values
// are read where they are. offsets: where each tree's values begin. every_tree: all trees add to each output. Sums begin with those in
// `sums` if `started`, else with `start`. Dynamic shared memory: two Together: the next trees are loaded while these are added.
template <class Leaf, class Sum, bool SMALL, int W, int D>
__global__ void __launch_bounds__(BYTE* WARP, 4)
    sum_exact(const u32* planes, int n_planes, int n_documents, int first_tree, int n_trees, const int* offsets, const Leaf* value,
              int width, int every_tree, const int* output_offsets, const int* output_trees, int started, const Sum* start, Sum* sums) {
    DYNAMIC_SHARED(shared);
    enum { SPAN = BYTE * D, OF_WARP = WARP / SPAN, TREES = BYTE * OF_WARP, WORDS = WARP * W, HALVES = TABLE / WARP };
    enum { SHIFT = SMALL ? 2 : 0, COPIED = SMALL ? OF_WARP * HALVES : 1 };  // a small tree's numbers are byte offsets of words
    using Added = Together<Leaf, SMALL, TREES>;
    Added* together = kept_shared(reinterpret_cast<Added*>(shared));
    const int lane = threadIdx.x % WARP, warp = kept(threadIdx.x / WARP), output = blockIdx.y, n_outputs = gridDim.y;
    const int word = lane % SPAN, of_warp = lane / SPAN;
    const OutputTrees trees = {first_tree, n_trees, every_tree ? nullptr : output_offsets, output_trees};
    const int begin = trees.begin(output), end = trees.end(output), k = width > 1 ? output : 0;

    const i64 first_word = static_cast<i64>(blockIdx.x) * SPAN;
    const u32* tile = planes + first_word / WORDS * n_trees * n_planes * WORDS + first_word % WORDS + word;
    const auto document = [&](int d) { return (first_word + word) * WARP + (of_warp * D + d) * BYTE + warp; };
    Sum sum[D];
#pragma unroll
    for (int d = 0; d < D; ++d)
        sum[d] = !started ? start[output] : document(d) < n_documents ? sums[document(d) * n_outputs + output] : Sum(0);

    u32 low[BYTE], high[BYTE];
    Value<Leaf> copied[COPIED];
    i64 first = 0;
    const u32 tree_bytes = n_planes * WORDS * sizeof(u32), value_bytes = TABLE * width * sizeof(Leaf);
    const Leaf* first_value = value + (static_cast<i64>(offsets[0]) + lane) * width + k;
    int coming = begin + warp * OF_WARP + of_warp;  // the lane's tree among those that are loaded next
    const auto load = [&] {
        // Trees past the end are replaced by the last one, and never added.
        const int mine = trees.at(min(coming, end - 1));
        coming += TREES;
        const u32* plane = advanced(tile, mine, tree_bytes);
        load_planes<SMALL ? TABLE_PLANES : BYTE, SHIFT, W>(plane, n_planes, low);
        if constexpr (SMALL) {
#pragma unroll
            for (int i = 0; i < COPIED; i += HALVES) {
                const Leaf* from = advanced(first_value, __shfl_sync(ALL_LANES, mine, i / HALVES * SPAN), value_bytes);
                copied[i].whole = *from;
                copied[i + 1].whole = from[WARP * width];
            }
        } else {
            load_planes<BYTE, 0, W>(plane + BYTE * WORDS, n_planes - BYTE, high);
            first = offsets[mine];
        }
    };
    const auto store = [&](Added& into) {
    // Zeroed again, because compilers do not see the zeros where planes are loaded an iteration before.
#pragma unroll
        for (int bit = 0; bit < SHIFT; ++bit) low[bit] = 0;
        to_bytes(low);
#pragma unroll
        for (int d = 0; d < BYTE; ++d) into.low[(d * BYTE + warp) * WARP + lane] = low[d];
        if constexpr (SMALL) {
#pragma unroll
            for (int i = 0; i < COPIED; ++i)
#pragma unroll
                for (int w = 0; w < sizeof(Leaf) / sizeof(u32); ++w)
                    into.values[w][(warp * COPIED + i) * WARP + lane] = copied[i].words[w];
        } else {
            to_bytes(high);
#pragma unroll
            for (int d = 0; d < BYTE; ++d) into.high[(d * BYTE + warp) * WARP + lane] = high[d];
            if (word == 0) into.first[warp * OF_WARP + of_warp] = first;
        }
    };
    const auto add = [&](const Added& from, int t) {
        const int at = warp * (TREES * SPAN) + t * SPAN + word;
        const u32 numbers = from.low[at];
#pragma unroll
        for (int d = 0; d < D; ++d) {
            const int b = of_warp * D + d;
            if constexpr (SMALL) {
                const u32* words = pointer_to<u32>(entry_place(place_of(from.values), numbers, b)) + t * TABLE;
                Value<Leaf> found;
#pragma unroll
                for (int w = 0; w < sizeof(Leaf) / sizeof(u32); ++w) found.words[w] = words[w * (TREES * TABLE)];
                sum[d] += found.whole;
            } else {
                sum[d] += value[(from.first[t] + (byte_of(numbers, b) | byte_of(from.high[at], b) << BYTE)) * width + k];
            }
        }
    };

    int left = end - begin, turn = 0;
    if (left > 0) {
        load();
        store(together[turn]);
    }
    __syncthreads();
#pragma unroll 1
    for (; left > TREES; left -= TREES, turn ^= 1) {
        load();
#pragma unroll(SMALL ? TREES : BYTE)
        for (int i = 0; i < TREES; ++i) add(together[turn], i);
        store(together[turn ^ 1]);
        __syncthreads();
    }
#pragma unroll 4
    for (int i = 0; i < left; ++i) add(together[turn], i);
#pragma unroll
    for (int d = 0; d < D; ++d)
        if (document(d) < n_documents) sums[document(d) * n_outputs + output] = sum[d];
}
