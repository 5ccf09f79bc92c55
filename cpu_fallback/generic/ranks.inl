// Rank coding: documents to bit planes, planes[column's first + bit][document].
//
//   for each run of 16 to 128 documents:                   (the next columns are prefetched: lines_ahead.inl)
//       for each column: x[document] = its values as float32, see block_columns.inl
//           for each level: answer = not (x <= table[level][answers so far])
//           or, for three levels at once: answers = the number of those seven thresholds below x
//           the answers of level l are bit n_bits - 1 - l of the ranks: store them as plane bits
//           where x equals a threshold of the column, but was rounded down to it: compare the values themselves
//
// `Search::levels<n, ties, keeps>`, of isa/*/search.inl, searches the first n <= kLevels levels in registers; `Rows::search<ties>`
// searches three levels in memory. `ties`: they return whether some value equals a threshold.
#pragma once
#include <cstdint>
#include <type_traits>

#include "generic/block_columns.inl"
#include "generic/categories.inl"
#include "generic/lines_ahead.inl"
#include "layout/ranks.hpp"
#include "rows.inl"
#include "search.inl"

namespace gpuqs {
namespace {

// How many floats a column's level tables take.
inline int64_t of_levels(int n_bits) { return n_bits < 4 ? 16 * n_bits : 48 + (1 << (n_bits < 8 ? n_bits : 8)); }

// How many levels are searched in registers: if there are too many, the last ones are left to rows, three levels each.
inline int levels_by_tables(int n_bits) { return n_bits <= Search::kLevels ? n_bits : n_bits - (n_bits - Search::kLevels + 2) / 3 * 3; }

// Where the rows of levels level ... level + 2 begin among the tables of a column of more than six bits.
inline int64_t rows_offset(int n_bits, int level) {
    int64_t at = of_levels(n_bits);  // the level tables come first
    for (int before = 3 + n_bits % 3; before < level; before += 3) at += int64_t{8} << before;
    return at;
}

// Searches the first n levels of x[0 ... n_documents); `top` is the highest plane. `keeps`: stores the answers for rows, which follow
// only after kLevels - 2 or more levels in registers.
template <bool ties, bool keeps, int level = Search::kLevels>
[[gnu::always_inline]] inline bool search_levels(const float* tables, int n, const float* x, int n_documents, uint8_t* top,
                                                 int64_t plane_bytes, uint32_t* answers) {
    if (n == level) return Search::levels<level, ties, keeps>(tables, x, n_documents, top, plane_bytes, answers);
    if constexpr (level > (keeps ? Search::kLevels - 2 : 1))
        return search_levels<ties, keeps, level - 1>(tables, n, x, n_documents, top, plane_bytes, answers);
    return false;
}

// Ranks of more bits than are searched in registers. Not inlined, so that compilers inline the usual searches instead of this one.
template <bool ties>
[[gnu::noinline]] bool search_rows(const float* tables, int n_bits, const float* x, int n_documents, uint8_t* top,
                                   int64_t plane_bytes) {
    alignas(64) uint32_t answers[kRankBlock];
    int level = levels_by_tables(n_bits);
    bool tie = search_levels<ties, true>(tables, level, x, n_documents, top, plane_bytes, answers);
    for (; level < n_bits; level += 3)
        tie |= Rows::search<ties>(tables + rows_offset(n_bits, level), level, x, n_documents, answers, top - level * plane_bytes,
                                  plane_bytes);
    return tie;
}

// Writes the ranks of x[0 ... n_documents) to planes[bit * plane_bytes + document / 8].
template <bool ties> bool search(const float* tables, int n_bits, const float* x, int n_documents, uint8_t* planes,
                                 int64_t plane_bytes) {
    uint8_t* top = planes + (n_bits - 1) * plane_bytes;
    if (n_bits > Search::kLevels) return search_rows<ties>(tables, n_bits, x, n_documents, top, plane_bytes);
    return search_levels<ties, false>(tables, n_bits, x, n_documents, top, plane_bytes, nullptr);
}

// So far, a rank counts the thresholds whose float32 is below the value's float32. This adds those with the same float32 that are
// below the value.
template <class Reading>
void settle_ties(const RankTables& ranks, int column, const BlockColumns<Reading>& block, int n, uint8_t* planes, int64_t plane_bytes) {
    const double* threshold = ranks.threshold + ranks.offsets[column];
    const int n_bits = ranks.n_bits[column], n_thresholds = static_cast<int>(ranks.offsets[column + 1] - ranks.offsets[column]);
    for (int d = 0; d < n; d++) {
        uint8_t* const at = planes + d / 8;
        int rank = 0;
        for (int bit = 0; bit < n_bits; bit++) rank |= (at[bit * plane_bytes] >> d % 8 & 1) << bit;
        const double x = block.value(column, d);
        if (rank >= n_thresholds || !(x > threshold[rank])) continue;
        while (rank < n_thresholds && x > threshold[rank]) rank++;
        for (int bit = 0; bit < n_bits; bit++) {
            uint8_t& byte = at[bit * plane_bytes];
            byte = static_cast<uint8_t>((byte & ~(1 << d % 8)) | (rank >> bit & 1) << d % 8);
        }
    }
}

// Ranks documents on all category sets of a feature, 64 at a time, by transposing their rows of the table.
void rank_categories(const RankTables& ranks, const CategoryTable& table, const Documents& documents, int64_t first, int n,
                     uint8_t* planes, int64_t plane_bytes) {
    const uint64_t* rows = ranks.columns.rows + table.rows;
    for (int d = 0; d < n; d += 64) {
        int row[64];
        const int some = n - d < 64 ? n - d : 64;
        if (documents.is_double && !ranks.single)
            rows_of<double>(ranks.columns, table, documents, first + d, some, row);
        else
            rows_of<float>(ranks.columns, table, documents, first + d, some, row);
        for (int k = some; k < 64; k++) row[k] = table.no_code();
        uint64_t missing = 0, words[64];
        for (int k = 0; k < 64; k++) missing |= static_cast<uint64_t>(row[k] == table.missing()) << k;
        for (int64_t w = 0; w < table.row_words(); w++) {
            for (int k = 0; k < 64; k++) words[k] = rows[row[k] * table.row_words() + w];
            transpose_bits(words);
            const int64_t left = table.n_columns - 64 * w;
            for (int k = 0; k < 64 && k < left; k++) {
                const int64_t column = table.first_column + 64 * w + k;
                uint8_t* to = planes + ranks.plane_offsets[column] * plane_bytes + d / 8;
                __builtin_memcpy(to, words + k, sizeof missing);
                if (ranks.marks_missing[column]) __builtin_memcpy(to + plane_bytes, &missing, sizeof missing);
            }
        }
    }
}

// How many columns ahead tables are prefetched, for a call's first documents only: other work may have evicted them from the caches.
constexpr int kTablesAhead = 2;

// Prefetches the levels that are searched in registers, and the rows of the next three.
inline void prefetch_tables(const RankTables& ranks, int column) {
    const float* const tables = ranks.levels + ranks.level_offsets[column];
    const int n_bits = ranks.n_bits[column], level = levels_by_tables(n_bits);
    constexpr int64_t float_bytes = sizeof(float);
    prefetch_bytes(tables, float_bytes * of_levels(level));
    if (level < n_bits) prefetch_bytes(tables + rows_offset(n_bits, level), float_bytes * 8 << level);
}

// Ranks documents on the numeric columns.
template <class Reading>
void rank_values(const RankTables& ranks, const Documents& documents, int64_t first, int n, uint8_t* planes, int64_t plane_bytes) {
    const Columns columns = numeric(ranks.columns);
    const int size = rank_block(n), n_columns = columns.n;
    if (n_columns == 0) return;
    LinesAhead ahead(documents, columns, first, size);
    for (int d = 0; d < n; d += size) {
        const int rows = n - d < size ? n - d : size;
        BlockColumns<Reading> block(documents, columns, first + d, rows, size);
        for (int c = 0; c < n_columns; c++) {
            ahead.pass(c);
            if (first + d == 0 && c + kTablesAhead < n_columns) prefetch_tables(ranks, c + kTablesAhead);
            const float* x = block.column(c);
            const float* levels = ranks.levels + ranks.level_offsets[c];
            uint8_t* to = planes + ranks.plane_offsets[c] * plane_bytes + d / 8;
            if (std::is_same_v<Reading, Below> && block.lossy()) {
                if (search<true>(levels, ranks.n_bits[c], x, size, to, plane_bytes))
                    settle_ties(ranks, c, block, rows, to, plane_bytes);
            } else {
                search<false>(levels, ranks.n_bits[c], x, size, to, plane_bytes);
            }
            if (ranks.marks_missing[c]) Search::missing(x, size, to + ranks.n_bits[c] * plane_bytes);
        }
    }
}

// Not inlined, so that no conversion is moved out of the rounding mode that the caller has set.
[[gnu::noinline]] void rank_below(const RankTables& ranks, const Documents& documents, int64_t first, int n, uint8_t* planes,
                                  int64_t plane_bytes) {
    rank_values<Below>(ranks, documents, first, n, planes, plane_bytes);
}

// Ranks documents [first, first + n) into planes[plane][plane_bytes].
void rank(const RankTables& ranks, const Documents& documents, int64_t first, int n, uint8_t* planes, int64_t plane_bytes) {
    for (int t = 0; t < ranks.columns.n_tables; t++)
        rank_categories(ranks, ranks.columns.tables[t], documents, first, n, planes, plane_bytes);
    if (!documents.is_double)
        rank_values<AsFloat>(ranks, documents, first, n, planes, plane_bytes);
    else if (ranks.single)
        rank_values<Nearest>(ranks, documents, first, n, planes, plane_bytes);
    else {
        const RoundDown mode;
        rank_below(ranks, documents, first, n, planes, plane_bytes);
    }
}

}  // namespace
}  // namespace gpuqs
