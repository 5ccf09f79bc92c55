// A block of documents, column by column, as rank coding searches them.
//
//   column-major float32 documents: read in place
//   row-major documents: a window of kTile neighbouring features is transposed for all rows of the block, for the columns in it
//   otherwise, and if a window would have few columns: value by value
#pragma once
#include <cstdint>

#include "generic/readings.inl"
#include "layout/documents.hpp"
#include "layout/ranks.hpp"
#include "tile.inl"

namespace gpuqs {
namespace {

// How many of n documents are ranked at a time, column by column.
constexpr int kRankBlock = 128;
constexpr int rank_block(int n) {
    int size = 16;
    while (size < n && size < kRankBlock) size *= 2;
    return size;
}

template <class Reading> class BlockColumns {
public:
    // Documents [first, first + n), padded to `size`.
    BlockColumns(const Documents& documents, const Columns& columns, int64_t first, int n, int size)
        : documents_(documents), columns_(columns), rows_(static_cast<const char*>(documents.data) + first * documents.row_stride),
          n_(n), size_(size) {}

    // To be called for columns in order; the result is valid until the next call.
    const float* column(int c) {
        const float* values = values_of(c);
        return columns_.routing[c] & kZeroMissing ? without_zeros(c, values) : values;
    }
    // Whether some value of the last column may differ from the float32 that it became.
    bool lossy() const { return lossy_; }

    typename Reading::In value(int c, int d) const { return value_at<Reading>(at(c) + d * documents_.row_stride); }
    const char* at(int c) const { return rows_ + columns_.feature[c] * documents_.column_stride; }

private:
    static constexpr int kFewColumns = 3;  // a window with fewer columns costs more than it saves
    static constexpr int64_t kValueBytes = sizeof(typename Reading::In);
    using Unchecked = typename Reading::Unchecked;  // once a lossy value is found, no others are looked for

    const float* values_of(int c) {
        const int feature = columns_.feature[c];
        if (sizeof(typename Reading::In) == sizeof(float) && documents_.row_stride == sizeof(float) && n_ == size_)
            return reinterpret_cast<const float*>(at(c));
        if (feature < end_) return window_[feature - end_ + kTile];
        if (documents_.column_stride == kValueBytes && c + kFewColumns <= columns_.n &&
            columns_.feature[c + kFewColumns - 1] < feature + kTile && columns_.feature[columns_.n - 1] + 1 >= kTile) {
            const int last = columns_.feature[columns_.n - 1] + 1;
            end_ = feature + kTile < last ? feature + kTile : last;
            read_window(end_ - kTile);
            return window_[feature - end_ + kTile];
        }
        lossy_ = false;
        const char* from = at(c);
        int d = 0;
        if (documents_.row_stride == kValueBytes) {
            for (; d + kTile <= n_; d += kTile)
                if (lossy_)
                    copy_tile<Unchecked>(from + d * kValueBytes, own_ + d);
                else
                    lossy_ = copy_tile<Reading>(from + d * kValueBytes, own_ + d);
        }
        for (; d < n_; d++) lossy_ |= read_one<Reading>(from + d * documents_.row_stride, own_ + d);
        for (; d < size_; d++) own_[d] = 0;
        return own_;
    }

    // Reads features [first, first + kTile), all of which must exist.
    void read_window(int first) {
        const char* from = rows_ + first * kValueBytes;
        lossy_ = false;
        int d = 0;
        for (; d + kTile <= n_; d += kTile, from += kTile * documents_.row_stride)
            if (lossy_)
                transpose_tile<Unchecked>(from, documents_.row_stride, window_[0] + d, kRankBlock);
            else
                lossy_ = transpose_tile<Reading>(from, documents_.row_stride, window_[0] + d, kRankBlock);
        for (; d < n_; d++, from += documents_.row_stride)
            for (int k = 0; k < kTile; k++) lossy_ |= read_one<Reading>(from + k * kValueBytes, window_[k] + d);
        for (int k = 0; k < kTile; k++)
            for (int rest = n_; rest < size_; rest++) window_[k][rest] = 0;
    }

    const float* without_zeros(int c, const float* values) {
        for (int d = 0; d < size_; d++) own_[d] = values[d];
        for (int d = 0; d < n_; d++) {
            if (is_zero(Reading::compared(value(c, d)))) own_[d] = __builtin_nanf("");
        }
        return own_;
    }

    const Documents& documents_;
    const Columns& columns_;
    const char* const rows_;
    const int n_, size_;
    int end_ = 0;  // end of the window's features
    bool lossy_ = false;
    alignas(64) float window_[kTile][kRankBlock];
    alignas(64) float own_[kRankBlock];  // values of a single column
};

}  // namespace
}  // namespace gpuqs
