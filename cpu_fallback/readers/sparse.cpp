#include "readers/sparse.hpp"

#include <algorithm>
#include <type_traits>

namespace gpuqs {
namespace {

constexpr SparseResult kUnread = {SPARSE_UNREAD, 0, 0};

// Calls visit(const T*) with the type T of these indices.
template <class Visit> SparseResult visit_indices(const Numbers& of, Visit visit) {
    if (of.kind != 'i') return kUnread;
    switch (of.bytes) {
        case 4: return visit(static_cast<const int32_t*>(of.first));
        case 8: return visit(static_cast<const int64_t*>(of.first));
    }
    return kUnread;
}
template <class Visit> SparseResult visit_data(const Numbers& of, Visit visit) {
    switch (of.kind << 8 | of.bytes) {
        case 'f' << 8 | 4: return visit(static_cast<const float*>(of.first));
        case 'f' << 8 | 8: return visit(static_cast<const double*>(of.first));
        case 'i' << 8 | 1: return visit(static_cast<const int8_t*>(of.first));
        case 'i' << 8 | 2: return visit(static_cast<const int16_t*>(of.first));
        case 'i' << 8 | 4: return visit(static_cast<const int32_t*>(of.first));
        case 'i' << 8 | 8: return visit(static_cast<const int64_t*>(of.first));
        case 'u' << 8 | 1: return visit(static_cast<const uint8_t*>(of.first));
        case 'u' << 8 | 2: return visit(static_cast<const uint16_t*>(of.first));
        case 'u' << 8 | 4: return visit(static_cast<const uint32_t*>(of.first));
        case 'u' << 8 | 8: return visit(static_cast<const uint64_t*>(of.first));
    }
    return kUnread;
}
// Calls visit(indices, data, out). Visitors capture by value: compilers must assume that stores change what is captured by reference.
template <class Visit> SparseResult visit_all(const SparseEntries& entries, const DenseRows& out, Visit visit) {
    return visit_indices(entries.indices, [&](auto indices) {
        return visit_data(entries.data, [&](auto data) {
            return out.is_double ? visit(indices, data, static_cast<double*>(out.first))
                                 : visit(indices, data, static_cast<float*>(out.first));
        });
    });
}

}  // namespace

SparseResult scatter_rows(const int64_t* bounds, const SparseEntries& entries, int64_t start, int64_t n_columns,
                          const int32_t* column_of, int64_t* seen, const DenseRows& rows) {
    return visit_all(entries, rows, [=](auto indices, auto data, auto* out) mutable -> SparseResult {
        using Out = std::remove_reference_t<decltype(*out)>;
        for (int64_t row = start; row < start + rows.n; row++, out += rows.n_tested) {
            const int64_t first = *bounds++, end = *bounds;
            if (first < 0 || first > end || end > entries.n) return {SPARSE_BOUNDS, row, 0};
            for (int64_t at = first; at < end; at++) {
                const int64_t index = indices[at];
                if (index < 0 || index >= n_columns) return {SPARSE_OUTSIDE, row, index};
                const int32_t column = column_of[index];
                if (column < 0) continue;
                if (seen[column] == row) return {SPARSE_TWICE, row, index};
                seen[column] = row;
                if (entries.refuses && static_cast<double>(data[at]) == entries.refused) return {SPARSE_REFUSED, row, index};
                out[column] = static_cast<Out>(data[at]);
            }
        }
        return {SPARSE_OK, 0, 0};
    });
}

SparseResult check_columns(const int64_t* bounds, const Numbers& indices, int64_t n_entries, int64_t n_rows, int64_t n_tested) {
    return visit_indices(indices, [=](auto index_of) -> SparseResult {
        for (int64_t column = 0; column < n_tested; column++) {
            const int64_t first = bounds[2 * column], end = bounds[2 * column + 1];
            if (first < 0 || first > end || end > n_entries) return {SPARSE_BOUNDS, column, 0};
            int64_t last = -1;
            bool ascends = true;
            for (int64_t at = first; at < end; at++) {
                const int64_t index = index_of[at];
                if (index < 0 || index >= n_rows) return {SPARSE_OUTSIDE, column, index};
                ascends &= index > last;
                last = index;
            }
            if (!ascends) return {SPARSE_UNSORTED, column, 0};
        }
        return {SPARSE_OK, 0, 0};
    });
}

SparseResult scatter_columns(const int64_t* bounds, const SparseEntries& entries, int64_t start, const DenseRows& rows) {
    return visit_all(entries, rows, [=](auto indices, auto data, auto* out) -> SparseResult {
        using Out = std::remove_reference_t<decltype(*out)>;
        for (int64_t column = 0; column < rows.n_tested; column++, out += rows.n) {
            const auto* const end = indices + bounds[2 * column + 1];
            for (const auto* at = std::lower_bound(indices + bounds[2 * column], end, start); at < end; at++) {
                const int64_t row = *at - start;
                if (row < 0 || row >= rows.n) break;
                if (entries.refuses && static_cast<double>(data[at - indices]) == entries.refused)
                    return {SPARSE_REFUSED, column, start + row};
                out[row] = static_cast<Out>(data[at - indices]);
            }
        }
        return {SPARSE_OK, 0, 0};
    });
}

}  // namespace gpuqs
