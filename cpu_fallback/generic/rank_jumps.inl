// rankwalk, few documents: all tests of some trees at once, then pointer jumping.
//
//   codes: ranks as for walks, byte[entry - 1]
//   for each word: right = bits (byte[entry of place] > position of place)
//                  next[place] = where the document goes on from there; the place itself if that is a leaf
//                  label[place] = the label of that leaf
//                  as often as the deepest tree needs: next[place] = next[next[place]], which doubles the steps
//                  for each tree in it: leaf[tree] = label[next[place of its root]]
//                  for a single document: sum += the value of the exit leaf in the tree kTreesLater before
#pragma once
#include <cstddef>
#include <cstdint>

#include "generic/rankwalk.inl"
#include "jumps.inl"
#include "layout/leaves.hpp"
#include "layout/rankwalk.hpp"

namespace gpuqs {
namespace {

// Codes of n documents, x[document][column], to code[document][kJumpEntries]; rank is scratch of x's shape. Bytes that no
// test reads stay as they are.
template <class Value> void jump_codes(const RankWalkLayout& layout, const Value* x, int n, int32_t* rank, uint8_t* code) {
    rank_rows(layout, x, n, rank);
    for (int d = 0; d < n; d++, rank += layout.columns.n, code += kJumpEntries)
        for (int e = 1; e < layout.n_entries; e++)
            code[e - 1] = static_cast<uint8_t>(byte_of(layout.entries[e], rank[layout.entries[e].column]));
}

// How many words ahead to prefetch (beyond the last one, too, which does no harm); more where prefetches go to the L2 cache.
constexpr int kWordsAhead = 16, kWordsAheadToL2 = 64;
// Up to this many documents prefetch only the records of their exit leaves. More prefetch the records of all leaves of a tree, if
// these are single numbers: that need not wait for the exit leaves.
constexpr int kRecordsApart = 4;

// A tree's value is added when so many more trees have been evaluated: by then it has arrived from the L3 cache.
constexpr int kTreesLater = 64;

// The sum of a single document, in tree order. A loop of its own for it would wait for the values if caches are cold.
template <class Sum> class LateSum {
public:
    // tree: the tree block's first; leaf[tree in block]
    LateSum(const LeafRecords& records, int tree, const uint8_t* leaf)
        : to_(static_cast<Sum*>(records.sum)), sum_(*to_), value_(static_cast<const Sum*>(records.first)),
          offsets_(records.offsets + tree), leaf_(leaf) {}
    // The values of the trees before `end`, counted from the block's first.
    void add(int end) {
        for (; added_ < end; added_++) sum_ += value_[offsets_[added_] + leaf_[added_]];
    }
    void finish(int n_trees) {
        add(n_trees);
        *to_ = sum_;
    }

private:
    Sum* const to_;
    Sum sum_;
    const Sum* const value_;
    const int64_t* const offsets_;
    const uint8_t* const leaf_;
    int added_ = 0;
};
template <> class LateSum<void> {
public:
    LateSum(const LeafRecords&, int, const uint8_t*) {}
    void add(int) {}
    void finish(int) {}
};

// A tree block for n documents (for one, if `alone`), to leaf[tree][stride]. Prefetches the leaves' records, and adds those of a
// single document to its Sum, unless that is void.
template <class Set, int registers, int doublings, bool alone, class Sum>
void evaluate_words(const RankJumps jumps, int block, const uint8_t* code, int n, const LeafRecords records, int stride,
                    uint8_t* leaf) {
    const int first_tree = jumps.trees[jumps.blocks[block]];
    LateSum<Sum> sum(records, first_tree, leaf);
    const auto bytes = Set::load(code);
    const bool records_apart = alone || n <= kRecordsApart || records.bytes > static_cast<int64_t>(sizeof(double));
    const int ahead = prefetches_to_l2 ? kWordsAheadToL2 : kWordsAhead;
    const JumpWord* words = jumps.words + static_cast<int64_t>(jumps.blocks[block]) * registers;
    for (int w = jumps.blocks[block], tree = jumps.trees[w]; w < jumps.blocks[block + 1]; w++, words += registers) {
        prefetch_bytes(words + ahead, registers * sizeof(JumpWord));
        const auto word = Set::template load<registers>(words);
        const int n_trees = jumps.trees[w + 1] - tree;
        for (int t = 0; t < n_trees && !records_apart; t++) prefetch_records(records, tree + t);
        for (int d = 0; d < (alone ? 1 : n); d++) {
            const auto ends = Set::template jump<doublings>(word, alone ? bytes : Set::load(code + d * kJumpEntries));
            const auto put = [&](int t, int label) {
                leaf[static_cast<int64_t>(t) * stride + d] = static_cast<uint8_t>(label);
                if (records_apart) prefetch_record(records, tree + t, label);
            };
            if (n_trees == 1) {
                put(0, Set::at_first(ends));
                continue;
            }
            alignas(64) uint8_t label[registers * kJumpPlaces];
            Set::store(label, ends);
            for (int t = 0; t < n_trees; t++) put(t, label[jumps.root[tree + t]] - jumps.root[tree + t]);
        }
        tree += n_trees, leaf += static_cast<int64_t>(n_trees) * stride;
        sum.add(tree - first_tree - kTreesLater);
    }
    sum.finish(jumps.trees[jumps.blocks[block + 1]] - first_tree);
}

// Kernels are compiled for these numbers of doublings; a tree block that needs fewer uses kMinDoublings.
constexpr int kMinDoublings = 2, kMaxDoublings = 7;
static_assert(kRankLeaves - 2 <= 1 << kMaxDoublings, "steps from the root of a chain to its last node");

template <class Set, int registers, bool alone, class Sum, int doublings = kMinDoublings>
void evaluate_so_deep(const RankJumps& jumps, int block, const uint8_t* code, int n, const LeafRecords& records, int stride,
                      uint8_t* leaf) {
    if constexpr (doublings < kMaxDoublings)
        if (jumps.doublings[block] > doublings)
            return evaluate_so_deep<Set, registers, alone, Sum, doublings + 1>(jumps, block, code, n, records, stride, leaf);
    evaluate_words<Set, registers, doublings, alone, Sum>(jumps, block, code, n, records, stride, leaf);
}

// n documents, coded by jump_codes, to leaf[tree][stride] of a tree block.
template <class Set>
void rank_jumps(const RankWalkLayout& layout, int block, const uint8_t* code, const LeafRecords& records, int n, int stride,
                uint8_t* leaf) {
    using Evaluate = decltype(&evaluate_so_deep<Set, 1, true, void>);
    static constexpr Evaluate evaluate[][4] = {{evaluate_so_deep<Set, 1, false, void>, evaluate_so_deep<Set, 1, true, void>,
                                                evaluate_so_deep<Set, 1, true, float>, evaluate_so_deep<Set, 1, true, double>},
                                               {evaluate_so_deep<Set, 2, false, void>, evaluate_so_deep<Set, 2, true, void>,
                                                evaluate_so_deep<Set, 2, true, float>, evaluate_so_deep<Set, 2, true, double>}};
    const int how = n > 1 ? 0 : !records.sum ? 1 : records.bytes == sizeof(float) ? 2 : 3;
    evaluate[layout.jumps.words_together - 1][how](layout.jumps, block, code, n, records, stride, leaf);
}

// The kernel of an instruction set with jumps; null otherwise.
template <class Set> constexpr auto jumps_kernel() -> decltype(&rank_jumps<Set>) {
    if constexpr (Set::available)
        return rank_jumps<Set>;
    else
        return nullptr;
}

}  // namespace
}  // namespace gpuqs
