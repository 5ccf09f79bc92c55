// walk_scores: documents as the caller holds them -> sums, by walking: one launch from row to score.
//
//   parallel_block foreach (document, its share of the tree parts):
//       x[] <- the document's columns: see walk.cuh
//       foreach part of the trees:
//           parallel_thread foreach tree of the part: found[tree] <- the value of walk(tree)
//           meanwhile, one owner per output: foreach tree of the previous part, in order: sum += found[tree]; barrier
#include "walk.cuh"
#include "warp.cuh"

// Integers may be added in any order.
template <class Sum>
constexpr bool ANY_ORDER = false;
template <>
constexpr bool ANY_ORDER<i64> = true;

// sum + at(begin) + ... + at(end - 1), in this order, with N values loaded ahead.
template <int N, class Sum, class At>
__device__ __forceinline__ Sum add_in_order(int begin, int end, Sum sum, const At& at) {
    int i = begin;
    if (end - i >= N) {
        Sum ahead[N];
#pragma unroll
        for (int k = 0; k < N; ++k) ahead[k] = at(i + k);
#pragma unroll 2
        for (; i + 2 * N <= end; i += N) {
#pragma unroll
            for (int k = 0; k < N; ++k) {
                const Sum next = at(i + N + k);
                sum += ahead[k];
                ahead[k] = next;
            }
        }
#pragma unroll
        for (int k = 0; k < N; ++k) sum += ahead[k];
        i += N;
    }
#pragma unroll 1
    for (; i < end; ++i) sum += at(i);
    return sum;
}

// *sum = before + trees begin ... end - 1: by one thread in their order, or by a warp in any order.
template <int N, class Sum, class At>
__device__ __forceinline__ void add_trees(int begin, int end, Sum before, Sum* sum, const At& at) {
    if (ANY_ORDER<Sum>) {
        const int lane = threadIdx.x % WARP;
        Sum mine = 0;
#pragma unroll 4
        for (int i = begin + lane; i < end; i += WARP) mine += at(i);
        mine = warp_sum(mine);
        if (lane == 0) *sum = before + mine;
    } else {
        *sum = add_in_order<N>(begin, end, before, at);
    }
}

// Launch: n_adders threads and at least one warp that walks, blocks (documents, shares of parts_each parts); sums [share][document]
// [output]. A part has part_trees trees, ordered by output, as `roots` is: those of output k in part p are output_offsets[p][k] ...
// output_offsets[p][k + 1]; with vector leaves, of `width` values, every tree adds to each output. Sums begin with those in `sums` if
// `started`, else with `start`. Dynamic shared memory: found [2][part_trees] of 8 bytes, then the columns, if `staged`.
template <class Value, class Leaf, class Sum>
__global__ void walk_scores(const void* documents, int type, i64 document_stride, i64 feature_stride, int n_columns, const int* feature,
                            const u8* routing, const int* set_offsets, const u32* set_words, int staged, const u32* nodes,
                            const int* roots, const Leaf* value, int width, int n_trees, int part_trees, int n_parts, int parts_each,
                            const int* output_offsets, int n_outputs, int n_adders, int started, const Sum* start, Sum* sums) {
    DYNAMIC_SHARED(shared);
    Leaf* found = reinterpret_cast<Leaf*>(shared);  // for vector leaves: their numbers
    Value* x = reinterpret_cast<Value*>(shared + 2 * 8 * part_trees);
    const char* base = static_cast<const char*>(documents);
    const AnyDocuments given = {{base, document_stride, feature_stride, feature, routing, set_offsets, set_words}, type};
    const Walks<Value> walks = {given, reinterpret_cast<const uint4*>(nodes), staged ? x : nullptr};
    walks.read_columns(n_columns);

    const bool vectors = width > 1;
    const int thread = threadIdx.x, first = blockIdx.y * parts_each, end = min(first + parts_each, n_parts);
    Sum* mine = sums + (static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x) * n_outputs;
#pragma unroll 1
    for (int part = first; part <= end; ++part) {
        if (thread >= n_adders && part < end) {
            const int begin = part * part_trees, n = min(part_trees, n_trees - begin);
            Leaf* to = found + part % 2 * part_trees;
#pragma unroll 1
            for (int i = thread - n_adders; i < n; i += blockDim.x - n_adders) {
                const int leaf = walks.exit_leaf(reinterpret_cast<const uint2*>(roots)[begin + i]);
                if (vectors)
                    reinterpret_cast<int*>(to)[i] = leaf;
                else
                    to[i] = value[leaf];
            }
        }
        if (thread < n_adders && part > first) {
            const int last = part - 1, begin = last * part_trees;
            const Leaf* from = found + last % 2 * part_trees;
#pragma unroll 1
            for (int k = ANY_ORDER<Sum> ? thread / WARP : thread; k < n_outputs; k += ANY_ORDER<Sum> ? n_adders / WARP : n_adders) {
                const Sum before = last > first || started ? mine[k] : start[k];
                if (vectors) {
                    const int* leaf = reinterpret_cast<const int*>(from);
                    const auto at = [&](int i) { return static_cast<Sum>(value[static_cast<i64>(leaf[i]) * width + k]); };
                    add_trees<32 / sizeof(Leaf)>(0, min(part_trees, n_trees - begin), before, mine + k, at);
                } else {
                    const int* offsets = output_offsets + static_cast<i64>(last) * (n_outputs + 1) + k;
                    const auto at = [&](int i) { return static_cast<Sum>(from[i]); };
                    add_trees<32 / sizeof(Leaf)>(offsets[0] - begin, offsets[1] - begin, before, mine + k, at);
                }
            }
        }
        __syncthreads();
    }
}
