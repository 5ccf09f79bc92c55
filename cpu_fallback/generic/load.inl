// load: turns documents as callers pass them into feature-major values.
//
//   for each column: for each row: x[column][row] = row[feature of column], read as the column says
//   load_rows: the same to x[row][column]: row by row, or column by column for a few rows at a time if documents are column-major
#pragma once
#include <cstdint>
#include <cstdlib>

#include "generic/categories.inl"
#include "layout/documents.hpp"
#include "layout/prefetch.hpp"
#include "tile.inl"

namespace gpuqs {
namespace {

// Rows that are copied together from column-major documents: a column's values of this many rows share a cache line.
constexpr int kRowsTogether = 16;

template <class In, class Out>
void load_column(const char* at, int64_t row_stride, int n, Out* to) {
    for (int d = 0; d < n; d++, at += row_stride) to[d] = static_cast<Out>(*reinterpret_cast<const In*>(at));
}

// Row-major floats: loads a tile of neighbouring columns and returns how many these are, or 0 if the next columns do not fill a
// tile. Prefetches the next rows.
inline int load_tile(const Documents& documents, const char* rows, int n, const Columns& columns, int c, int stride, float* x) {
    if (documents.column_stride != sizeof(float) || c + kTile > columns.n) return 0;
    for (int k = 1; k < kTile; k++)
        if (columns.feature[c + k] != columns.feature[c] + k) return 0;
    const char* at = rows + columns.feature[c] * documents.column_stride;
    const int whole = n / kTile * kTile;
    for (int d = 0; d < whole; d += kTile) {
        transpose_tile<AsFloat>(at + d * documents.row_stride, documents.row_stride, x + d, stride);
        // The same columns of the next rows; a prefetch beyond the last row does nothing.
        for (int i = 0; i < kTile; i++) prefetch(at + (d + i + stride) * documents.row_stride);
    }
    for (int k = 0; k < kTile; k++)
        load_column<float>(at + whole * documents.row_stride + k * documents.column_stride, documents.row_stride, n - whole,
                           x + static_cast<int64_t>(k) * stride + whole);
    return kTile;
}

// Without a branch, because it is hard to predict which values are zero.
template <class Out> void zeros_to_nan(int64_t n, Out* x) {
    for (int64_t d = 0; d < n; d++) x[d] = is_zero(x[d]) ? static_cast<Out>(__builtin_nan("")) : x[d];
}

// Categories that go left become 0, those that go right 1; missing values stay NaN.
template <class Out> void categories_to_sides(const Columns& columns, int c, int n, Out* x) {
    const uint32_t* words = columns.set_words + columns.set_offsets[c];
    const Out end = static_cast<Out>(32 * (columns.set_offsets[c + 1] - columns.set_offsets[c]));
    const int routing = columns.routing[c];
    const bool right = routing & kSetRight;
    for (int d = 0; d < n; d++) {
        if (x[d] != x[d]) continue;
        const int64_t code = code_of(routing, x[d], end);
        const bool in_set = code >= 0 && (words[code / 32] >> (code % 32) & 1);
        x[d] = in_set == right;
    }
}

template <class Out>
void load(const Documents& documents, int64_t first, int n, const Columns& columns, int stride, Out* x) {
    const char* rows = static_cast<const char*>(documents.data) + first * documents.row_stride;
    const Columns by_value = columns.n_tables ? numeric(columns) : columns;
    for (int c = 0; c < by_value.n;) {
        Out* to = x + static_cast<int64_t>(c) * stride;
        int loaded = 0;
        if constexpr (sizeof(Out) == sizeof(float)) {
            if (!documents.is_double) loaded = load_tile(documents, rows, n, by_value, c, stride, to);
        }
        if (loaded == 0) {
            const char* at = rows + columns.feature[c] * documents.column_stride;
            if (documents.is_double)
                load_column<double>(at, documents.row_stride, n, to);
            else
                load_column<float>(at, documents.row_stride, n, to);
            loaded = 1;
        }
        c += loaded;
    }
    for (int t = 0; t < columns.n_tables; t++) {
        const CategoryTable& table = columns.tables[t];
        int row[64];
        for (int d = 0; d < n; d += 64) {
            const int some = n - d < 64 ? n - d : 64;
            rows_of<Out>(columns, table, documents, first + d, some, row);
            sides_of_rows(columns, table, row, some, stride, x + static_cast<int64_t>(table.first_column) * stride + d);
        }
    }
    for (int c = 0; c < columns.n; c++) {
        Out* to = x + static_cast<int64_t>(c) * stride;
        if (c < by_value.n && columns.routing[c] & kCategorical)
            categories_to_sides(columns, c, n, to);
        else if (c < by_value.n && columns.routing[c] & kZeroMissing)
            zeros_to_nan(n, to);
        for (int d = n; d < stride; d++) {
            to[d] = Out(0);
            asm volatile("");  // otherwise compilers call memset for each column, which is slower than these few stores
        }
    }
}

// Whether the columns read consecutive features.
inline bool in_a_row(const Columns& columns) {
    bool are = true;
    for (int c = 0; c < columns.n; c++) are &= columns.feature[c] == columns.feature[0] + c;
    return are;
}

// Copies the columns' values to the first places of each row of x[row][width].
template <class In, class Out>
void copy_rows(const Documents& documents, int64_t first, int n, const Columns& columns, int64_t width, Out* x) {
    const int64_t of_row = documents.row_stride, of_column = documents.column_stride;
    const char* rows = static_cast<const char*>(documents.data) + first * of_row;
    if (of_column == sizeof(In) && columns.n > 0 && in_a_row(columns)) {
        rows += columns.feature[0] * of_column;
        for (int d = 0; d < n; d++, rows += of_row, x += width)
            for (int c = 0; c < columns.n; c++) x[c] = static_cast<Out>(reinterpret_cast<const In*>(rows)[c]);
    } else if (std::abs(of_column) <= std::abs(of_row)) {
        for (int d = 0; d < n; d++, rows += of_row, x += width)
            for (int c = 0; c < columns.n; c++) load_column<In>(rows + columns.feature[c] * of_column, 0, 1, x + c);
    } else {
        for (int d = 0; d < n; d += kRowsTogether, rows += kRowsTogether * of_row)
            for (int c = 0; c < columns.n; c++) {
                const char* at = rows + columns.feature[c] * of_column;
                for (int r = d; r < n && r < d + kRowsTogether; r++, at += of_row)
                    x[r * width + c] = static_cast<Out>(*reinterpret_cast<const In*>(at));
            }
    }
}

// Turns a row's zeros into NaN in the columns where they count as missing; in columns of category sets, a zero is a category.
template <class Out> void zeros_of_row_to_nan(const Columns& columns, Out* x) {
    for (int c = 0; c < columns.n; c++) {
        const bool missing = (columns.routing[c] & (kCategorical | kZeroMissing)) == kZeroMissing;
        x[c] = (missing & is_zero(x[c])) ? static_cast<Out>(__builtin_nan("")) : x[c];
    }
}

// load_rows: as load, but into x[row][column]; true if some value is missing.
template <class Out> bool load_rows(const Documents& documents, int64_t first, int n, const Columns& columns, Out* x) {
    const Columns by_value = columns.n_tables ? numeric(columns) : columns;
    const int64_t width = columns.n, n_values = n * width;
    if (documents.is_double)
        copy_rows<double>(documents, first, n, by_value, width, x);
    else
        copy_rows<float>(documents, first, n, by_value, width, x);
    uint8_t routing = 0, of_all = kZeroMissing;
    for (int c = 0; c < columns.n; c++) routing |= columns.routing[c], of_all &= columns.routing[c];
    if (of_all && !(routing & kCategorical))
        zeros_to_nan(n_values, x);
    else if (routing & kZeroMissing)
        for (int64_t row = 0; row < n_values; row += width) zeros_of_row_to_nan(by_value, x + row);
    for (int c = by_value.n_numeric; c < by_value.n; c++)
        for (int64_t at = c; at < n_values; at += width) categories_to_sides(columns, c, 1, x + at);
    for (int t = 0; t < columns.n_tables; t++)
        for (int d = 0; d < n; d++) {
            int row;
            rows_of<Out>(columns, columns.tables[t], documents, first + d, 1, &row);
            sides_of_row(columns, columns.tables[t], row, 1, x + d * width + columns.tables[t].first_column);
        }
    int missing = 0;
    for (int64_t i = 0; i < n_values; i++) missing |= x[i] != x[i];
    return missing;
}

}  // namespace
}  // namespace gpuqs
