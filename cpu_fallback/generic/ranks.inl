// Rank coding: documents to bit planes, planes[column's first + bit][document].
//
//   for each run of 16 or 128 documents:
//       x[column][document] = documents, feature-major
//       for each column: for each level: answer = not (x <= table[level][answers so far])
//           the answers of level l are bit n_bits - 1 - l of the ranks: store them as plane bits
//
// `Search::levels<n>`, of isa/*/search.inl, searches the first n <= 8 levels in registers.
#pragma once
#include <cstdint>

#include "generic/load.inl"
#include "layout/ranks.hpp"
#include "search.inl"

namespace gpuqs {
namespace {

// Levels beyond the eighth are looked up one document at a time.
void search_deep(const float* levels, int n_bits, const float* x, int n, uint8_t* planes, int64_t plane_bytes) {
    const float* table = levels;
    for (int level = 0; level < 8; level++) table += level < 4 ? 16 : 1 << level;
    for (int d = 0; d < n; d += 8) {
        int answers[8] = {0};
        for (int level = 0; level < 8; level++)
            for (int k = 0; k < 8; k++) answers[k] |= (planes[(n_bits - 1 - level) * plane_bytes + d / 8] >> k & 1) << level;
        const float* of_level = table;
        for (int level = 8; level < n_bits; of_level += 1 << level, level++) {
            uint8_t bits = 0;
            for (int k = 0; k < 8; k++) {
                const int answer = !(x[d + k] <= of_level[answers[k]]);
                answers[k] |= answer << level;
                bits |= answer << k;
            }
            planes[(n_bits - 1 - level) * plane_bytes + d / 8] = bits;
        }
    }
}

// Ranks of x[0 ... n_documents) to planes[bit * plane_bytes + document / 8].
void search(const float* levels, int n_bits, const float* x, int n_documents, uint8_t* planes, int64_t plane_bytes) {
    uint8_t* top = planes + (n_bits - 1) * plane_bytes;
    switch (n_bits) {
        case 0: return;
        case 1: return Search::levels<1>(levels, x, n_documents, top, plane_bytes);
        case 2: return Search::levels<2>(levels, x, n_documents, top, plane_bytes);
        case 3: return Search::levels<3>(levels, x, n_documents, top, plane_bytes);
        case 4: return Search::levels<4>(levels, x, n_documents, top, plane_bytes);
        case 5: return Search::levels<5>(levels, x, n_documents, top, plane_bytes);
        case 6: return Search::levels<6>(levels, x, n_documents, top, plane_bytes);
        case 7: return Search::levels<7>(levels, x, n_documents, top, plane_bytes);
        case 8: return Search::levels<8>(levels, x, n_documents, top, plane_bytes);
        default:
            Search::levels<8>(levels, x, n_documents, top, plane_bytes);
            return search_deep(levels, n_bits, x, n_documents, planes, plane_bytes);
    }
}

inline float next_float(float x, int direction) {  // of finite x, never past zero's sign
    int32_t bits;
    __builtin_memcpy(&bits, &x, sizeof bits);
    bits += (bits < 0) == (direction < 0) ? 1 : -1;
    __builtin_memcpy(&x, &bits, sizeof bits);
    return x;
}

// float64 documents: ranks the float32 next above x and the one next below. Where these ranks differ, some threshold lies
// between the same two float32 as x, and the float64 values decide.
void search_double(const RankTables& ranks, int column, const double* x, int n_documents, uint8_t* planes, int64_t plane_bytes) {
    const float* levels = ranks.levels + ranks.level_offsets[column];
    const int n_bits = ranks.n_bits[column];
    alignas(64) float above[kRankBlock], below[kRankBlock];
    bool exact = true;
    for (int d = 0; d < n_documents; d++) {
        const float near = static_cast<float>(x[d]);
        const double back = near;
        above[d] = back < x[d] ? (near == 0 ? 0x1p-149f : next_float(near, 1)) : near;
        below[d] = back > x[d] ? (near == 0 ? -0x1p-149f : next_float(near, -1)) : near;
        exact &= back == x[d] || x[d] != x[d];
    }
    search(levels, n_bits, above, n_documents, planes, plane_bytes);
    if (exact) return;
    alignas(64) uint8_t other[16 * kRankBlock / 8];
    search(levels, n_bits, below, n_documents, other, kRankBlock / 8);
    const double* threshold = ranks.threshold + ranks.offsets[column];
    for (int byte = 0; byte < n_documents / 8; byte++) {
        uint8_t differ = 0;
        for (int bit = 0; bit < n_bits; bit++) differ |= planes[bit * plane_bytes + byte] ^ other[bit * (kRankBlock / 8) + byte];
        for (; differ; differ &= differ - 1) {
            const int k = __builtin_ctz(differ);
            int rank = 0;
            for (int bit = 0; bit < n_bits; bit++) rank |= (planes[bit * plane_bytes + byte] >> k & 1) << bit;
            while (rank > 0 && x[byte * 8 + k] <= threshold[rank - 1]) rank--;
            for (int bit = 0; bit < n_bits; bit++) {
                uint8_t& at = planes[bit * plane_bytes + byte];
                at = static_cast<uint8_t>((at & ~(1 << k)) | (rank >> bit & 1) << k);
            }
        }
    }
}

void mark_missing(const double* x, int n_documents, uint8_t* plane) {
    for (int d = 0; d < n_documents; d += 8) {
        uint8_t bits = 0;
        for (int k = 0; k < 8; k++) bits |= static_cast<uint8_t>(x[d + k] != x[d + k]) << k;
        plane[d / 8] = bits;
    }
}

// Bit d of word j becomes bit j of word d.
void transpose_bits(uint64_t* words) {
    uint64_t mask = 0x00000000ffffffff;
    for (int s = 32; s; s >>= 1, mask ^= mask << s)
        for (int base = 0; base < 64; base += 2 * s)
            for (int k = base; k < base + s; k++) {
                const uint64_t swapped = (words[k] >> s ^ words[k + s]) & mask;
                words[k] ^= swapped << s;
                words[k + s] ^= swapped;
            }
}

// The table row of a value: its code, "no code", or "missing".
template <class Value> int64_t row_of(const CategoryTable& table, Value x) {
    if (x != x) return table.n_codes + 1;
    const bool above = table.routing & kNegativeFractionIsZero ? x > -1 : x >= 0;
    if (!above || !(x < table.n_codes)) return table.n_codes;
    const int64_t code = static_cast<int64_t>(x);
    return table.routing & kWholeCodes && static_cast<Value>(code) != x ? table.n_codes : code;
}

// Ranks on all category sets of a feature, 64 documents at a time: rows of the table, transposed.
void rank_categories(const RankTables& ranks, const CategoryTable& table, const Documents& documents, int64_t first, int n,
                     uint8_t* planes, int64_t plane_bytes) {
    const int32_t* columns = ranks.table_columns + table.columns;
    const uint64_t* rows = ranks.table_rows + table.rows;
    const char* at = static_cast<const char*>(documents.data) + first * documents.row_stride + table.feature * documents.column_stride;
    for (int d = 0; d < n; d += 64, at += 64 * documents.row_stride) {
        int64_t row[64];
        uint64_t missing = 0, words[64];
        for (int k = 0; k < 64; k++) {
            row[k] = table.n_codes;
            if (d + k >= n) continue;
            const char* value = at + k * documents.row_stride;
            if (!documents.is_double)
                row[k] = row_of(table, *reinterpret_cast<const float*>(value));
            else if (ranks.single)
                row[k] = row_of(table, static_cast<float>(*reinterpret_cast<const double*>(value)));
            else
                row[k] = row_of(table, *reinterpret_cast<const double*>(value));
            missing |= static_cast<uint64_t>(row[k] > table.n_codes) << k;
        }
        for (int64_t w = 0; w < table.row_words; w++) {
            for (int k = 0; k < 64; k++) words[k] = rows[row[k] * table.row_words + w];
            transpose_bits(words);
            const int64_t left = table.n_columns - 64 * w;
            for (int k = 0; k < 64 && k < left; k++) {
                const int column = columns[64 * w + k];
                uint8_t* to = planes + ranks.plane_offsets[column] * plane_bytes + d / 8;
                __builtin_memcpy(to, words + k, sizeof missing);
                if (ranks.marks_missing[column]) __builtin_memcpy(to + plane_bytes, &missing, sizeof missing);
            }
        }
    }
}

// Ranks of documents [first, first + n) to planes[plane][plane_bytes]; x is scratch, [columns][rank_block(n)] of double.
void rank(const RankTables& ranks, const Documents& documents, int64_t first, int n, void* x, uint8_t* planes, int64_t plane_bytes) {
    for (int t = 0; t < ranks.n_tables; t++) rank_categories(ranks, ranks.tables[t], documents, first, n, planes, plane_bytes);
    const bool is_double = documents.is_double && !ranks.single;
    const int size = rank_block(n);
    for (int d = 0; d < n; d += size) {
        const int rows = n - d < size ? n - d : size;
        if (is_double)
            load<double>(documents, first + d, rows, ranks.columns, size, static_cast<double*>(x));
        else
            load<float, false>(documents, first + d, rows, ranks.columns, size, static_cast<float*>(x));
        const int64_t next = first + d + size;
        for (int c = 0; c < ranks.columns.n; c++) {
            // Prefetches the next rows while these are searched: a few with every column, for all at once would make loads wait.
            prefetch_rows(documents, next + c * size / ranks.columns.n, next + (c + 1) * size / ranks.columns.n, ranks.columns);
            uint8_t* to = planes + ranks.plane_offsets[c] * plane_bytes + d / 8;
            uint8_t* mark = to + ranks.n_bits[c] * plane_bytes;
            if (is_double) {
                const double* values = static_cast<double*>(x) + c * size;
                search_double(ranks, c, values, size, to, plane_bytes);
                if (ranks.marks_missing[c]) mark_missing(values, size, mark);
            } else {
                const float* values = static_cast<float*>(x) + c * size;
                search(ranks.levels + ranks.level_offsets[c], ranks.n_bits[c], values, size, to, plane_bytes);
                if (ranks.marks_missing[c]) Search::missing(values, size, mark);
            }
        }
    }
}

}  // namespace
}  // namespace gpuqs
