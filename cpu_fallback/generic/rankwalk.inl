// rankwalk: few documents through twelve trees side by side; a step is a look-up, an addition and a shift.
//
//   codes: for each column: rank = number of its thresholds below the value, counted in whole blocks, then within one
//          for each entry: code[entry] = min(max(rank - first of entry, 0), 255) (missing: 0 or 255)
//   walks: for each group of twelve trees: at = their roots
//              once for each level of the deepest tree: at += distance of (items[at] + code[entry of items[at]])
//              leaf[tree] = label of items[at]
#pragma once
#include <cstdint>

#include "jumps.inl"
#include "layout/rankwalk.hpp"

namespace gpuqs {
namespace {

template <class Value> const Value* thresholds_of(const RankWalkLayout& layout);
template <> const float* thresholds_of<float>(const RankWalkLayout& layout) { return layout.threshold32; }
template <> const double* thresholds_of<double>(const RankWalkLayout& layout) { return layout.threshold64; }

template <class Value> const ThresholdBlocks<Value>& blocks_of(const RankWalkLayout& layout);
template <> const ThresholdBlocks<float>& blocks_of<float>(const RankWalkLayout& layout) { return layout.blocks32; }
template <> const ThresholdBlocks<double>& blocks_of<double>(const RankWalkLayout& layout) { return layout.blocks64; }

// How many of the thresholds in n blocks lie below x.
template <class Value> int64_t count_below(const Value* threshold, int64_t n, Value x) {
    const Value* from = threshold;
    for (; n > 1; n -= n / 2)
        if (from[n / 2 * kBlockThresholds - 1] < x) from += n / 2 * kBlockThresholds;
    return from - threshold + Jumps::below(from, x);
}

inline int32_t byte_of(const RankEntry& entry, int32_t rank) {
    const int32_t above = rank - entry.first;
    return rank < 0 ? (entry.nan_left ? 0 : 255) : above < 0 ? 0 : above > 255 ? 255 : above;
}

// Writes the ranks of n documents, x[document][column], to `rank` of the same shape; -1: missing.
template <class Value> void rank_rows(const RankWalkLayout& layout, const Value* x, int n, int32_t* rank) {
    const ThresholdBlocks<Value>& blocks = blocks_of<Value>(layout);
    const int64_t n_columns = layout.columns.n, end = n * n_columns;
    for (int c = 0; c < n_columns; c++) {  // all blocks are found and prefetched before any is read
        const int64_t n_samples = layout.sample_block[c + 1] - layout.sample_block[c];
        const Value* sample = blocks.sample + layout.sample_block[c] * kBlockThresholds;
        for (int64_t at = c; at < end; at += n_columns) {
            const int64_t block = count_below(sample, n_samples, x[at]);
            __builtin_prefetch(blocks.threshold + (layout.block[c] + block) * kBlockThresholds);
            rank[at] = static_cast<int32_t>(block);
        }
    }
    for (int c = 0; c < n_columns; c++) {
        for (int64_t at = c; at < end; at += n_columns) {
            const Value value = x[at];
            const int64_t first = int64_t{rank[at]} * kBlockThresholds;
            const int below = Jumps::below(blocks.threshold + layout.block[c] * kBlockThresholds + first, value);
            rank[at] = value != value ? -1 : static_cast<int32_t>(first) + below;
        }
    }
}

// Writes the codes for walks of n documents, x[document][column], to code[document][entry]; rank is scratch of x's shape.
template <class Value> void rank_codes(const RankWalkLayout& layout, const Value* x, int n, int32_t* rank, uint32_t* code) {
    rank_rows(layout, x, n, rank);
    for (int d = 0; d < n; d++, rank += layout.columns.n, code += layout.n_entries) {
        code[0] = 0;
        for (int e = 1; e < layout.n_entries; e++)
            code[e] = static_cast<uint32_t>(byte_of(layout.entries[e], rank[layout.entries[e].column])) << kPositionShift;
    }
}

// Cache lines prefetched with every step: a group of typical trees has about this many per step.
constexpr int kAhead = 6;

// Not inlined, so that `at` stays in registers. end[k] is the item at which walk k ends. ahead: prefetches lines from `next` on, a
// few with each step, because all at once would be more than a core can wait for; returns the first line that it has not
// prefetched.
template <bool ahead>
__attribute__((noinline)) const uint32_t* walk_group(const uint32_t* items, const uint32_t* code, int steps, const uint32_t* root,
                                                     uint32_t* end, const uint32_t* next) {
    const uint32_t* at[kRankWalks];
    for (int k = 0; k < kRankWalks; k++) at[k] = items + root[k];
    for (; steps > 0; steps--) {
#pragma GCC unroll 16
        for (int k = 0; k < kRankWalks; k++) {
            if (ahead && k % (kRankWalks / kAhead) == 0) {
                __builtin_prefetch(next + k / (kRankWalks / kAhead) * kItemsOfLine);
                asm volatile("");  // otherwise compilers move all prefetches together
            }
            const uint32_t item = *at[k];
            at[k] += (item + code[item & kEntryMask]) >> kDistanceShift;
        }
        if (ahead) next += kAhead * kItemsOfLine;
    }
    for (int k = 0; k < kRankWalks; k++) end[k] = *at[k];
    return next;
}

// Groups lie in memory in the order in which they are walked: while the first document walks one, the next is prefetched.
void rankwalk(const RankWalkLayout& layout, int block, const uint32_t* code, int n, int stride, uint8_t* leaf) {
    const int first = layout.block_offsets[block] / kRankWalks, n_trees = layout.block_offsets[block + 1] - layout.block_offsets[block];
    const int n_groups = (layout.block_offsets[layout.n_blocks] + kRankWalks - 1) / kRankWalks;
    const uint32_t* items = layout.items;
    for (int g = first; g < first + (n_trees + kRankWalks - 1) / kRankWalks; g++) {
        const int32_t* tree = layout.tree + static_cast<int64_t>(g) * kRankWalks;
        const uint32_t* root = layout.root + static_cast<int64_t>(g) * kRankWalks;
        for (int d = 0; d < n; d++) {
            const uint32_t* of_document = code + static_cast<int64_t>(d) * layout.n_entries;
            uint32_t end[kRankWalks];
            if (d == 0 && g + 1 < n_groups) {
                const uint32_t* next = items + layout.group_items[g + 1];
                next = walk_group<true>(items, of_document, layout.steps[g], root, end, next);
                for (; next < items + layout.group_items[g + 2]; next += kItemsOfLine) __builtin_prefetch(next);
            } else {
                walk_group<false>(items, of_document, layout.steps[g], root, end, nullptr);
            }
            for (int k = 0; k < kRankWalks && tree[k] >= 0; k++)
                leaf[static_cast<int64_t>(tree[k]) * stride + d] = static_cast<uint8_t>(end[k] >> kPositionShift);
        }
    }
}

}  // namespace
}  // namespace gpuqs
