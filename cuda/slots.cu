// slots: rows -> planes of the exit leaves' numbers, every S_j in a slot of shared memory; no branch depends on a document or a node.
//
//   parallel_block foreach (tile of documents, a few trees):
//       parallel_warp foreach tree; parallel_lane foreach its words of documents:
//           foreach node, parents first:
//               S_j <- S_end | (S_first & row): whether the exit leaf is j or further right
//               plane <- plane ^ S_j: bit k of the number in Gray code is the XOR of S_j for odd multiples j of 2^k
//           planes[tile][tree] <- planes
#include "words.cuh"

// As in gpuqs/layout/slots.py.
struct __align__(8) Node {
    u32 row;
    u8 first, end, own, plane;
};
enum { ONES = 0, ZEROS = 1, NODES_TOGETHER = 8 };

// Launch: up to 128 threads, blocks (groups of trees, tiles); a tile's blocks run together, while its rows are in the L2 cache.
// Dynamic shared memory: n_slots + n_planes rows of words per warp.
// The rows of eight nodes are loaded together, so the register limit must leave room for them.
template <int W>
__global__ void __launch_bounds__(128, 8)
    slots(const u32* rows, int n_rows, const u64* nodes, const int* node_offsets, int n_slots, int n_trees, int n_planes, u32* planes) {
    DYNAMIC_SHARED(shared);
    const int n_warps = blockDim.x / WARP, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    Words<W>* slot = reinterpret_cast<Words<W>*>(shared) + warp * (n_slots + n_planes) * WARP + lane;
    slot[ONES * WARP] = all<W>(~0u);
    slot[ZEROS * WARP] = all<W>(0);
    const Words<W>* row = row_of<W>(rows, blockIdx.y, n_rows, 0);
#pragma unroll 1
    for (int tree = blockIdx.x * n_warps + warp; tree < n_trees; tree += gridDim.x * n_warps) {
        Words<W>* plane = slot + n_slots * WARP;
#pragma unroll 1
        for (int k = 0; k < n_planes; ++k) plane[k * WARP] = all<W>(0);
        const Node* node = reinterpret_cast<const Node*>(nodes) + node_offsets[tree];
        const Node* end = reinterpret_cast<const Node*>(nodes) + node_offsets[tree + 1];
#pragma unroll 1
        for (; node < end; node += NODES_TOGETHER) {
            Node of[NODES_TOGETHER];
            Words<W> word[NODES_TOGETHER];
#pragma unroll
            for (int i = 0; i < NODES_TOGETHER; ++i) {
                of[i] = node[i];
                word[i] = row[of[i].row * static_cast<i64>(WARP)];
            }
#pragma unroll
            for (int i = 0; i < NODES_TOGETHER; ++i) {
                const Words<W> s_first = slot[of[i].first * WARP], s_end = slot[of[i].end * WARP];
                Words<W>*own = slot + of[i].own * WARP, *into = slot + of[i].plane * WARP;
                Words<W> s, bits = *into;
#pragma unroll
                for (int w = 0; w < W; ++w) {
                    s.of[w] = s_end.of[w] | (s_first.of[w] & word[i].of[w]);
                    bits.of[w] ^= s.of[w];
                }
                *own = s;
                *into = bits;
            }
        }
        Words<W>* out = row_of<W>(planes, static_cast<i64>(blockIdx.y) * n_trees + tree, n_planes, 0);
#pragma unroll 1
        for (int k = 0; k < n_planes; ++k) out[k * WARP] = plane[k * WARP];
    }
}
