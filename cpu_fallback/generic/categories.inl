// Category tables: the row of a document's code has a bit for each set of its feature.
//
//   rank: for each 64 documents: for each word of their rows: 64 documents' bits of 64 sets, transposed, to the sets' planes
//   load: for each document: for each set: x = its bit, or NaN where the value is missing
#pragma once
#include <cstdint>

#include "layout/columns.hpp"
#include "layout/documents.hpp"

namespace gpuqs {
namespace {

// So many documents' rows are found at a time.
constexpr int kDocumentsOfRows = 512;

// Exchanges bits of words so far apart: of the later one those that the mask names, of the earlier one those `shift` above.
template <int apart, int shift> inline void exchange_bits(uint64_t* words, uint64_t mask) {
    for (int base = 0; base < 64; base += 2 * apart)
        for (int k = base; k < base + apart; k++) {
            const uint64_t swapped = (words[k] >> shift ^ words[k + apart]) & mask;
            words[k] ^= swapped << shift;
            words[k + apart] ^= swapped;
        }
}

// Bit d of word j becomes bit j of word d. Word j is at 8 (j % 8) + j / 8 before, so that all exchanges are of eight words.
inline void transpose_bits(const uint64_t* given, uint64_t* words) {
    uint64_t within[64];
    for (int j = 0; j < 64; j++) within[8 * (j % 8) + j / 8] = given[j];
    exchange_bits<32, 4>(within, 0x0f0f0f0f0f0f0f0f);
    exchange_bits<16, 2>(within, 0x3333333333333333);
    exchange_bits<8, 1>(within, 0x5555555555555555);
    for (int j = 0; j < 64; j++) words[8 * (j % 8) + j / 8] = within[j];
    exchange_bits<32, 32>(words, 0x00000000ffffffff);
    exchange_bits<16, 16>(words, 0x0000ffff0000ffff);
    exchange_bits<8, 8>(words, 0x00ff00ff00ff00ff);
}

// The table row of a value: its code's, that of no code, or that of missing values.
template <class Value> int row_of(const Columns& columns, const CategoryTable& table, Value x) {
    if (x != x) return table.missing();
    const bool above = table.routing & kNegativeFractionIsZero ? x > -1 : x >= 0;
    if (!above || !(x < static_cast<Value>(table.n_codes)) || table.n_codes == 0) return table.no_code();  // -1 < x < 0
    const int64_t code = static_cast<int64_t>(x);
    if (table.routing & kWholeCodes && static_cast<Value>(code) != x) return table.no_code();
    return columns.row_of_code[table.codes + code];
}

// The rows of n documents, their values cast to Value first.
template <class Value>
void rows_of(const Columns& columns, const CategoryTable& table, const Documents& documents, int64_t first, int n, int* row) {
    const char* at = static_cast<const char*>(documents.data) + first * documents.row_stride + table.feature * documents.column_stride;
    for (int d = 0; d < n; d++, at += documents.row_stride)
        row[d] = row_of(columns, table,
                        documents.is_double ? static_cast<Value>(*reinterpret_cast<const double*>(at))
                                            : static_cast<Value>(*reinterpret_cast<const float*>(at)));
}

// The sides of one document on all sets of a feature, or NaNs.
template <class Out> void sides_of_row(const Columns& columns, const CategoryTable& table, int row, Out* x) {
    const uint64_t* words = columns.rows + table.rows + row * table.row_words();
    for (int k = 0; k < table.n_columns; k += 32) {
        const uint32_t bits = static_cast<uint32_t>(words[k / 64] >> k % 64);
        if (k + 32 <= table.n_columns)
            for (int i = 0; i < 32; i++) x[k + i] = static_cast<Out>(static_cast<int32_t>(bits >> i & 1));
        else
            for (int i = 0; k + i < table.n_columns; i++) x[k + i] = static_cast<Out>(static_cast<int32_t>(bits >> i & 1));
    }
    if (row == table.missing())
        for (int k = 0; k < table.n_columns; k++) x[k] = static_cast<Out>(__builtin_nan(""));
}

// The sides of n documents on all sets of a feature, x[set][document].
template <class Out>
void sides_of_rows(const Columns& columns, const CategoryTable& table, const int* row, int n, int64_t stride, Out* x) {
    const uint64_t* words = columns.rows + table.rows;
    for (int d = 0; d < n; d += 64) {
        const int of_word = n - d < 64 ? n - d : 64;
        for (int64_t w = 0; w < table.row_words(); w++) {
            uint64_t of_rows[64] = {}, bits[64];
            for (int k = 0; k < of_word; k++) of_rows[k] = words[row[d + k] * table.row_words() + w];
            transpose_bits(of_rows, bits);
            for (int k = 0; k < 64 && 64 * w + k < table.n_columns; k++) {
                Out* const to = x + (64 * w + k) * stride + d;
                for (int i = 0; i < of_word; i++) to[i] = static_cast<Out>(static_cast<int32_t>(bits[k] >> i & 1));
            }
        }
    }
    for (int d = 0; d < n; d++)
        for (int k = 0; row[d] == table.missing() && k < table.n_columns; k++) x[k * stride + d] = static_cast<Out>(__builtin_nan(""));
}

}  // namespace
}  // namespace gpuqs
