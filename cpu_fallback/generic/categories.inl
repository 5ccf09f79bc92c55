// Category tables: the row of a document's code has a bit for each of the feature's sets.
//
//   rank: for every 64 documents: for each word of their rows: transpose 64 documents' bits of 64 sets into the sets' planes
//   load: for each document: for each set: x = its bit, or NaN where the value is missing
#pragma once
#include <cstdint>

#include "layout/columns.hpp"
#include "layout/documents.hpp"

namespace gpuqs {
namespace {

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

// The category code of a value, which is not NaN, or -1 if it has none below `end`.
template <class Value> int64_t code_of(int routing, Value x, Value end) {
    const bool above = routing & kNegativeFractionIsZero ? x > -1 : x >= 0;
    if (!above || !(x < end) || !(end > 0)) return -1;  // end is 0: for -1 < x < 0
    const int64_t code = static_cast<int64_t>(x);
    return routing & kWholeCodes && static_cast<Value>(code) != x ? -1 : code;
}

// The table row of a value: the row of its code, of "no code", or of missing values.
template <class Value> int row_of(const Columns& columns, const CategoryTable& table, Value x) {
    if (x != x) return table.missing();
    const int64_t code = code_of(table.routing, x, static_cast<Value>(table.n_codes));
    return code < 0 ? table.no_code() : columns.row_of_code[table.codes + code];
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

// The sides of one document on all sets of a feature, or NaNs if it is missing, to every apart-th place of x.
template <class Out> void sides_of_row(const Columns& columns, const CategoryTable& table, int row, int64_t apart, Out* x) {
    const uint64_t* words = columns.rows + table.rows + row * table.row_words();
    for (int k = 0; k < table.n_columns; k += 32) {
        const uint32_t bits = static_cast<uint32_t>(words[k / 64] >> k % 64);
        Out* const to = x + k * apart;
        if (k + 32 <= table.n_columns)  // a whole word, which compilers turn into values in registers
            for (int i = 0; i < 32; i++) to[i * apart] = static_cast<Out>(static_cast<int32_t>(bits >> i & 1));
        else
            for (int i = 0; k + i < table.n_columns; i++) to[i * apart] = static_cast<Out>(static_cast<int32_t>(bits >> i & 1));
    }
    if (row == table.missing())
        for (int k = 0; k < table.n_columns; k++) x[k * apart] = static_cast<Out>(__builtin_nan(""));
}

// Up to this many documents are not worth a transposition.
constexpr int kFewRows = 4;

// The sides of up to 64 documents on all sets of a feature, to x[set][document].
template <class Out>
void sides_of_rows(const Columns& columns, const CategoryTable& table, const int* row, int n, int64_t stride, Out* x) {
    if (n <= kFewRows) {
        for (int d = 0; d < n; d++) sides_of_row(columns, table, row[d], stride, x + d);
        return;
    }
    const uint64_t* rows = columns.rows + table.rows;
    for (int64_t w = 0; w < table.row_words(); w++) {
        uint64_t bits[64] = {};
        for (int d = 0; d < n; d++) bits[d] = rows[row[d] * table.row_words() + w];
        transpose_bits(bits);
        for (int k = 0; k < 64 && 64 * w + k < table.n_columns; k++) {
            Out* const to = x + (64 * w + k) * stride;
            for (int d = 0; d < n; d++) to[d] = static_cast<Out>(static_cast<int32_t>(bits[k] >> d & 1));
        }
    }
    for (int d = 0; d < n; d++)
        for (int k = 0; row[d] == table.missing() && k < table.n_columns; k++) x[k * stride + d] = static_cast<Out>(__builtin_nan(""));
}

}  // namespace
}  // namespace gpuqs
