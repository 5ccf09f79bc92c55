// rankwalk, one or two documents at a time: all tests of some trees at once, then along heavy paths.
//
//   codes: as of walks, byte[entry]
//   for each word: word = bits (byte[entry of place] > position of place) ^ turned
//   for each tree: path = from its root
//                  as often as its walks change paths at most:
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

// Codes of n documents, x[column][stride], to code[document][kPathEntries]; rank is scratch, [columns][stride].
template <class Value>
void path_codes(const RankWalkLayout& layout, const Value* x, int n, int stride, int32_t* rank, uint8_t* code) {
    rank_columns(layout, x, n, stride, rank);
    for (int d = 0; d < n; d++, code += kPathEntries)
        for (int e = 1; e < layout.n_entries; e++) {
            const RankEntry entry = layout.entries[e];
            code[e - 1] = static_cast<uint8_t>(byte_of(entry, rank[static_cast<int64_t>(entry.column) * stride + d]));
        }
}

// The label at which a document with these outcomes ends that begins on `path`.
template <class Set, int changes> uint64_t follow(uint64_t path, uint64_t word, uint64_t ends, const uint16_t* light) {
    const uint64_t stops = word | ends;
#pragma GCC unroll 6
    for (int i = 0; i < changes; i++) {
        const int place = __builtin_ctzll(stops & ~uint64_t{0} << (path % kPathPlaces));
        path = Set::either(word, place, light[place], path);
    }
    return path >> kLabelShift;
}

// Of so many words later, the paths are asked for.
constexpr int kWordsAhead = 8;

// Trees [first, end), whose walks change paths so often at most, to leaf[tree][stride], of so many documents.
template <class Set, int documents, int changes>
void ask_words(const RankPaths paths, int first, int end, const uint8_t* code, int stride, uint8_t* leaf) {
    typename Set::Bytes bytes[documents];
    for (int d = 0; d < documents; d++) bytes[d] = Set::load(code + d * kPathEntries);
    for (int t = first; t < end;) {
        const int64_t w = paths.word[t];
        const uint16_t* light = paths.light + w * kPathPlaces;
        for (int line = 0; line < 2; line++) __builtin_prefetch(light + kWordsAhead * kPathPlaces + kPathPlaces / 2 * line);
        uint64_t word[documents];
        for (int d = 0; d < documents; d++) word[d] = Set::ask(paths.tests[w], bytes[d]) ^ paths.turned[w];
        do {
            for (int d = 0; d < documents; d++)
                leaf[d] = static_cast<uint8_t>(follow<Set, changes>(paths.heavy[t], word[d], paths.ends[w], light));
            leaf += stride, t++;
        } while (t < end && paths.word[t] == w);
    }
}

// n documents by path_codes, to leaf[tree][stride] of a tree block.
template <class Set> void rank_paths(const RankWalkLayout& layout, int block, const uint8_t* code, int n, int stride, uint8_t* leaf) {
    using Ask = decltype(&ask_words<Set, 1, 0>);
    constexpr Ask ask[2][4] = {{ask_words<Set, 1, 3>, ask_words<Set, 1, 4>, ask_words<Set, 1, 5>, ask_words<Set, 1, 6>},
                               {ask_words<Set, 2, 3>, ask_words<Set, 2, 4>, ask_words<Set, 2, 5>, ask_words<Set, 2, 6>}};
    const int first = layout.block_offsets[block], end = layout.block_offsets[block + 1];
    const int most = layout.paths.most[block] < 3 ? 0 : layout.paths.most[block] - 3;
    for (int d = 0; d < n; d += 2, code += 2 * kPathEntries) ask[d + 1 < n][most](layout.paths, first, end, code, stride, leaf + d);
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
