// rankwalk: few documents through sixteen trees side by side; a step is a look-up, an addition and a shift.
//
//   codes: for each column: rank = number of its thresholds below the value
//          for each entry: code[entry] = min(max(rank - first of entry, 0), 255) (missing: 0 or 255)
//   walks: for each group of sixteen trees: at = their roots
//              as often as the deepest is deep: at += distance of (word[at] + code[entry of word[at]])
//              leaf[tree] = position of word[at]
#pragma once
#include <cstdint>

#include "layout/rankwalk.hpp"

namespace gpuqs {
namespace {

template <class Value> const Value* thresholds_of(const RankWalkModel& model);
template <> const float* thresholds_of<float>(const RankWalkModel& model) { return model.threshold32; }
template <> const double* thresholds_of<double>(const RankWalkModel& model) { return model.threshold64; }

// Counting is sooner done than searching as far as registers compare many at once.
constexpr int64_t kCounted = 64;

template <class Value> int count_below(const Value* threshold, int64_t n, Value x) {
    const Value* from = threshold;
    for (; n > kCounted; n -= n / 2)
        if (from[n / 2 - 1] < x) from += n / 2;
    int count = static_cast<int>(from - threshold);
    for (int64_t i = 0; i < n; i++) count += from[i] < x;
    return count;
}

// Codes of n documents, x[column][stride]; rank is scratch, [n][columns].
template <class Value>
void rank_codes(const RankWalkModel& model, const Value* x, int n, int stride, int32_t* rank, uint32_t* code) {
    const int n_columns = model.columns.n;
    for (int c = 0; c < n_columns; c++) {
        const Value* threshold = thresholds_of<Value>(model) + model.offsets[c];
        for (int d = 0; d < n; d++) {
            const Value value = x[static_cast<int64_t>(c) * stride + d];
            const bool missing = value != value;
            rank[d * n_columns + c] = missing ? -1 : count_below(threshold, model.offsets[c + 1] - model.offsets[c], value);
        }
    }
    for (int d = 0; d < n; d++, code += model.n_entries, rank += n_columns) {
        code[0] = 0;
        for (int e = 1; e < model.n_entries; e++) {
            const RankEntry entry = model.entries[e];
            const int32_t of_column = rank[entry.column], above = of_column - entry.first;
            const int32_t byte = of_column < 0 ? (entry.nan_left ? 0 : 255) : above < 0 ? 0 : above > 255 ? 255 : above;
            code[e] = static_cast<uint32_t>(byte) << kPositionShift;
        }
    }
}

// A function of its own, for the registers: at stays in them. Leaves the words in which the walks end.
__attribute__((noinline)) void walk_group(const uint32_t* word, const uint32_t* code, int steps, const uint32_t* root, uint32_t* end) {
    uint32_t at[kRankWalks];
    for (int k = 0; k < kRankWalks; k++) at[k] = root[k];
    for (; steps > 0; steps--) {
#pragma GCC unroll 16
        for (int k = 0; k < kRankWalks; k++) {
            const uint32_t node = word[at[k]];
            at[k] += (node + code[node & kEntryMask]) >> kDistanceShift;
        }
    }
    for (int k = 0; k < kRankWalks; k++) end[k] = word[at[k]];
}

void rank_walk(const RankWalkModel& model, int block, const uint32_t* code, int n, int stride, uint8_t* leaf) {
    const int first = model.block_offsets[block] / kRankWalks, n_trees = model.block_offsets[block + 1] - model.block_offsets[block];
    for (int g = first; g < first + (n_trees + kRankWalks - 1) / kRankWalks; g++) {
        const int32_t* tree = model.tree + static_cast<int64_t>(g) * kRankWalks;
        const uint32_t* root = model.root + static_cast<int64_t>(g) * kRankWalks;
        for (int d = 0; d < n; d++) {
            uint32_t end[kRankWalks];
            walk_group(model.word, code + static_cast<int64_t>(d) * model.n_entries, model.steps[g], root, end);
            for (int k = 0; k < kRankWalks && tree[k] >= 0; k++)
                leaf[static_cast<int64_t>(tree[k]) * stride + d] = static_cast<uint8_t>(end[k] >> kPositionShift);
        }
    }
}

}  // namespace
}  // namespace gpuqs
