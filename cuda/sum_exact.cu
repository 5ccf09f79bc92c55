// sum_exact: planes of leaf numbers -> sums in tree order, in the source library's type.
//
//   parallel_block foreach (256 documents, output):
//       foreach 32 trees of the output, in order:
//           parallel_warp foreach 4 of the trees: shared <- their leaf values; the documents' leaf numbers, as bytes
//           barrier
//           parallel_thread foreach document: foreach of the trees, in order: sum += leaf value
//       sums[document][output] <- sum
#include "leaf_codes.cuh"
#include "warp.cuh"
#include "words.cuh"

// Words of documents of a thread block, and trees that it takes together, those of a warp side by side in its lanes.
enum { SPAN = 8, OF_WARP = WARP / SPAN, TREES = BYTE * OF_WARP };

// What a thread block adds together: the trees' leaf values, or where they begin; numbers, as bytes of documents d, d + 8, d + 16 and
// d + 24 of a word, [d][tree][word], the higher bytes after the lower.
enum { NUMBERS = BYTE * TREES * SPAN };
template <class Leaf, bool SMALL>
struct Together {
    Leaf values[TREES * TABLE];
    u32 low[NUMBERS];
};
template <class Leaf>
struct Together<Leaf, false> {
    i64 first[TREES];
    u32 low[NUMBERS], high[NUMBERS];
};

// Launch: 256 threads, blocks (256 documents, outputs); n_planes planes of n_trees trees, tiles of W words a lane.
// SMALL: trees have up to 64 leaves, whose values [64][width] lie in shared memory; else two bytes a number, and values where they
// are. offsets: of each tree's values. every_tree: all trees add to each output. Sums begin with what is there, or with `start`.
// Dynamic shared memory: what is added together, twice: the next trees are loaded while these are added.
template <class Leaf, class Sum, bool SMALL, int W>
__global__ void __launch_bounds__(BYTE* WARP, 4)
    sum_exact(const u32* planes, int n_planes, int n_documents, int first_tree, int n_trees, const int* offsets, const Leaf* value,
              int width, int every_tree, const int* output_offsets, const int* output_trees, int started, const Sum* start, Sum* sums) {
    DYNAMIC_SHARED(shared);
    // A number of values of four bytes is a multiple of four, their place in bytes.
    enum { SHIFT = SMALL && sizeof(Leaf) == 4 ? 2 : 0, WORDS = WARP * W, HALVES = TABLE / WARP, COPIED = SMALL ? OF_WARP * HALVES : 1 };
    using Added = Together<Leaf, SMALL>;
    Added* together = reinterpret_cast<Added*>(shared);
    const int lane = threadIdx.x % WARP, warp = kept(threadIdx.x / WARP), output = blockIdx.y, n_outputs = gridDim.y;
    const int word = lane % SPAN, of_warp = lane / SPAN;
    const OutputTrees trees = {first_tree, n_trees, every_tree ? nullptr : output_offsets, output_trees};
    const int begin = trees.begin(output), end = trees.end(output), k = width > 1 ? output : 0;

    const i64 first_word = static_cast<i64>(blockIdx.x) * SPAN;
    const u32* tile = planes + first_word / WORDS * n_trees * n_planes * WORDS + first_word % WORDS + word;
    const i64 document = (first_word + word) * WARP + of_warp * BYTE + warp;
    Sum sum = !started ? start[output] : document < n_documents ? sums[document * n_outputs + output] : Sum(0);

    u32 low[BYTE], high[BYTE];
    Leaf copied[COPIED];
    i64 first = 0;
    const int tree_words = n_planes * WORDS, values_of_tree = TABLE * width;
    const Leaf* first_value = value + (static_cast<i64>(offsets[0]) + lane) * width + k;
    const auto load = [&](int t) {
        // The last tree stands for those that are not there, which nobody adds.
        const int mine = trees.at(min(t + warp * OF_WARP + of_warp, end - 1));
        const u32* plane = tile + mine * tree_words;
        load_planes<SMALL ? TABLE_PLANES : BYTE, SHIFT, W>(plane, n_planes, low);
        if constexpr (SMALL) {
#pragma unroll
            for (int i = 0; i < COPIED; i += HALVES) {
                const Leaf* from = first_value + __shfl_sync(ALL_LANES, mine, i / HALVES * SPAN) * values_of_tree;
                copied[i] = *from;
                copied[i + 1] = from[WARP * width];
            }
        } else {
            load_planes<BYTE, 0, W>(plane + BYTE * WORDS, n_planes - BYTE, high);
            first = offsets[mine];
        }
    };
    const auto store = [&](Added& into) {
        to_bytes(low);
#pragma unroll
        for (int d = 0; d < BYTE; ++d) into.low[(d * BYTE + warp) * WARP + lane] = low[d];
        if constexpr (SMALL) {
#pragma unroll
            for (int i = 0; i < COPIED; ++i) into.values[(warp * COPIED + i) * WARP + lane] = copied[i];
        } else {
            to_bytes(high);
#pragma unroll
            for (int d = 0; d < BYTE; ++d) into.high[(d * BYTE + warp) * WARP + lane] = high[d];
            if (word == 0) into.first[warp * OF_WARP + of_warp] = first;
        }
    };
    const auto add = [&](const Added& from, int t) {
        const int at = warp * (TREES * SPAN) + t * SPAN + word;
        const u32 number = byte_of(from.low[at], of_warp);
        if constexpr (SMALL) {
            const char* table = reinterpret_cast<const char*>(from.values + t * TABLE);
            sum += *reinterpret_cast<const Leaf*>(table + number * (sizeof(Leaf) >> SHIFT));
        } else {
            sum += value[(from.first[t] + (number | byte_of(from.high[at], of_warp) << BYTE)) * width + k];
        }
    };

    int turn = 0;
    if (begin < end) {
        load(begin);
        store(together[turn]);
    }
    __syncthreads();
#pragma unroll 1
    for (int t = begin; t < end; t += TREES, turn ^= 1) {
        const bool more = t + TREES < end;
        if (more) load(t + TREES);
        const Added& from = together[turn];
        if (more || t + TREES == end) {
#pragma unroll(SMALL ? TREES : BYTE)
            for (int i = 0; i < TREES; ++i) add(from, i);
        } else {
#pragma unroll 1
            for (int i = 0; i < end - t; ++i) add(from, i);
        }
        if (more) store(together[turn ^ 1]);
        __syncthreads();
    }
    if (document < n_documents) sums[document * n_outputs + output] = sum;
}
