// steps: rows -> planes of the exit leaves' numbers. Computes the boundaries S_1, S_2, ... of each tree from left to right: a is the
// last one, top closes the current subtree, and those that close the subtrees around it wait on a stack.
//
//   parallel_block foreach (tile of documents, a few trees):
//       parallel_warp foreach of its trees; parallel_lane foreach its words of documents:
//           foreach step j: if its flags say so, pop top; once for each node that pushes: push top, top <- top | (a & row)
//               a <- top | (a & row): this is S_j
//               plane <- plane ^ a: bit k of the number in Gray code is the XOR of S_j for odd multiples j of 2^k
//           planes[tile][tree] <- planes
#include "warp.cuh"
#include "words.cuh"

// As in gpuqs/layout/steps.py. A page: rows [groups][STEPS], flags [groups][2], rows of the nodes that push, and the row of the first
// node that pushes in a later page.
enum { STEPS = 8, PUSHES = 0x3f, MARK = 0x40, POP = 0x80, PAGE = 128, LOW_PLANES = 3 };
enum { ENDS_PAGE = MARK, ENDS_TREE = MARK << 8, LEVELS = MARK << 16 };  // bits of the first word of a group's flags

// From sm_100 on, a vote is in a uniform register, by which choosing an address takes one instruction more than by the word that was
// voted on. Compilers also recompute the lane's bit for each group in four instructions; reading %lanemask_eq takes one.
// Earlier devices keep the code that was fastest on an H100.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1000
constexpr bool BY_WORD = true;
__device__ __forceinline__ u32 lane_bit() {
    u32 bit;
    asm("mov.u32 %0, %%lanemask_eq;" : "=r"(bit));
    return bit;
}
#else
constexpr bool BY_WORD = false;
__device__ __forceinline__ u32 lane_bit() { return kept(1u << threadIdx.x % WARP); }
#endif

// The boundary inside a subtree that S_first opens and S_end closes.
template <int W>
__device__ __forceinline__ Words<W> inside(const Words<W>& end, const Words<W>& first, const Words<W>& row) {
    Words<W> s;
#pragma unroll
    for (int w = 0; w < W; ++w) s.of[w] = end.of[w] | (first.of[w] & row.of[w]);
    return s;
}
template <int W>
__device__ __forceinline__ void enter(Words<W>& plane, const Words<W>& s) {
#pragma unroll
    for (int w = 0; w < W; ++w) plane.of[w] ^= s.of[w];
}

// What a lane holds when the loop reaches group `number` of a tree, counted from 1. The last step gave S_j, j = 8 * (number - 1):
//
//   a                 S_j; at the start of the tree S_0, which is ones
//   top               the S that closes the innermost open subtree; at the start of the tree S_L, which is zeros
//   stack ... sp      the S that close the open subtrees around that one, innermost last; sp points just past them
//   step_row[i]       the words of the row of the group's step i
//   pushing           the words of the row of the next node that pushes, in this page or a later one
//   next_pushing      the row number of the node that pushes after that one, read at `pushed`
//   low[k]            plane k of the tree's leaf numbers, from its steps so far
//   high[k * WARP]    plane LOW_PLANES + k of the tree's leaf numbers
//   group, flagged    the row numbers and the flags of the group's steps, in the page `staged`
//   staged, coming    pages in shared memory: the current one, and the next
//   to_stage          the lane's part of the page after these, page number `page`; it may still be loading
//
// In an iteration, next and next_row are the `group` pointer and the row numbers of the following group, and `odd` collects what enters
// a plane. An oblivious tree's rows are the planes themselves; a, top and the stack stay as they are at its start.
//
// Launch: up to 128 threads, blocks (groups of trees, tiles); a tile's blocks run together, while its rows are in the L2 cache. Dynamic
// shared memory per warp: two pages, a stack of `depth` rows of words, and `n_high` rows: the planes above the third, and one more row
// for steps that enter no plane. A page has page_words words and up to `n_groups` groups; first_page: first page of each tree.
// Instructions issue in order, so nothing is used soon after it is loaded: pages are staged one ahead and loaded two ahead, the rows
// of steps are loaded eight ahead, those of nodes that push one ahead.
template <int W>
__global__ void __launch_bounds__(128, 8) steps(const u32* rows, int n_rows, const u32* pages, const int* first_page, int n_groups,
                                                int page_words, int depth, int n_trees, int n_planes, u32* planes) {
    DYNAMIC_SHARED(shared);
    const int n_warps = blockDim.x / WARP, warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int n_high = max(n_planes - LOW_PLANES, 0) + 1;
    const i64 place = blockIdx.x * n_warps + warp, places = static_cast<i64>(gridDim.x) * n_warps;
    int tree = static_cast<int>(n_trees * place / places);
    const int end = static_cast<int>(n_trees * (place + 1) / places);
    if (tree == end) return;

    u32* staged = reinterpret_cast<u32*>(shared) + warp * (2 * PAGE);
    u32* coming = staged + PAGE;
    Words<W>* stack = reinterpret_cast<Words<W>*>(shared + n_warps * (2 * PAGE * sizeof(u32))) + warp * (depth + n_high) * WARP + lane;
    Words<W>* high = kept_shared(stack + depth * WARP);
    const Words<W>* first_row = kept_global(row_of<W>(rows, blockIdx.y, n_rows, 0));
    const auto row = [&](u32 number) { return first_row[static_cast<u64>(number) * WARP]; };

    int page = first_page[tree];
    const int last_page = first_page[end] - 1;
    const bool carries = lane < page_words / 4;
    const auto load = [&](int s) {
        return reinterpret_cast<const uint4*>(pages + static_cast<i64>(min(s, last_page)) * page_words)[carries ? lane : 0];
    };
    reinterpret_cast<uint4*>(staged)[lane] = load(page);
    reinterpret_cast<uint4*>(coming)[lane] = load(page + 1);
    uint4 to_stage = load(page += 2);
    __syncwarp();

    const u32 own_bit = lane_bit();
    const u32 *group = staged, *flagged = staged + n_groups * STEPS, *pushed = staged + n_groups * (STEPS + 2);
    Words<W> step_row[STEPS], low[LOW_PLANES], a = all<W>(~0u), top = all<W>(0);
#pragma unroll
    for (int i = 0; i < STEPS; ++i) step_row[i] = row(group[i]);
#pragma unroll
    for (int k = 0; k < LOW_PLANES; ++k) low[k] = all<W>(0);
#pragma unroll 1
    for (int k = 0; k < n_high; ++k) high[k * WARP] = all<W>(0);
    Words<W> pushing = row(*pushed), *sp = stack;
    u32 next_pushing = *++pushed;
#pragma unroll 1
    for (int number = 1;; ++number) {
        const uint2 flag_words = *reinterpret_cast<const uint2*>(flagged);
        const u32 flags[2] = {uniform(flag_words.x, own_bit), uniform(flag_words.y, own_bit)};
        const u32 ends = (BY_WORD ? flag_words.x : flags[0]) & ENDS_PAGE;
        const u32* next = ends ? coming : group + STEPS;
        const uint4 r = reinterpret_cast<const uint4*>(next)[0], s = reinterpret_cast<const uint4*>(next)[1];
        const u32 next_row[STEPS] = {r.x, r.y, r.z, r.w, s.x, s.y, s.z, s.w};
        if (flags[0] & LEVELS) {
#pragma unroll
            for (int i = 0; i < STEPS; ++i) {
                const int k = (number - 1) * STEPS + i;
                if (k < LOW_PLANES && i < LOW_PLANES) low[i] = step_row[i];
                if (k >= LOW_PLANES && k < n_planes) high[(k - LOW_PLANES) * WARP] = step_row[i];
                step_row[i] = row(next_row[i]);
            }
        } else {
            Words<W> odd;
#pragma unroll
            for (int i = 0; i < STEPS; ++i) {
                const u32 flag = flags[i / 4] >> i % 4 * 8;
                if (flag & (POP | PUSHES)) {
                    const u32 pop = kept(flag & POP);  // masked once, for the test and the step back
                    if (pop) top = sp[-WARP];
                    sp = reinterpret_cast<Words<W>*>(reinterpret_cast<u8*>(sp) - pop * (WARP * sizeof(Words<W>) / POP));
#pragma unroll 1
                    for (u32 n = kept(flag & PUSHES); n; --n) {
                        *sp = top;
                        sp += WARP;
                        top = inside(top, a, pushing);
                        pushing = row(next_pushing);
                        next_pushing = *++pushed;
                    }
                }
                a = inside(top, a, step_row[i]);
                step_row[i] = row(next_row[i]);
                if (i % 4 == 0) odd = a;
                if (i % 4 == 2) {
                    enter(odd, a);
                    enter(low[0], odd);
                }
                if (i % 4 == 1) enter(low[1], a);
                if (i == 3) enter(low[2], a);
            }
            // kept(), or compilers turn this into a count of trailing zeros, with a special case for zero.
            Words<W>* plane = high + __popc(kept(static_cast<u32>(~number & (number - 1)))) * WARP;
            odd = *plane;
            enter(odd, a);
            *plane = odd;
        }
        group = next;
        flagged += 2;
        if (!(flags[0] & ENDS_PAGE)) continue;

        if (flags[0] & ENDS_TREE) {
            Words<W>* out = row_of<W>(planes, static_cast<i64>(blockIdx.y) * n_trees + tree, n_planes, 0);
#pragma unroll
            for (int k = 0; k < LOW_PLANES; ++k) {
                if (k < n_planes) store_for_later(out + k * WARP, low[k]);
                low[k] = all<W>(0);
            }
#pragma unroll 1
            for (int k = LOW_PLANES; k < n_planes; ++k) {
                store_for_later(out + k * WARP, high[(k - LOW_PLANES) * WARP]);
                high[(k - LOW_PLANES) * WARP] = all<W>(0);
            }
            a = all<W>(~0u);
            top = all<W>(0);
            sp = stack;
            number = 0;
            ++tree;
            if (page - 2 == last_page) return;
        }
        __syncwarp();
        if (carries) reinterpret_cast<uint4*>(staged)[lane] = to_stage;
        __syncwarp();
        to_stage = load(++page);
        coming = staged;
        staged = const_cast<u32*>(group);
        flagged = staged + n_groups * STEPS;
        pushed = staged + n_groups * (STEPS + 2);
        next_pushing = *++pushed;
    }
}
