#include "readers/ctr_columns.hpp"

#include <algorithm>
#include <cmath>

namespace gpuqs {
namespace {

// Documents whose keys are looked up side by side, so that none waits for memory alone.
constexpr int64_t BLOCK = 4096;

// A category's hash counts as CatBoost has it, as a signed number.
uint64_t part_of_category(double hash) {
    return hash >= 0 && hash < 4294967296.0 ? static_cast<uint64_t>(static_cast<int32_t>(static_cast<uint32_t>(hash))) : 0;
}

// Add an element's part to the keys of documents.
void add_element(const CtrElement& element, const double* given, int64_t n, uint64_t* key) {
    const uint64_t factor = element.factor;
    if (element.kind == CTR_CATEGORY) {
        for (int64_t d = 0; d < n; d++) key[d] += factor * part_of_category(given[d]);
    } else if (element.kind == CTR_EQUALS) {
        const double hash = element.hash;
        for (int64_t d = 0; d < n; d++) key[d] += given[d] == hash ? factor : 0;
    } else if (element.nan_above) {
        for (int64_t d = 0; d < n; d++) key[d] += !(static_cast<float>(given[d]) <= element.border) ? factor : 0;
    } else {
        for (int64_t d = 0; d < n; d++) key[d] += static_cast<float>(given[d]) > element.border ? factor : 0;
    }
}

// The place of each key among the projection's, or n_keys: the upper bits tell where its like begin, and few have the same.
void find_rows(const CtrProjection& p, const uint64_t* key, int64_t n, uint32_t* row) {
    const int shift = 64 - p.bits;
    for (int64_t d = 0; d < n; d++) {
        row[d] = p.starts[key[d] >> shift];
        __builtin_prefetch(p.keys + row[d]);
        __builtin_prefetch(p.keys + row[d] + CTR_WINDOW - 1);
    }
    for (int64_t d = 0; d < n; d++) {
        const uint64_t* at = p.keys + row[d];
        uint32_t less = 0;
        for (int64_t i = 0; i < CTR_WINDOW; i++) less += at[i] < key[d];
        at += less;
        if (less == CTR_WINDOW) at = std::lower_bound(at, p.keys + p.starts[(key[d] >> shift) + 1], key[d]);
        row[d] = static_cast<uint32_t>(at < p.keys + p.n_keys && *at == key[d] ? at - p.keys : p.n_keys);
        __builtin_prefetch(p.values + static_cast<int64_t>(row[d]) * p.n_ctrs);
    }
}

}  // namespace

void fill_ctrs(const double* given, int64_t given_step, const CtrProjection* projections, int64_t n_projections, int64_t start,
               int64_t n, int64_t out_step, float* out) {
    uint64_t key[BLOCK];
    uint32_t row[BLOCK];
    for (const int64_t stop = start + n; start < stop; start += BLOCK) {
        const int64_t m = std::min(BLOCK, stop - start);
        for (int64_t i = 0; i < n_projections; i++) {
            const CtrProjection& p = projections[i];
            std::fill_n(key, m, 0);
            for (int64_t e = 0; e < p.n_elements; e++)
                add_element(p.elements[e], given + p.elements[e].column * given_step + start, m, key);
            find_rows(p, key, m, row);
            for (int32_t c = 0; c < p.n_ctrs; c++) {
                float* const to = out + (p.first + c) * out_step + start;
                for (int64_t d = 0; d < m; d++) to[d] = p.values[static_cast<int64_t>(row[d]) * p.n_ctrs + c];
            }
        }
    }
}

}  // namespace gpuqs
