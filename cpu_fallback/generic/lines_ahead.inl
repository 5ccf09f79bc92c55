// Documents are asked for before they are coded: spread over the columns, for many at once would make loads wait.
//
//   a line: the columns that lie within 64 bytes of a row, of all rows of a block; or one column, where rows lie so
//   for each column that begins a line: the one some lines later is asked for, a share of its rows with each column;
//       behind a block's last line comes the next block's first
//
// So few lines wait in the caches. Whole rows of the next block, in address order, would take two blocks' place there.
#pragma once
#include <cstdint>

#include "layout/columns.hpp"
#include "layout/documents.hpp"
#include "layout/prefetch.hpp"

namespace gpuqs {
namespace {

class LinesAhead {
public:
    // For blocks of `size` rows from `first` on. There is a column at least.
    LinesAhead(const Documents& documents, const Columns& columns, int64_t first, int size)
        : documents_(documents), columns_(columns), size_(size), features_(together(documents.column_stride)),
          rows_(together(documents.row_stride)), step_(rows_ * documents.row_stride), first_(first) {
        begin_line();
        ask(size);
        for (int line = 1; line < (rows_ > 1 ? kColumnsAhead : kLinesAhead); line++) {
            next_line();
            ask(size);
        }
    }

    // With each column, in their order.
    void pass(int column) {
        if (columns_left_ == 0) {
            next_line();
            columns_left_ = columns_of_line(column);
            share_ = columns_left_ == 1 ? size_ : (size_ + columns_left_ - 1) / columns_left_;
        }
        columns_left_--;
        ask(share_);
    }

private:
    static constexpr int kLinesAhead = 5, kColumnsAhead = 16;
    static constexpr int64_t kLine = 64;  // bytes

    // So many neighbours have places in a cache line.
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
    // So many rows of the line, as far as it has them.
    void ask(int rows) {
        if (rows > left_) rows = left_;
        left_ -= rows;
        const char* at = at_;
        for (; rows > 0; rows -= rows_, at += step_) prefetch(at);
        at_ = at;
    }

    const Documents& documents_;
    const Columns& columns_;
    const int size_;
    const int features_, rows_;         // that lie in a cache line together
    const int64_t step_;                // from one cache line of a line to the next
    int columns_left_ = 0, share_ = 0;  // of the line that is passed: columns; rows for each to ask for
    // The line that is asked for: its first column and row, the rows that are left, where the next lies.
    int column_ = 0;
    int64_t first_;
    int left_ = 0;
    const char* at_ = nullptr;
};

}  // namespace
}  // namespace gpuqs
