// The mask computation step of paper 000, Algorithm 4: pivots -> leafindexes in shared memory.
//
//   parallel_thread foreach word of the tree block's trees: leafindexes[word] <- ones
//   barrier
//   parallel_warp foreach column; parallel_lane foreach test up to the pivot (of NaN: each that sends it right):
//       leafindexes[slot[test]] &= mask[test] (atomic)
//   barrier
#pragma once
#include "common.cuh"

// Tests by (tree block, column), thresholds ascending: what a false test clears.
template <class Word>
struct Tests {
    const int* offsets;  // [block][column + 1]
    const u16* slot;
    const Word* mask;
};

// The trees of a forest: trees [blocks[b], blocks[b + 1]) are tree block b.
struct Trees {
    const int* blocks;
    const int* slot_offsets;  // first word of each tree
    const int* leaf_offsets;  // first leaf of each tree
};

__device__ __forceinline__ int leading_zeros(u32 word) { return __clz(static_cast<int>(word)); }
__device__ __forceinline__ int leading_zeros(u64 word) { return __clzll(static_cast<i64>(word)); }

// Leftmost bit set in the words of one tree. MANY: a tree may have more than one word.
template <class Word, bool MANY>
__device__ __forceinline__ int exit_leaf(const Word* words) {
    if (!MANY) return leading_zeros(*words);
    int skipped = 0;
#pragma unroll 1
    while (*words == 0) {  // the last leaf that is not ruled out always has its bit
        ++words;
        skipped += 8 * sizeof(Word);
    }
    return skipped + leading_zeros(*words);
}

// Fills leafindexes[DOCUMENTS][n_slots] for documents [first_document, first_document + DOCUMENTS).
// Ends with a barrier: every thread may read every word.
template <class Word, class Pivot, int DOCUMENTS>
__device__ __forceinline__ void compute_masks(const Pivot* pivots, int n_documents, int first_document, int n_columns,
                                              Tests<Word> tests, Tests<Word> missing, int n_slots, Word* leafindexes) {
    for (int i = threadIdx.x; i < DOCUMENTS * n_slots; i += blockDim.x) leafindexes[i] = ~static_cast<Word>(0);
    __syncthreads();

    constexpr int UNROLL = DOCUMENTS == 1 ? 2 : 1;  // several documents take the registers
    const int lane = threadIdx.x % WARP;
    const int* test_offsets = tests.offsets + static_cast<i64>(blockIdx.y) * (n_columns + 1);
    const int* missing_offsets = missing.offsets + static_cast<i64>(blockIdx.y) * (n_columns + 1);
    const Pivot* row = pivots + (static_cast<i64>(blockIdx.y) * n_documents + first_document) * n_columns;
    for (int column = threadIdx.x / WARP; column < n_columns; column += blockDim.x / WARP) {
        int pivot[DOCUMENTS];
        int last = 0;
#pragma unroll
        for (int d = 0; d < DOCUMENTS; ++d) {
            pivot[d] = 0;
            if (DOCUMENTS > 1 && first_document + d >= n_documents) continue;
            const Pivot p = row[static_cast<i64>(d) * n_columns + column];
            if (p == missing_pivot<Pivot>()) {
                const int end = missing_offsets[column + 1];
#pragma unroll 1
                for (int i = missing_offsets[column] + lane; i < end; i += WARP)
                    atomicAnd(leafindexes + d * n_slots + missing.slot[i], missing.mask[i]);
            } else {
                pivot[d] = static_cast<int>(p);
                last = max(last, pivot[d]);
            }
        }
        const u16* test_slot = tests.slot + test_offsets[column];
        const Word* test_mask = tests.mask + test_offsets[column];
#pragma unroll UNROLL
        for (int i = lane; i < last; i += WARP) {
            const int slot = test_slot[i];
            const Word mask = test_mask[i];
#pragma unroll
            for (int d = 0; d < DOCUMENTS; ++d)
                if (DOCUMENTS == 1 || i < pivot[d]) atomicAnd(leafindexes + d * n_slots + slot, mask);
        }
    }
    __syncthreads();
}
