// rank_documents: documents as the caller holds them -> bit planes of their ranks, bit 0 first, then the mark of missing values.
//
//   parallel_block foreach (1,024 documents, 8 columns):
//       shared <- the columns' thresholds, as many as fit
//       foreach 32 of the documents:
//           tile[column][document] <- documents, along their smaller stride; barrier
//           parallel_warp foreach column; parallel_lane foreach document:
//               rank <- binary search: how many of the column's thresholds are < x; all ones where x is missing
//               parallel_lane foreach bit of the ranks: words[bit][of the 32 documents] <- ballot
//       planes[tile][plane][word] <- words
#include "reading.cuh"
#include "warp.cuh"

enum { COLUMNS = 8, WORDS = 32, PITCH = 36 };  // PITCH: writes and reads of a tile of float32 meet every bank once

// How many of `length` thresholds, one at least, are below x: a bit of the rank a step, the same steps in all lanes.
template <class Value>
__device__ __forceinline__ u32 rank_of(Value x, const Value* threshold, u32 length) {
    u32 rank = 0;
#pragma unroll 1
    for (u32 bit = 0x80000000u >> __clz(static_cast<int>(length)); bit; bit >>= 1)
        if (rank + bit <= length && threshold[rank + bit - 1] < x) rank += bit;
    return rank;
}

// Launch: 256 threads, blocks (all tiles' 1,024 documents, 8 columns). Dynamic shared memory: tiles [2][8][PITCH] where BY_ROW, room for
// n_staged thresholds, then 33 words for each plane of 8 columns. `words` is those of a tile: 32, or 64.
template <class Input, class Value, bool BY_ROW>
__global__ void __launch_bounds__(COLUMNS* WARP)
    rank_documents(const Input* documents, i64 document_stride, i64 feature_stride, int n_documents, int n_columns, const int* feature,
                   const u8* routing, const int* set_offsets, const u32* set_words, const int* offsets, const Value* thresholds,
                   const int* plane_offsets, int n_staged, int words, u32* planes) {
    DYNAMIC_SHARED(shared);
    const Documents<Input> given = {documents, document_stride, feature_stride, feature, routing, set_offsets, set_words};
    const int lane = threadIdx.x % WARP, first_column = blockIdx.y * COLUMNS, end_column = min(first_column + COLUMNS, n_columns);
    Value* tiles = reinterpret_cast<Value*>(shared);
    Value* staged = tiles + (BY_ROW ? 2 * COLUMNS * PITCH : 0);
    u32* found = reinterpret_cast<u32*>(staged + n_staged);

    const int first_threshold = offsets[first_column];
    const int here = min(offsets[end_column] - first_threshold, n_staged);
    for (int i = threadIdx.x; i < here; i += blockDim.x) staged[i] = thresholds[first_threshold + i];
    __syncthreads();

    const int column = first_column + static_cast<int>(threadIdx.x / WARP);
    const bool there = column < n_columns;
    const int begin = there ? offsets[column] : 0, end = there ? offsets[column + 1] : 0;
    const Value* threshold = end - first_threshold <= here ? staged + (begin - first_threshold) : thresholds + begin;
    const int first_plane = plane_offsets[first_column];
    const int plane = there ? plane_offsets[column] : 0;
    const int n_planes = there ? plane_offsets[column + 1] - plane : 0;
    const u32 missing = (1u << n_planes) - 1;  // above all thresholds, and marked where tests ask

    const int first_document = blockIdx.x * (WORDS * WARP);
    const int n_words = min(static_cast<int>(WORDS), (n_documents - first_document + WARP - 1) / WARP);
#pragma unroll 1
    for (int word = 0; word < n_words; ++word) {
        const int start = first_document + word * WARP;
        Value x = 0;
        if (BY_ROW) {  // neighbouring threads read neighbouring columns
            Value* tile = tiles + word % 2 * (COLUMNS * PITCH);
            const int document = start + static_cast<int>(threadIdx.x / COLUMNS);
            const int of = threadIdx.x % COLUMNS;
            if (document < n_documents && first_column + of < n_columns)
                tile[of * PITCH + threadIdx.x / COLUMNS] = given.template read<Value>(document, first_column + of);
            __syncthreads();
            if (there && start + lane < n_documents) x = tile[threadIdx.x / WARP * PITCH + lane];
        } else if (there && start + lane < n_documents) {
            x = given.template read<Value>(start + lane, column);
        }
        const u32 code = !there ? 0 : x == x ? rank_of(x, threshold, static_cast<u32>(end - begin)) : missing;
        u32 mine = 0;
#pragma unroll 1
        for (int bit = 0; bit < n_planes; ++bit) {
            const u32 ballot = __ballot_sync(ALL_LANES, code >> bit & 1);
            if (lane == bit) mine = ballot;
        }
        if (lane < n_planes) found[(plane - first_plane + lane) * (WORDS + 1) + word] = mine;
    }
    __syncthreads();
    const int all_planes = plane_offsets[n_columns];
    const i64 first_word = static_cast<i64>(blockIdx.x) * WORDS;
    u32* out = planes + (first_word / words * all_planes + first_plane) * words + first_word % words;
    for (int i = threadIdx.x; i < (plane_offsets[end_column] - first_plane) * WORDS; i += blockDim.x)
        out[i / WORDS * words + i % WORDS] = i % WORDS < n_words ? found[i / WORDS * (WORDS + 1) + i % WORDS] : 0;
}
