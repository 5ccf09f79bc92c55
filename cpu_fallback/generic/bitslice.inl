// bitslice: one bit per document, one word per distinct test, a boolean program per tree.
//
//   predicates: for each distinct test of the trees: word = rank > i        (bit d: test is false for document d)
//   programs:   for each tree: for each node, parents first: S[slot] = S[end] | (S[first] & word)
//               (one treelet, a node with up to two of its children, at a time)
//               plane[k] = XOR of S_j, j an odd multiple of 2^k              (the exit leaf, in Gray code)
//               for an oblivious tree: plane[k] = word of its k-th level from below
//   leaves:     bit planes to bytes, leaf[tree][document]
//
// or_and(a, b, c) = a | (b & c), select(m, a, b) = (a & m) | (b & ~m): see words.inl and registers.inl.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "jit/code_ahead.hpp"
#include "layout/bitslice.hpp"
#include "registers.inl"

namespace gpuqs {
namespace {

template <class Word> inline Word constant(uint8_t byte) { return Word{} + 0x0101010101010101u * byte; }

// over[b] = whether the number in the four lowest of n planes is above b; b = 0 ... 15.
template <class Word> void nibble_above(const Word* bits, int n, Word* over) {
    const Word zero = {};
    const Word p0 = n > 0 ? bits[0] : zero, p1 = n > 1 ? bits[1] : zero;
    const Word p2 = n > 2 ? bits[2] : zero, p3 = n > 3 ? bits[3] : zero;
    const Word low[3] = {p1 | p0, p1, p1 & p0};     // low two bits above 0, 1, 2
    const Word high[3] = {p3 | p2, p3, p3 & p2};    // high two bits above 0, 1, 2
    const Word equal[4] = {~high[0], high[0] & ~high[1], high[1] & ~high[2], high[2]};
    for (int a = 0; a < 4; a++) {
        const Word above = a < 3 ? high[a] : zero;
        for (int b = 0; b < 3; b++) over[4 * a + b] = or_and(above, equal[a], low[b]);
        over[4 * a + 3] = above;
    }
}

inline int nibble_of(int value, int nibble) { return value >> (4 * nibble) & 15; }

template <class Word> inline Word nibble_equals(const Word* over, int a) { return a ? over[a - 1] & ~over[a] : ~over[0]; }

// over[b] = whether a byte is above b, from the words of its two nibbles; b = 0 ... 255.
template <class Word> void byte_above(const Word* low, const Word* high, Word* over) {
    for (int a = 0; a < 16; a++, over += 16) {
        const Word above = high[a], equal = nibble_equals(high, a);
#pragma GCC unroll 4
        for (int b = 0; b < 16; b++) over[b] = or_and(above, equal, low[b]);
    }
}

// A column's ranks, by nibbles, lowest first.
template <class Word> struct Nibbles {
    Word over[4][16];
    Word missing;
    int n_bits;
};

// Writes the words of a column's segments, whose predicates differ only in the lowest n_low nibbles: over_low has these.
template <int n_low, class Word>
Word* write_words(const Segment* at, const Segment* end, const Nibbles<Word>& rank, const Word* over_low, const uint8_t*& low,
                  Word* to) {
    for (; at < end; at++) {
        const Segment segment = *at;
        // Compare the rank's bits above the low nibbles with the segment's.
        Word above = {}, equal = ~Word{};
        for (int nibble = n_low; nibble * 4 < rank.n_bits; nibble++) {
            const int a = nibble_of(segment.high, nibble - 1);
            const Word same = nibble_equals(rank.over[nibble], a);
            above = or_and(rank.over[nibble][a], same, above);
            equal &= same;
        }
        if (segment.nan_left()) {
            above &= ~rank.missing;
            equal &= ~rank.missing;
        }
#pragma GCC unroll 4
        for (int i = 0; i <= segment.last; i++) *to++ = or_and(above, equal, over_low[*low++]);
    }
    return to;
}

template <class Word> void predicates(const BitsliceLayout& layout, int block, const void* planes, void* words) {
    Word* to = static_cast<Word*>(words);
    const uint8_t* low = layout.low + layout.block_low[block];
    const Segment* const last = layout.segments + layout.block_segments[block + 1];
    Nibbles<Word> rank;
    Word over_byte[256];
    for (const Segment *at = layout.segments + layout.block_segments[block], *end; at < last; at = end) {
        const uint32_t column = at->column;
        for (end = at + 1; end < last && end->column == column && end->by_byte() == at->by_byte();) end++;
        const Word* bits = static_cast<const Word*>(planes) + layout.ranks.plane_offsets[column];
        rank.n_bits = layout.ranks.n_bits[column];
        if (rank.n_bits == 1)
            rank.over[0][0] = bits[0];  // one threshold: its word is the plane itself
        else
            for (int nibble = 0; nibble * 4 < rank.n_bits; nibble++)
                nibble_above(bits + nibble * 4, rank.n_bits - nibble * 4, rank.over[nibble]);
        if (layout.ranks.marks_missing[column]) rank.missing = bits[rank.n_bits];
        if (at->by_byte()) {
            byte_above(rank.over[0], rank.over[1], over_byte);
            to = write_words<2>(at, end, rank, over_byte, low, to);
        } else {
            to = write_words<1>(at, end, rank, rank.over[0], low, to);
        }
    }
}

// Bit k of the exit leaf's index in Gray code: the XOR of S_j at the odd multiples j of 2^k.
template <class Word> inline Word exit_bit(const Word* s, int n_leaves, int k) {
    Word a = {}, b = {};
    const int step = 2 << k;
    int j = 1 << k;
    for (; j + 3 * step < n_leaves; j += 4 * step) {
        a = xor3(a, s[j], s[j + step]);
        b = xor3(b, s[j + 2 * step], s[j + 3 * step]);
    }
    for (; j < n_leaves; j += step) a ^= s[j];
    return a ^ b;
}

// All bits of the index of a tree's exit leaf; returns how many. The most common sizes are unrolled.
template <class Word> int exit_bits(const Word* s, int n_leaves, Word* bits) {
    switch (n_leaves) {
        case 64:
#pragma GCC unroll 6
            for (int k = 0; k < 6; k++) bits[k] = exit_bit(s, 64, k);
            return 6;
        case 32:
#pragma GCC unroll 5
            for (int k = 0; k < 5; k++) bits[k] = exit_bit(s, 32, k);
            return 5;
        default: {
            int n_bits = 0;
            for (; 1 << n_bits < n_leaves; n_bits++) bits[n_bits] = exit_bit(s, n_leaves, n_bits);
            return n_bits;
        }
    }
}

// Exchanges the bits of a outside the mask with the bits of b inside it, `shift` places lower.
template <class Word> inline void exchange(Word& a, Word& b, int shift, Word mask) {
    const Word low = select(mask, a, b << shift), high = select(mask, a >> shift, b);
    a = low;
    b = high;
}

// Puts the leaf byte of document 8 i + r at byte r * sizeof(Word) + i: see Bitslice::order. The words are separate variables,
// because compilers copy an array of them through memory in halves.
template <int n_bits, class Word> inline void spread(const Word* bits, Word* leaf) {
    const Word zero = {}, m1 = constant<Word>(0x55), m2 = constant<Word>(0x33), m4 = constant<Word>(0x0f);
    Word p0 = n_bits > 0 ? bits[0] : zero, p1 = n_bits > 1 ? bits[1] : zero, p2 = n_bits > 2 ? bits[2] : zero;
    Word p3 = n_bits > 3 ? bits[3] : zero, p4 = n_bits > 4 ? bits[4] : zero, p5 = n_bits > 5 ? bits[5] : zero;
    Word p6 = n_bits > 6 ? bits[6] : zero, p7 = n_bits > 7 ? bits[7] : zero;
    if (n_bits > 0) exchange(p0, p1, 1, m1);
    if (n_bits > 2) exchange(p2, p3, 1, m1);
    if (n_bits > 4) exchange(p4, p5, 1, m1);
    if (n_bits > 6) exchange(p6, p7, 1, m1);
    if (n_bits > 0) exchange(p0, p2, 2, m2), exchange(p1, p3, 2, m2);
    if (n_bits > 4) exchange(p4, p6, 2, m2), exchange(p5, p7, 2, m2);
    if (n_bits > 0) exchange(p0, p4, 4, m4), exchange(p1, p5, 4, m4), exchange(p2, p6, 4, m4), exchange(p3, p7, 4, m4);
    leaf[0] = p0, leaf[1] = p1, leaf[2] = p2, leaf[3] = p3;
    leaf[4] = p4, leaf[5] = p5, leaf[6] = p6, leaf[7] = p7;
}

// Each document's leaf index, from up to kPlanes planes. A byte holds the bits of eight planes.
template <class Word, class Leaf, int n_bits> void spread_planes(const void* planes, void* leaf, const void* code, int lines) {
    prefetch_code(code, lines);
    constexpr int n_low = n_bits < 8 ? n_bits : 8;
    const Word* bits = static_cast<const Word*>(planes);
    if constexpr (sizeof(Leaf) == 1) {
        spread<n_low>(bits, static_cast<Word*>(leaf));
    } else {
        Word low[8], high[8];
        spread<n_low>(bits, low);
        spread<n_bits - n_low>(bits + n_low, high);
        Leaf* to = static_cast<Leaf*>(leaf);
        for (size_t d = 0; d < sizeof low; d++)
            to[d] = static_cast<Leaf>(reinterpret_cast<uint8_t*>(low)[d] | reinterpret_cast<uint8_t*>(high)[d] << 8);
    }
}

template <class Word, class Leaf, int n_bits = 0> void to_leaves(const Word* bits, int n, void* leaf) {
    if (n == n_bits)
        spread_planes<Word, Leaf, n_bits>(bits, leaf, nullptr, 0);
    else if constexpr (n_bits < kPlanes)
        to_leaves<Word, Leaf, n_bits + 1>(bits, n, leaf);
}

template <class Word> inline Word* word_at(Word* words, uint64_t place) {
    using Byte = std::conditional_t<std::is_const_v<Word>, const char, char>;
    return reinterpret_cast<Word*>(reinterpret_cast<Byte*>(words) + place * (sizeof(Word) / kNarrowestWord));
}

// A root's S stays in a register for its children: it is S_end of the left one and S_first of the right one.
template <int kind, class Word> inline void run_treelets(const Treelet* at, const Treelet* end, const Word* words, Word* s) {
    for (; at != end; at++) {
        // Three loads for all fields of a treelet, because the load ports are the bottleneck. The last one goes on beyond `slot`.
        static_assert(sizeof(Treelet) == 24 && offsetof(Treelet, predicate) == 0 && sizeof Treelet::predicate[0] == 4 &&
                          offsetof(Treelet, slot) == 12 && offsetof(Treelet, first) == 18 && offsetof(Treelet, end) == 20 &&
                          offsetof(Treelet, zero) == 22,
                      "as the loads and shifts say");
        static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "a load's first field is its lowest bits");
        uint64_t low, middle, high;
        __builtin_memcpy(&low, at->predicate, sizeof low);
        __builtin_memcpy(&middle, at->predicate + 2, sizeof middle);
        __builtin_memcpy(&high, at->slot + 2, sizeof high);
        const uint32_t of_root = static_cast<uint32_t>(low), of_right = static_cast<uint32_t>(middle);
        const uint64_t of_left = low >> 32;
        const uint16_t root_slot = static_cast<uint16_t>(middle >> 32), right_slot = static_cast<uint16_t>(high);
        const uint64_t left_slot = middle >> 48;
        const uint16_t first_slot = static_cast<uint16_t>(high >> 16);
        const uint64_t end_slot = high >> 32;  // the field after it is zero
        const Word first = *word_at(s, first_slot), last = *word_at(s, end_slot);
        const Word root = or_and(last, first, *word_at(words, of_root));
        *word_at(s, root_slot) = root;
        if (kind & kWithLeft) *word_at(s, left_slot) = or_and(root, first, *word_at(words, of_left));
        if (kind & kWithRight) *word_at(s, right_slot) = or_and(last, root, *word_at(words, of_right));
    }
}

template <class Word> void run_group(const BitsliceLayout& layout, int64_t group, const Word* words, Word* s) {
    const Treelet* at = layout.treelets + layout.group_treelets[group];
    const Run* end = layout.runs + layout.group_runs[group + 1];
    for (const Run* run = layout.runs + layout.group_runs[group]; run != end; at += run->count, run++) {
        switch (run->kind) {
            case 0: run_treelets<0>(at, at + run->count, words, s); break;
            case kWithLeft: run_treelets<kWithLeft>(at, at + run->count, words, s); break;
            case kWithRight: run_treelets<kWithRight>(at, at + run->count, words, s); break;
            case kWithLeft | kWithRight: run_treelets<kWithLeft | kWithRight>(at, at + run->count, words, s); break;
        }
    }
}

template <class Word> void programs(const BitsliceLayout& layout, int block, const void* words, void* slots, void* leaves) {
    constexpr int documents = static_cast<int>(sizeof(Word)) * 8;
    Word* s = static_cast<Word*>(slots);
    char* leaf = static_cast<char*>(leaves);
    s[0] = Word{};
    const int last = layout.block_offsets[block + 1];
    for (int t = layout.block_offsets[block]; t < last; t += layout.trees_merged) {
        const int end = t + layout.trees_merged < last ? t + layout.trees_merged : last;
        for (int i = t; i < end; i++) s[layout.tree_slot[i]] = ~Word{};
        run_group(layout, t / layout.trees_merged, static_cast<const Word*>(words), s);
        for (int i = t; i < end; i++, leaf += layout.leaf_bytes * documents) {
            Word bits[kPlanes];
            const int64_t level = layout.level_offsets[i];
            int n_bits = static_cast<int>(layout.level_offsets[i + 1] - level);
            for (int k = 0; k < n_bits; k++) bits[k] = static_cast<const Word*>(words)[layout.levels[level + k]];
            if (n_bits == 0) n_bits = exit_bits(s + layout.tree_slot[i], layout.tree_leaves[i], bits);
            if (layout.leaf_bytes == 1)
                to_leaves<Word, uint8_t>(bits, n_bits, leaf);
            else
                to_leaves<Word, uint16_t>(bits, n_bits, leaf);
        }
    }
}

}  // namespace
}  // namespace gpuqs
