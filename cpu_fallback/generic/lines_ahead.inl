// Prefetches documents before they are coded. The prefetches are spread over the columns, because many at once would delay loads.
//
//   a line: the columns within 64 bytes of a row, for all rows of a block; or one column, if documents are column-major
//   as a line's columns are coded, the line some lines later is prefetched, a share of its rows with each column;
//       after a block's last line comes the next block's first
//
// This keeps few lines waiting in the caches. Prefetching whole rows of the next block in address order would take up the space
// of two blocks there.
#pragma once
#include <cstdint>

#include "layout/columns.hpp"
#include "layout/documents.hpp"
#include "layout/prefetch.hpp"

namespace gpuqs {
namespace {

class LinesAhead {
public:
    // For blocks of `size` rows from `first` on. There must be at least one column.
    LinesAhead(const Documents& documents, const Columns& columns, int64_t first, int size)
        : documents_(documents), columns_(columns), size_(size), features_(together(documents.column_stride)),
          rows_(together(documents.row_stride)), step_(rows_ * documents.row_stride), first_(first) {
        begin_line();
        prefetch_rows(size);
        for (int line = 1; line < (rows_ > 1 ? kColumnsAhead : kLinesAhead); line++) {
            next_line();
            prefetch_rows(size);
        }
    }

    // To be called as each column is coded, in order.
    void pass(int column) {
        if (columns_left_ == 0) {
            next_line();
            columns_left_ = columns_of_line(column);
            share_ = columns_left_ == 1 ? size_ : (size_ + columns_left_ - 1) / columns_left_;
        }
        columns_left_--;
        prefetch_rows(share_);
    }

private:
    static constexpr int kLinesAhead = 5, kColumnsAhead = 16;
    static constexpr int64_t kLine = 64;  // bytes

    // How many neighbours at this stride a cache line holds.
    static int together(int64_t stride) {
        if (stride < 0) stride = -stride;
        return stride > 0 && stride < kLine ? static_cast<int>(kLine / stride) : 1;
    }

    int columns_of_line(int first) const {
        if (features_ == 1) return 1;
        int end = first + 1;
        while (end < columns_.n && columns_.feature[end] - columns_.feature[first] < features_) end++;
        return end - first;
    }
    void next_line() {
        column_ += columns_of_line(column_);
        if (column_ == columns_.n) column_ = 0, first_ += size_;
        begin_line();
    }
    void begin_line() {
        left_ = documents_.n - first_ < size_ ? static_cast<int>(documents_.n - first_) : size_;
        at_ = static_cast<const char*>(documents_.data) + first_ * documents_.row_stride +
              columns_.feature[column_] * documents_.column_stride;
    }
    // Prefetches the next `rows` rows of the line, or those that are left.
    void prefetch_rows(int rows) {
        if (rows > left_) rows = left_;
        left_ -= rows;
        const char* at = at_;
        for (; rows > 0; rows -= rows_, at += step_) prefetch(at);
        at_ = at;
    }

    const Documents& documents_;
    const Columns& columns_;
    const int size_;
    const int features_, rows_;         // how many of each share a cache line
    const int64_t step_;                // bytes from one cache line of a line to the next
    int columns_left_ = 0, share_ = 0;  // of the line being coded: columns left; rows to prefetch with each
    // The line being prefetched: its first column and first row, the number of rows left, and where the next row is.
    int column_ = 0;
    int64_t first_;
    int left_ = 0;
    const char* at_ = nullptr;
};

}  // namespace
}  // namespace gpuqs
