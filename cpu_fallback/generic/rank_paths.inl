// rankwalk, one or two documents at a time: all tests of some trees at once, then along heavy paths.
//
//   codes: as of walks, byte[entry]
//   for each word: word = bits (byte[entry of place] > position of place) ^ turned
//   for each tree: path = from its root
//                  as often as its walks change paths at most (eight walks side by side):
//                      place = the first at or after path's first with its bit set in word or in ends
//                      if its bit is set in word: path = light[place]
//                  leaf[tree] = the label at the end of path
//
// A walk leaves a heavy path for a child with at most half of the leaves: at most six times in 64.
#pragma once
#include <cstdint>

#include "generic/rankwalk.inl"
#include "layout/rankwalk.hpp"
#include "paths.inl"

namespace gpuqs {
namespace {

// Codes of n documents, x[document][column], to code[document][kPathEntries]; rank is scratch of x's shape.
template <class Value> void path_codes(const RankWalkLayout& layout, const Value* x, int n, int32_t* rank, uint8_t* code) {
    rank_rows(layout, x, n, rank);
    for (int d = 0; d < n; d++, rank += layout.columns.n, code += kPathEntries)
        for (int e = 1; e < layout.n_entries; e++)
            code[e - 1] = static_cast<uint8_t>(byte_of(layout.entries[e], rank[layout.entries[e].column]));
}

// What belongs to so many words later is asked for.
constexpr int kWordsAhead = 16;
// So many walks take each step side by side: a step waits for the one before, and a processor has room for few that wait.
constexpr int kWalksTogether = 8;

// A word of some documents, as the trees in it are walked.
template <class Set, int documents> struct AskedWord {
    int64_t number = -1;
    uint64_t outcomes[documents], stops[documents];  // stops: where a walk leaves its path, or the path ends
    const uint16_t* light;

    void ask(const RankPaths& paths, int64_t w, const typename Set::Bytes* bytes) {
        number = w;
        light = paths.light + w * kPathPlaces;
        const PathTests* const tests_ahead = paths.tests + w + kWordsAhead;
        const uint16_t* const light_ahead = light + kWordsAhead * kPathPlaces;
        __builtin_prefetch(tests_ahead->entry);
        __builtin_prefetch(tests_ahead->position);
        __builtin_prefetch(light_ahead);
        __builtin_prefetch(light_ahead + kPathPlaces / 2);
        for (int d = 0; d < documents; d++) {
            outcomes[d] = Set::ask(paths.tests[w], bytes[d]) ^ paths.turned[w];
            stops[d] = outcomes[d] | paths.ends[w];
        }
    }
};

// n trees from `tree` on, whose walks change paths so often at most, to leaf[tree][stride]; the leaves' records are asked for.
template <class Set, int documents, int changes, int n>
void follow(const RankPaths& paths, int tree, const typename Set::Bytes* bytes, AskedWord<Set, documents>& asked,
            const LeafRecords& records, int stride, uint8_t* leaf) {
    AskedWord<Set, documents> word[n];
    uint64_t path[n][documents];
    for (int t = 0; t < n; t++) {
        if (paths.word[tree + t] != asked.number) asked.ask(paths, paths.word[tree + t], bytes);
        word[t] = asked;
        for (int d = 0; d < documents; d++) path[t][d] = paths.heavy[tree + t];
    }
#pragma GCC unroll 6
    for (int i = 0; i < changes; i++)
#pragma GCC unroll 8
        for (int t = 0; t < n; t++)
#pragma GCC unroll 2
            for (int d = 0; d < documents; d++) {
                const int place = __builtin_ctzll(word[t].stops[d] & ~uint64_t{0} << (path[t][d] % kPathPlaces));
                path[t][d] = Set::either(word[t].outcomes[d], place, word[t].light[place], path[t][d]);
            }
    for (int t = 0; t < n; t++, leaf += stride)
        for (int d = 0; d < documents; d++) {
            const uint64_t label = path[t][d] >> kLabelShift;
            leaf[d] = static_cast<uint8_t>(label);
            prefetch_record(records, tree + t, label);
        }
}

// Trees [first, end) of so many documents.
template <class Set, int documents, int changes>
void ask_words(const RankPaths paths, int first, int end, const uint8_t* code, const LeafRecords& records, int stride, uint8_t* leaf) {
    constexpr int together = kWalksTogether / documents;
    typename Set::Bytes bytes[documents];
    for (int d = 0; d < documents; d++) bytes[d] = Set::load(code + d * kPathEntries);
    AskedWord<Set, documents> asked;
    int t = first;
    for (; t + together <= end; t += together, leaf += together * static_cast<int64_t>(stride))
        follow<Set, documents, changes, together>(paths, t, bytes, asked, records, stride, leaf);
    for (; t < end; t++, leaf += stride) follow<Set, documents, changes, 1>(paths, t, bytes, asked, records, stride, leaf);
}

// n documents by path_codes, to leaf[tree][stride] of a tree block.
template <class Set>
void rank_paths(const RankWalkLayout& layout, int block, const uint8_t* code, const LeafRecords& records, int n, int stride,
                uint8_t* leaf) {
    using Ask = decltype(&ask_words<Set, 1, 0>);
    constexpr Ask ask[2][4] = {{ask_words<Set, 1, 3>, ask_words<Set, 1, 4>, ask_words<Set, 1, 5>, ask_words<Set, 1, 6>},
                               {ask_words<Set, 2, 3>, ask_words<Set, 2, 4>, ask_words<Set, 2, 5>, ask_words<Set, 2, 6>}};
    const int first = layout.block_offsets[block], end = layout.block_offsets[block + 1];
    const int most = layout.paths.most[block] < 3 ? 0 : layout.paths.most[block] - 3;
    for (int d = 0; d < n; d += 2, code += 2 * kPathEntries)
        ask[d + 1 < n][most](layout.paths, first, end, code, records, stride, leaf + d);
}

// The kernel of a set that has paths; null otherwise.
template <class Set> constexpr auto paths_kernel() -> decltype(&rank_paths<Set>) {
    if constexpr (Set::here)
        return rank_paths<Set>;
    else
        return nullptr;
}

}  // namespace
}  // namespace gpuqs
