// load: documents as callers hand them over, to feature-major values.
//
//   for each column: for each row: x[column][row] = row[feature of column], read as the column says
//   load_rows: the same, some rows at a time, then turned back: x[row][column]
#pragma once
#include <cstdint>

#include "layout/documents.hpp"
#include "layout/prefetch.hpp"
#include "tile.inl"

namespace gpuqs {
namespace {

template <class In, class Out>
void load_column(const char* at, int64_t row_stride, int n, Out* to) {
    for (int d = 0; d < n; d++, at += row_stride) to[d] = static_cast<Out>(*reinterpret_cast<const In*>(at));
}

// Row-major floats: loads neighbouring columns in tiles and returns how many; 0 where no whole tile is left. Prefetches the
// next rows.
inline int load_tile(const Documents& documents, const char* rows, int n, const Columns& columns, int c, int stride, float* x) {
    if (documents.column_stride != sizeof(float) || c + kTile > columns.n) return 0;
    for (int k = 1; k < kTile; k++)
        if (columns.feature[c + k] != columns.feature[c] + k) return 0;
    const char* at = rows + columns.feature[c] * documents.column_stride;
    const int whole = n / kTile * kTile;
    for (int d = 0; d < whole; d += kTile) {
        transpose_tile<AsFloat>(at + d * documents.row_stride, documents.row_stride, x + d, stride);
        // The same columns of the next rows; beyond the last row a prefetch does nothing.
        for (int i = 0; i < kTile; i++) prefetch(at + (d + i + stride) * documents.row_stride);
    }
    for (int k = 0; k < kTile; k++)
        load_column<float>(at + whole * documents.row_stride + k * documents.column_stride, documents.row_stride, n - whole,
                           x + static_cast<int64_t>(k) * stride + whole);
    return kTile;
}

template <class Out> void zeros_to_nan(int n, Out* x) {
    for (int d = 0; d < n; d++)
        if (x[d] <= kZeroThreshold && x[d] >= -kZeroThreshold) x[d] = static_cast<Out>(__builtin_nan(""));
}

// Categories that go left become 0, those that go right 1; missing values stay NaN.
template <class Out> void categories_to_sides(const Columns& columns, int c, int n, Out* x) {
    const uint32_t* words = columns.set_words + columns.set_offsets[c];
    const Out end = static_cast<Out>(32 * (columns.set_offsets[c + 1] - columns.set_offsets[c]));
    const bool right = columns.routing[c] & kSetRight, whole = columns.routing[c] & kWholeCodes;
    const bool fraction = columns.routing[c] & kNegativeFractionIsZero;
    for (int d = 0; d < n; d++) {
        if (x[d] != x[d]) continue;
        bool in_set = (fraction ? x[d] > -1 : x[d] >= 0) && x[d] < end && end > 0;
        if (in_set) {
            const int64_t code = static_cast<int64_t>(x[d]);
            in_set = (words[code / 32] >> (code % 32) & 1) && !(whole && static_cast<Out>(code) != x[d]);
        }
        x[d] = in_set == right;
    }
}

template <class Out>
void load(const Documents& documents, int64_t first, int n, const Columns& columns, int stride, Out* x) {
    const char* rows = static_cast<const char*>(documents.data) + first * documents.row_stride;
    for (int c = 0; c < columns.n;) {
        Out* to = x + static_cast<int64_t>(c) * stride;
        int loaded = 0;
        if constexpr (sizeof(Out) == sizeof(float)) {
            if (!documents.is_double) loaded = load_tile(documents, rows, n, columns, c, stride, to);
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
    for (int c = 0; c < columns.n; c++) {
        Out* to = x + static_cast<int64_t>(c) * stride;
        if (columns.routing[c] & kCategorical)
            categories_to_sides(columns, c, n, to);
        else if (columns.routing[c] & kZeroMissing)
            zeros_to_nan(n, to);
        for (int d = n; d < stride; d++) to[d] = Out(0);
    }
}

// load_rows: as load, x[row][column]; scratch is [columns][kRowBlock]. True if some value is missing.
template <class Out>
bool load_rows(const Documents& documents, int64_t first, int n, const Columns& columns, Out* scratch, Out* x) {
    int missing = 0;
    for (int d = 0; d < n; d += kRowBlock) {
        const int rows = n - d < kRowBlock ? n - d : kRowBlock;
        load(documents, first + d, rows, columns, kRowBlock, scratch);
        for (int i = 0; i < columns.n * kRowBlock; i++) missing |= scratch[i] != scratch[i];
        for (int r = 0; r < rows; r++)
            for (int c = 0; c < columns.n; c++) *x++ = scratch[static_cast<int64_t>(c) * kRowBlock + r];
    }
    return missing;
}

}  // namespace
}  // namespace gpuqs
