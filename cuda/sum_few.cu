// sum_few: sum_exact for few documents: planes of leaf numbers -> sums in tree order, in the source library's type.
//
//   parallel_block foreach (128 documents, output):
//       foreach 32 trees of the output, in order; three jobs at once, each by four of the block's twenty warps:
//           parallel_thread foreach document: foreach of the trees, in order: sum[document] += leaf value
//           for the next trees: shared <- their leaf values
//           for the next trees: shared <- the documents' leaf numbers, those of a document side by side
//       sums[document][output] <- sum[document]
//
// A multiprocessor has one such thread block, so a warp waits for whatever it loads. Warps that add load little: the numbers of 16
// trees at once, and one value at a time. The other two jobs have two groups of four warps each, which take turns, so that a group
// stores what it loaded two rounds before.
#include "leaf_codes.cuh"
#include "warp.cuh"
#include "words.cuh"

// SPAN: words of documents per thread block, in neighbouring lanes. PITCH: bytes from a document's numbers to the next one's, such that
// 16 bytes of each of eight neighbours lie in different banks, and so do the bytes that a warp writes.
enum { SPAN = 4, TREES = 32, TOGETHER = 16, PITCH = TREES + 16, OF_WARP = WARP / SPAN };
enum { ADDS, VALUES, NUMBERS = VALUES + 2, ROLES = NUMBERS + 2, ROLE_WARPS = TREES / OF_WARP };

// What is added at a time; documents are in the order of the threads that add.
template <class Leaf>
struct __align__(16) Together {
    Leaf values[TREES][TABLE];
    u8 numbers[SPAN * WARP][PITCH];
};
// Leaf numbers of a document, a byte each.
struct __align__(16) Numbers { u32 of[TOGETHER / sizeof(u32)]; };

// Launch: 640 threads, blocks (128 documents, outputs); arguments as in sum_exact; trees have up to 64 leaves. Dynamic shared memory:
// two Together.
template <class Leaf, class Sum, int W>
__global__ void __launch_bounds__(ROLES * ROLE_WARPS * WARP, 1)
    sum_few(const u32* planes, int n_planes, int n_documents, int first_tree, int n_trees, const int* offsets, const Leaf* value,
            int width, int every_tree, const int* output_offsets, const int* output_trees, int started, const Sum* start, Sum* sums) {
    DYNAMIC_SHARED(shared);
    enum { WORDS = WARP * W, HALVES = TABLE / WARP };
    Together<Leaf>* together = kept_shared(reinterpret_cast<Together<Leaf>*>(shared));
    const int role = threadIdx.x / (ROLE_WARPS * WARP), thread = threadIdx.x % (ROLE_WARPS * WARP);
    const int lane = threadIdx.x % WARP, first_of_warp = thread / WARP * OF_WARP, output = blockIdx.y, n_outputs = gridDim.y;
    const OutputTrees trees = {first_tree, n_trees, every_tree ? nullptr : output_offsets, output_trees};
    const int begin = trees.begin(output), end = trees.end(output), k = width > 1 ? output : 0;
    const i64 first_word = static_cast<i64>(blockIdx.x) * SPAN;

    // For warps that add.
    const i64 document = role == ADDS ? (first_word + thread % SPAN) * WARP + thread / SPAN : n_documents;
    Sum sum = !started ? start[output] : document < n_documents ? sums[document * n_outputs + output] : Sum(0);
    // For warps that prepare every second round: which round, and what they have loaded for it.
    const int own_turn = (role - VALUES) % 2;
    u32 loaded_planes[BYTE];
    Leaf loaded_values[OF_WARP * HALVES];
    const u32* tile = planes + first_word / WORDS * n_trees * n_planes * WORDS + first_word % WORDS + lane % SPAN;
    const Leaf* first_value = value + (static_cast<i64>(offsets[0]) + lane) * width + k;
    int coming = begin + own_turn * TREES + first_of_warp + lane / SPAN;  // the lane's tree among those that are loaded next
    const auto load = [&] {
        // Trees past the end are replaced by the last one, and never added.
        const int mine = trees.at(min(coming, end - 1));
        coming += 2 * TREES;
        if (role >= NUMBERS) {
            load_planes<TABLE_PLANES, 0, W>(advanced(tile, mine, n_planes * WORDS * sizeof(u32)), n_planes, loaded_planes);
        } else {
#pragma unroll
            for (int i = 0; i < OF_WARP; ++i) {
                const int tree = __shfl_sync(ALL_LANES, mine, i * SPAN);
                const Leaf* from = advanced(first_value, tree, TABLE * width * sizeof(Leaf));
#pragma unroll
                for (int half = 0; half < HALVES; ++half) loaded_values[i * HALVES + half] = from[half * WARP * width];
            }
        }
    };
    const auto store = [&](Together<Leaf>& into) {
        if (role >= NUMBERS) {
            to_bytes(loaded_planes);
            u8* mine = &into.numbers[lane % SPAN][first_of_warp + lane / SPAN];
#pragma unroll
            for (int i = 0; i < WARP; ++i) mine[i * SPAN * PITCH] = static_cast<u8>(loaded_planes[i % BYTE] >> i / BYTE * BYTE);
        } else {
#pragma unroll
            for (int i = 0; i < OF_WARP * HALVES; ++i)
                into.values[first_of_warp + i / HALVES][i % HALVES * WARP + lane] = loaded_values[i];
        }
    };

    int left = end - begin, turn = 0;
    if (role != ADDS && left > 0) {
        load();
        if (own_turn == 0) {
            store(together[0]);
            load();
        }
    }
    __syncthreads();
#pragma unroll 1
    for (; left > TREES; left -= TREES, turn ^= 1) {
        if (role == ADDS) {
            const Together<Leaf>& from = together[turn];
#pragma unroll
            for (int first = 0; first < TREES; first += TOGETHER) {
                const Numbers numbers = *reinterpret_cast<const Numbers*>(from.numbers[thread] + first);
#pragma unroll
                for (int i = 0; i < TOGETHER; ++i) sum += from.values[first + i][byte_of(numbers.of[i / 4], i % 4)];
            }
        } else if (own_turn != turn) {
            store(together[turn ^ 1]);
            load();
        }
        __syncthreads();
    }
    if (role != ADDS) return;
#pragma unroll 4
    for (int i = 0; i < left; ++i) sum += together[turn].values[i][together[turn].numbers[thread][i]];
    if (document < n_documents) sums[document * n_outputs + output] = sum;
}
