// The mask computation step of paper 000, Algorithm 4: pivots -> leafindexes in shared memory, for a few documents.
//
//   parallel_thread foreach (word of the tree block's trees, document): leafindexes[word] <- ones
//   meanwhile the first warp cuts the block's rows, of 32 tuples each, into even shares, one per warp (see below)
//   barrier
//   parallel_warp foreach row of its share: parallel_lane foreach tuple of the row:
//       foreach document whose test is false: leafindexes[slot] &= mask (atomic)
//   barrier
//
// A column's rows are those of its tests up to the largest of the documents' pivots and, if a document's value is missing,
// those of its missing list. Columns' lengths differ up to a thousandfold, so a share may begin inside a column.
#pragma once
#include "warp.cuh"

// A column of a tree block: where its tuples begin (thresholds ascending), and where those begin that a missing value makes false.
struct __align__(16) Run {
    int tests, missing;
    u32 n_missing, unused;
};

template <class Word>
struct Tuples {
    const Run* runs;  // [block][column]
    const u16* slot;
    const Word* mask;
};

// The pivots of one column for the documents that a thread block scores.
template <class Pivot, int DOCUMENTS>
struct __align__(sizeof(Pivot) * DOCUMENTS) Pivots {
    Pivot of[DOCUMENTS];
};

__device__ __forceinline__ int leading_zeros(u32 word) { return __clz(static_cast<int>(word)); }
__device__ __forceinline__ int leading_zeros(u64 word) { return __clzll(static_cast<i64>(word)); }

// Index of a word of the first document; the other documents' words follow WARP words apart, so in the same bank.
template <int STRIDE>
__device__ __forceinline__ u32 place(u32 word) {
    return STRIDE == 1 ? word : word / WARP * (STRIDE * WARP) + word % WARP;
}

// Number of words in STRIDE documents' leafindexes.
template <int STRIDE>
__device__ __forceinline__ u32 words_of(u32 n_slots) {
    return (n_slots + WARP - 1) / WARP * (STRIDE * WARP);
}

// The tree block that a thread block works on, and the leafindexes of its trees. MANY: a tree may have several words.
template <class Word, bool MANY, int STRIDE>
struct TreeBlock {
    Word* leafindexes;         // in shared memory
    const int* slot_offsets;   // first word of each of the forest's trees
    const int* leaf_offsets;   // first leaf of each
    int first_tree, end_tree;  // the tree block's trees
    int first_slot, n_slots;   // their words
    void* scratch;             // shared memory behind the leafindexes

    // Tree block b has trees [blocks[b], blocks[b + 1]).
    __device__ __forceinline__ TreeBlock(void* shared, const int* blocks, const int* slot_offsets, const int* leaf_offsets)
        : leafindexes(static_cast<Word*>(shared)), slot_offsets(slot_offsets), leaf_offsets(leaf_offsets),
          first_tree(blocks[blockIdx.y]), end_tree(blocks[blockIdx.y + 1]), first_slot(slot_offsets[first_tree]),
          n_slots(slot_offsets[end_tree] - first_slot), scratch(leafindexes + words_of<STRIDE>(n_slots)) {}

    // The first word of a tree.
    __device__ __forceinline__ int word_of(int tree) const { return MANY ? slot_offsets[tree] - first_slot : tree - first_tree; }
    // Leftmost bit set in the words of the tree whose first one is `word`, for one of the thread block's documents.
    __device__ __forceinline__ int exit_leaf(u32 word, int document = 0) const {
        const Word* words = leafindexes + document * WARP;
        Word bits = words[place<STRIDE>(word)];
        int skipped = 0;
        if (MANY) {
#pragma unroll 1
            while (bits == 0) {  // ends: the exit leaf's bit is never cleared
                bits = words[place<STRIDE>(++word)];
                skipped += 8 * sizeof(Word);
            }
        }
        return skipped + leading_zeros(bits);
    }
};

__device__ __forceinline__ u32 rows_of(u32 n_tuples) { return (n_tuples + WARP - 1) / WARP; }

// Number of a column's tuples that any of the documents needs: of its tests, and of its missing list.
struct Reach { u32 tests, missing; };
template <class Pivot, int DOCUMENTS>
__device__ __forceinline__ Reach reach(const Pivots<Pivot, DOCUMENTS>& pivots, const Run& run) {
    Reach far = {0, 0};
#pragma unroll
    for (int d = 0; d < DOCUMENTS; ++d) {
        if (pivots.of[d] == missing_pivot<Pivot>())
            far.missing = run.n_missing;
        else
            far.tests = max(far.tests, static_cast<u32>(pivots.of[d]));
    }
    return far;
}

// The rows of all columns, numbered through and cut into shares: warp w has [w * share, (w + 1) * share), up to n_rows.
struct Start { u32 column, row; };
struct Shares {
    u32 n_rows, share;
    Start start[1024 / WARP];  // one per warp
};

// Run by the first warp.
template <class Pivot, int DOCUMENTS>
__device__ __forceinline__ void cut_rows(const Pivots<Pivot, DOCUMENTS>* pivots, const Run* runs, u32 n_columns, Shares* shares) {
    const auto rows = [&](u32 column) -> u32 {
        if (column >= n_columns) return 0;
        const Reach far = reach(pivots[column], runs[column]);
        return rows_of(far.tests) + rows_of(far.missing);
    };
    u32 n_rows = 0;
    for (u32 column = threadIdx.x; column < n_columns + threadIdx.x; column += WARP) n_rows += rows(column);
    n_rows = last_lane(warp_scan(n_rows));
    const u32 n_warps = blockDim.x / WARP;
    const u32 share = max(1u, (n_rows + n_warps - 1) / n_warps);
    u32 before = 0;
#pragma unroll 1
    for (u32 column = threadIdx.x; column < n_columns + threadIdx.x; column += WARP) {
        const u32 mine = rows(column);
        const u32 end = before + warp_scan(mine);
        const u32 begin = end - mine;
#pragma unroll 1
        for (u32 warp = (begin + share - 1) / share; warp * share < end; ++warp) shares->start[warp] = {column, warp * share - begin};
        before = last_lane(end);
    }
    if (threadIdx.x == 0) {
        shares->n_rows = n_rows;
        shares->share = share;
    }
}

// How many of a column's tuples each document needs, fewest first once sorted; a limit's lowest bits hold the document's number.
template <int DOCUMENTS>
struct Limits {
    static_assert(DOCUMENTS == 1 || DOCUMENTS == 4, "the order of four");
    static constexpr int BITS = DOCUMENTS == 1 ? 0 : 2;
    u32 limit[DOCUMENTS];

    __device__ __forceinline__ void set(int d, u32 n) { limit[d] = n << BITS | d; }
    __device__ __forceinline__ u32 tuples(int k) const { return limit[k] >> BITS; }
    // Bytes from the first document's words to the k-th's.
    template <class Word>
    __device__ __forceinline__ u32 offset(int k) const {
        return (limit[k] & (DOCUMENTS - 1)) * (WARP * sizeof(Word));
    }
    __device__ __forceinline__ void order(int i, int j) {
        const u32 less = min(limit[i], limit[j]);
        limit[j] = max(limit[i], limit[j]);
        limit[i] = less;
    }
    __device__ __forceinline__ void sort() {
        if (DOCUMENTS == 1) return;
        order(0, 1);
        order(2, 3);
        order(0, 2);
        order(1, 3);
        order(1, 2);
    }
};

// Applies rows of the tuples from `first` on: skips `skip` rows, then applies at most `left`, and updates both counts.
template <class Word, int DOCUMENTS>
__device__ __forceinline__ void clear_rows(Tuples<Word> tuples, int first, Limits<DOCUMENTS> limits, u32& skip, int& left,
                                           Word* leafindexes) {
    limits.sort();
    const u32 length = limits.tuples(DOCUMENTS - 1);
    const u32 n_rows = rows_of(length);
    if (skip >= n_rows) {
        skip -= n_rows;
        return;
    }
    const u32 n = min(n_rows - skip, static_cast<u32>(left));
    const u32 end = min(length, (skip + n) * WARP);
    u32 i = skip * WARP + threadIdx.x % WARP;
    const u16* slot = tuples.slot + first + i;
    const Word* mask = tuples.mask + first + i;
    u32 offset[DOCUMENTS];
#pragma unroll
    for (int k = 0; k < DOCUMENTS; ++k) offset[k] = limits.template offset<Word>(k);
    // The loops test no documents' limits: loop k ends at the k-th smallest limit, and serves the documents from the k-th on.
#pragma unroll
    for (int k = 0; k < DOCUMENTS; ++k) {
        const u32 stop = min(end, limits.tuples(k));
#pragma unroll 2
        for (; i < stop; i += WARP, slot += WARP, mask += WARP) {
            Word* word = leafindexes + *slot;
            const Word bits = *mask;
#pragma unroll
            for (int j = k; j < DOCUMENTS; ++j)  // k == 0: all documents, in their own order, so offsets are constants
                atomicAnd(k == 0 ? word + j * WARP : reinterpret_cast<Word*>(reinterpret_cast<char*>(word) + offset[j]), bits);
        }
    }
    left -= n;
    skip = 0;
}

// Fills the tree block's leafindexes for the thread block's documents. Takes 8 bytes per warp and 8 more of its scratch.
// Ends with a barrier, after which every thread may read every word and reuse the scratch.
template <int DOCUMENTS, class Pivot, class Word, bool MANY, int STRIDE>
__device__ __forceinline__ void compute_masks(const Pivot* all_pivots, u32 n_columns, Tuples<Word> tuples,
                                              const TreeBlock<Word, MANY, STRIDE>& block) {
    struct __align__(16) Ones { u32 word[4]; };
    Ones* ones = reinterpret_cast<Ones*>(block.leafindexes);
    for (u32 i = threadIdx.x; i < words_of<STRIDE>(block.n_slots) * sizeof(Word) / sizeof(Ones); i += blockDim.x)
        ones[i] = {{~0u, ~0u, ~0u, ~0u}};

    const i64 group = static_cast<i64>(blockIdx.y) * gridDim.x + blockIdx.x;
    const auto* pivots = reinterpret_cast<const Pivots<Pivot, DOCUMENTS>*>(all_pivots) + group * n_columns;
    const Run* runs = tuples.runs + static_cast<i64>(blockIdx.y) * n_columns;
    Shares* shares = static_cast<Shares*>(block.scratch);
    if (threadIdx.x < WARP) cut_rows(pivots, runs, n_columns, shares);
    __syncthreads();

    const u32 warp = threadIdx.x / WARP;
    int left = min(static_cast<int>(shares->share), static_cast<int>(shares->n_rows - warp * shares->share));
    if (left > 0) {
        const Start start = shares->start[warp];
        const auto* pivot = pivots + start.column;
        const Run* run = runs + start.column;
        u32 skip = start.row;
#pragma unroll 1
        for (; left > 0; ++pivot, ++run) {
            const Pivots<Pivot, DOCUMENTS> of = *pivot;
            Limits<DOCUMENTS> limits;
            bool any_missing = false;
#pragma unroll
            for (int d = 0; d < DOCUMENTS; ++d) {
                const bool is_missing = of.of[d] == missing_pivot<Pivot>();
                limits.set(d, is_missing ? 0 : of.of[d]);
                any_missing |= is_missing;
            }
            clear_rows(tuples, run->tests, limits, skip, left, block.leafindexes);
            if (!any_missing || left == 0) continue;
#pragma unroll
            for (int d = 0; d < DOCUMENTS; ++d) limits.set(d, of.of[d] == missing_pivot<Pivot>() ? run->n_missing : 0);
            clear_rows(tuples, run->missing, limits, skip, left, block.leafindexes);
        }
    }
    __syncthreads();
}
