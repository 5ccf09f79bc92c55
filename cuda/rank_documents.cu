// rank_documents: documents as the caller holds them -> bit planes of their ranks, bit 0 first, then the missing-value marks.
//
//   parallel_block foreach (up to 1,024 documents, 8 columns); parallel_warp foreach column:
//       shared <- the column's levels of thresholds, as many as fit
//       foreach batch of 4 x 32 documents (2 x 32 if tests are in doubles), while the next one is loaded:
//           foreach level of the column; parallel_lane foreach document:
//               above <- whether the threshold that the document's answers so far lead to is < x, or x is missing
//               words[bit of the level][32 documents] <- ballot of above
//       planes[tile][plane][word] <- words
#include "reading.cuh"
#include "warp.cuh"
#include "words.cuh"

// UNROLLED: levels in the unrolled loop; shared memory has room for them all. PITCH: Lines of a tile's column, without bank conflicts.
enum { COLUMNS = 8, WORDS = 32, UNROLLED = 8, PITCH = WARP + 1 };
// Flags of a column, above the bits of its levels. MARKED: missing values are marked. SPECIAL: values go through as_read (reading.cuh).
constexpr u32 MARKED = 1u << 31, SPECIAL = 1u << 30;

// A lane's values of a batch, read or written in one access to shared memory.
template <class Value>
struct __align__(16) Line {
    enum { SIZE = 16 / sizeof(Value) };
    Value of[SIZE];
};

// A level's answers: whether its threshold is below x, or x is missing. If so, `at` moves on by `bytes`.
template <int N, class Value>
__device__ __forceinline__ Words<N> answers(const Value (&threshold)[N], const Line<Value>& x, Place (&at)[N], u32 bytes) {
    Words<N> votes;
#pragma unroll
    for (int i = 0; i < N; ++i) {
        const bool above = !(threshold[i] >= x.of[i]);
        if (above) at[i] += bytes;
        votes.of[i] = __ballot_sync(ALL_LANES, above);
    }
    return votes;
}

// Launch: 256 threads, a block for each (32 * block_words documents, 8 columns), blocks of the same documents next to each other.
// block_words is 32, or 4 to 16 if there would be few blocks. Dynamic shared memory: tiles [2][8][PITCH] of Lines; n_staged
// thresholds for each of 8 columns (whole levels: all that a column has, or at least UNROLLED of them); 32 words for each plane of
// the 8 columns. `words`: words of a tile's plane, 32 or 64. level_offsets, levels: see level_tables in gpuqs/layout/ranks.py; a
// column has 2^n_bits - 1 thresholds.
template <class Input, class Value, bool BY_ROW>
__global__ void __launch_bounds__(COLUMNS* WARP, 5)
    rank_documents(const Input* documents, i64 document_stride, i64 feature_stride, int n_documents, int n_columns, const int* feature,
                   const u8* routing, const int* set_offsets, const u32* set_words, const int* level_offsets, const Value* levels,
                   const int* plane_offsets, int n_staged, int block_words, int words, u32* planes) {
    enum { N = Line<Value>::SIZE, BATCH = N * WARP };
    DYNAMIC_SHARED(shared);
    const Documents<Input> given = {documents, document_stride, feature_stride, feature, routing, set_offsets, set_words};
    const u32 n_groups = (n_columns + COLUMNS - 1) / COLUMNS, block = blockIdx.x / n_groups;
    const int lane = kept(threadIdx.x % WARP), warp = threadIdx.x / WARP;
    const int first_column = blockIdx.x % n_groups * COLUMNS, end_column = min(first_column + COLUMNS, n_columns);
    const int first_document = block * block_words * WARP, n_here = min(block_words * WARP, n_documents - first_document);

    Line<Value>* tiles = reinterpret_cast<Line<Value>*>(shared);
    Value* staged = reinterpret_cast<Value*>(tiles + 2 * COLUMNS * PITCH) + warp * n_staged;
    u32* found = reinterpret_cast<u32*>(staged + (COLUMNS - warp) * n_staged);

    const int column = first_column + warp;
    const bool there = column < n_columns;
    const int begin = there ? level_offsets[column] : 0, n_thresholds = there ? level_offsets[column + 1] - begin : 0;
    const int n_bits = __popc(n_thresholds);
    const int first_plane = plane_offsets[first_column], plane = there ? plane_offsets[column] - first_plane : 0;
    const bool marked = there && plane_offsets[column + 1] - first_plane > plane + n_bits;
    const bool special = there && routing[column];
    // The same in all lanes. Bit k: the column has a level k.
    const u32 flags = uniform(n_thresholds | (marked ? MARKED : 0) | (special ? SPECIAL : 0), 1u << lane);

    // What a thread loads: neighbouring threads load neighbouring columns (BY_ROW) or documents.
    const int of = BY_ROW ? threadIdx.x % COLUMNS : warp, row = BY_ROW ? threadIdx.x / COLUMNS : lane;
    const i64 stride = WARP * document_stride;
    int left = first_column + of < n_columns ? n_here - row : 0;
    const char* from = left > 0 ? reinterpret_cast<const char*>(given.at(first_document + row, first_column + of)) : nullptr;
    Input next[N] = {};
    const auto load = [&] {
#pragma unroll
        for (int i = 0; i < N; ++i, from = kept_global(from + stride))
            if (left > i * WARP) next[i] = *reinterpret_cast<const Input*>(from);
        left -= BATCH;
    };
    load();
    for (int i = lane; i < min(n_thresholds, n_staged); i += WARP) staged[i] = levels[begin + i];
    __syncwarp();

    Line<Value>*written = kept_shared(tiles + of * PITCH + row), *read = kept_shared(tiles + warp * PITCH + lane);
    u32* out = kept_shared(found + (plane + n_bits) * WORDS);
    const Place first = kept(place_of(staged));
#pragma unroll 1
    for (int document = 0, turn = 0; document < n_here; document += BATCH, turn ^= COLUMNS * PITCH) {
        Line<Value> x;
#pragma unroll
        for (int i = 0; i < N; ++i) x.of[i] = static_cast<Value>(next[i]);
        written[turn] = x;
        if (BY_ROW) __syncthreads();
        load();
        if (flags & SPECIAL) {
#pragma unroll 1
            for (int i = 0; i < N; ++i) read[turn].of[i] = as_read(read[turn].of[i], given.reading(column));
        }
        x = read[turn];
        if (flags & MARKED) {
            Words<N> votes;
#pragma unroll
            for (int i = 0; i < N; ++i) votes.of[i] = __ballot_sync(ALL_LANES, x.of[i] != x.of[i]);
            if (lane == 0) *reinterpret_cast<Words<N>*>(out) = votes;
        }
        Place at[N];  // first + sizeof(Value) * index of the next threshold in its level; bit k of the index: level k's answer
#pragma unroll
        for (int i = 0; i < N; ++i) at[i] = first;
#pragma unroll
        for (int level = 0; level < UNROLLED; ++level) {
            if (!(flags >> level & 1)) break;
            Value threshold[N];
#pragma unroll
            for (int i = 0; i < N; ++i) threshold[i] = pointer_to<Value>(at[i])[(1 << level) - 1];
            const Words<N> votes = answers(threshold, x, at, static_cast<u32>(sizeof(Value)) << level);
            if (lane == 0) *reinterpret_cast<Words<N>*>(out - (level + 1) * WORDS) = votes;
        }
#pragma unroll 1
        for (int level = UNROLLED; flags >> level & 1; ++level) {
            const Value* table = (2 << level) - 1 <= n_staged ? staged : levels + begin;
            const char* asked = reinterpret_cast<const char*>(table + (1 << level) - 1);
            Value threshold[N];
#pragma unroll
            for (int i = 0; i < N; ++i) threshold[i] = *reinterpret_cast<const Value*>(asked + (at[i] - first));
            const Words<N> votes = answers(threshold, x, at, static_cast<u32>(sizeof(Value)) << level);
            if (lane == 0) *reinterpret_cast<Words<N>*>(out - (level + 1) * WORDS) = votes;
        }
        out += N;
    }
    __syncthreads();
    const int all_planes = plane_offsets[n_columns], n_words = (n_here + WARP - 1) / WARP, words_before = block * block_words;
    u32* rows = planes + (static_cast<i64>(words_before / words) * all_planes + first_plane) * words + words_before % words;
    const int word = threadIdx.x % block_words, at_once = blockDim.x / block_words;
    for (int i = threadIdx.x / block_words; i < plane_offsets[end_column] - first_plane; i += at_once)
        rows[i * words + word] = word < n_words ? found[i * WORDS + word] : 0;
}
