// decode_predicates: bit planes of ranks -> rows, one word per predicate of a tree block and 32 documents.
//
//   parallel_block foreach (tile of documents, a few segments):
//       parallel_warp foreach segment (predicates of a column that share the high bits of the rank):
//           above, equal <- how the high bits of the documents' ranks compare; both 0 for missing values that go left
//           foreach predicate of the segment (its rank's low four bits: low):
//               rows[tile][predicate] <- above | (equal & (low bits > low)), negated where polarity says so
#include "words.cuh"

struct __align__(4) Segment {
    u32 row, plane;
    u8 n_bits, marked;
    u16 high, low, flip;
};

// For each of 32 documents: whether the number with bits x[3] ... x[0] is above `low`.
__device__ __forceinline__ u32 is_above(const u32 (&x)[4], int low) {
    const u32 any = x[3] | x[2], both = x[3] & x[2];
    const u32 above[] = {any, x[3], both, 0}, equal[] = {~any, x[2] & ~x[3], x[3] & ~x[2], both};
    const u32 above_low[] = {x[1] | x[0], x[1], x[1] & x[0], 0};
    return above[low / 4] | (equal[low / 4] & above_low[low % 4]);
}

// Launch: a multiple of 32 threads, blocks (groups of segments, tiles).
template <int W>
__global__ void __launch_bounds__(128, 8)
    decode_predicates(const u32* planes, int n_planes, const u32* segments, int n_segments, int n_rows, u32* rows) {
    enum { LOW_BITS = 4 };
    if (blockIdx.x == 0 && threadIdx.x < WARP) *row_of<W>(rows, blockIdx.y, n_rows, 0) = all<W>(0);
    const int n_warps = blockDim.x / WARP;
#pragma unroll 1
    for (int i = blockIdx.x * n_warps + threadIdx.x / WARP; i < n_segments; i += gridDim.x * n_warps) {
        const Segment segment = reinterpret_cast<const Segment*>(segments)[i];
        const Words<W>* plane = row_of<W>(planes, blockIdx.y, n_planes, segment.plane);
        Words<W> above = all<W>(0), equal = all<W>(~0u), low[LOW_BITS];
        if (segment.marked) {
            equal = plane[segment.n_bits * WARP];
#pragma unroll
            for (int w = 0; w < W; ++w) equal.of[w] = ~equal.of[w];
        }
#pragma unroll 1
        for (int bit = segment.n_bits - 1; bit >= LOW_BITS; --bit) {
            const Words<W> of = plane[bit * WARP];
            const u32 set = 0u - (segment.high >> (bit - LOW_BITS) & 1);
#pragma unroll
            for (int w = 0; w < W; ++w) {
                above.of[w] |= equal.of[w] & of.of[w] & ~set;
                equal.of[w] &= ~(of.of[w] ^ set);
            }
        }
#pragma unroll
        for (int bit = 0; bit < LOW_BITS; ++bit) low[bit] = bit < segment.n_bits ? plane[bit * WARP] : all<W>(0);
        Words<W>* row = row_of<W>(rows, blockIdx.y, n_rows, segment.row);
#pragma unroll
        for (int b = 0; b < 1 << LOW_BITS; ++b) {
            if (!(segment.low >> b & 1)) continue;
            const u32 flip = 0u - (segment.flip >> b & 1);
            Words<W> word;
#pragma unroll
            for (int w = 0; w < W; ++w) {
                const u32 x[] = {low[0].of[w], low[1].of[w], low[2].of[w], low[3].of[w]};
                word.of[w] = (above.of[w] | (equal.of[w] & is_above(x, b))) ^ flip;
            }
            *row = word;
            row += WARP;
        }
    }
}
