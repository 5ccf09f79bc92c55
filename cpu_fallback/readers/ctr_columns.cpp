#include "readers/ctr_columns.hpp"

#include <algorithm>
#include <cmath>

#include "driver/threads.hpp"

namespace gpuqs {
namespace {

// Documents whose keys are looked up together, so that their waits for memory overlap.
constexpr int64_t BLOCK = 4096;
// Lookups in flight together: with fewer documents, several projections are looked up at once.
constexpr int64_t FEW = 64;
constexpr int64_t LEAST = 64;  // documents of a thread

// A category's hash enters a key as a signed number, as in CatBoost.
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

// Where the keys with the same upper bits as this key begin; the next entry is where they end. There are few of them.
const uint32_t* start_of(const CtrProjection& p, uint64_t key) { return p.starts + (key >> (64 - p.bits)); }

// Finds the place of each key among the projection's keys, or n_keys, in three steps, each of which prefetches what the next one reads.
void ask_for_rows(const CtrProjection& p, const uint64_t* key, int64_t n) {
    for (int64_t d = 0; d < n; d++) __builtin_prefetch(start_of(p, key[d]));
}
void begin_rows(const CtrProjection& p, const uint64_t* key, int64_t n, uint32_t* row) {
    for (int64_t d = 0; d < n; d++) {
        row[d] = *start_of(p, key[d]);
        __builtin_prefetch(p.keys + row[d]);
        __builtin_prefetch(p.keys + row[d] + CTR_WINDOW - 1);
    }
}
void end_rows(const CtrProjection& p, const uint64_t* key, int64_t n, uint32_t* row) {
    for (int64_t d = 0; d < n; d++) {
        const uint64_t* at = p.keys + row[d];
        uint32_t less = 0;
        for (int64_t i = 0; i < CTR_WINDOW; i++) less += at[i] < key[d];
        at += less;
        if (less == CTR_WINDOW) at = std::lower_bound(at, p.keys + start_of(p, key[d])[1], key[d]);
        row[d] = static_cast<uint32_t>(at < p.keys + p.n_keys && *at == key[d] ? at - p.keys : p.n_keys);
        __builtin_prefetch(p.values + static_cast<int64_t>(row[d]) * p.n_ctrs);
    }
}

// Documents whose rows of a group are read together: the rows stay in the caches for all its projections.
constexpr int64_t GROUP_BLOCK = 64;

// Add `step` to the places of documents for which a test holds.
void add_step(const CtrElement& test, const double* given, const float* number, int64_t n, int32_t step, int32_t* place) {
    if (test.kind == CTR_EQUALS) {
        const double hash = test.hash;
        for (int64_t d = 0; d < n; d++) place[d] += given[d] == hash ? step : 0;
    } else if (test.nan_above) {
        for (int64_t d = 0; d < n; d++) place[d] += number[d] <= test.border ? 0 : step;
    } else {
        for (int64_t d = 0; d < n; d++) place[d] += number[d] > test.border ? step : 0;
    }
}

void fill_group(const CtrGroup& group, const double* given, int64_t given_step, int64_t start, int64_t n, int64_t out_step,
                float* out) {
    uint64_t key[GROUP_BLOCK];
    uint32_t row[GROUP_BLOCK];
    const float* of_document[GROUP_BLOCK];
    int32_t place[GROUP_BLOCK];
    const int32_t column = group.category.elements->column;
    for (const int64_t stop = start + n; start < stop; start += GROUP_BLOCK) {
        const int64_t m = std::min(GROUP_BLOCK, stop - start);
        std::fill_n(key, m, 0);
        add_element(*group.category.elements, given + column * given_step + start, m, key);
        begin_rows(group.category, key, m, row);
        end_rows(group.category, key, m, row);
        for (int64_t d = 0; d < m; d++) of_document[d] = group.values + row[d] * group.size;
        for (int64_t i = 0; i < group.n_members; i++) {
            const CtrOfGroup& p = group.members[i];
            std::fill_n(place, m, p.at);
            for (int64_t t = 0; t < p.n_tests; t++) {
                const CtrElement& test = p.tests[t];
                add_step(test, given + test.column * given_step + start, out + test.column * out_step + start, m, p.n_ctrs << t, place);
            }
            for (int32_t c = 0; c < p.n_ctrs; c++) {
                float* const to = out + (p.first + c) * out_step + start;
                for (int64_t d = 0; d < m; d++) to[d] = of_document[d][place[d] + c];
            }
        }
    }
}

// Fills documents [start, start + n), 1 to BLOCK of them, for the projections that are in no group.
void fill_alone(const CtrProjection* projections, int64_t n_projections, const double* given, int64_t step, int64_t start, int64_t n,
                float* out) {
    uint64_t key[BLOCK];
    uint32_t row[BLOCK];
    const int64_t together = std::max<int64_t>(FEW / n, 1);
    for (int64_t first = 0; first < n_projections; first += together) {
        const auto each = [&](auto step_of) {
            for (int64_t i = first; i < std::min(first + together, n_projections); i++)
                step_of(projections[i], key + (i - first) * n, row + (i - first) * n);
        };
        each([&](const CtrProjection& p, uint64_t* keys, uint32_t*) {
            std::fill_n(keys, n, 0);
            for (int64_t e = 0; e < p.n_elements; e++) add_element(p.elements[e], given + p.elements[e].column * step + start, n, keys);
            if (together > 1) ask_for_rows(p, keys, n);
        });
        each([&](const CtrProjection& p, const uint64_t* keys, uint32_t* rows) { begin_rows(p, keys, n, rows); });
        each([&](const CtrProjection& p, const uint64_t* keys, uint32_t* rows) { end_rows(p, keys, n, rows); });
        each([&](const CtrProjection& p, const uint64_t*, const uint32_t* rows) {
            for (int32_t c = 0; c < p.n_ctrs; c++) {
                float* const to = out + (p.first + c) * step + start;
                for (int64_t d = 0; d < n; d++) to[d] = p.values[static_cast<int64_t>(rows[d]) * p.n_ctrs + c];
            }
        });
    }
}

}  // namespace

void fill_ctrs(const double* given, const CtrProjection* projections, int64_t n_projections, const CtrGroup* groups, int64_t n_groups,
               int64_t n, float* out, int n_threads) {
    n_threads = std::max(n_threads, 1);
    const int64_t blocks = (n + BLOCK - 1) / BLOCK, shares = std::min<int64_t>(n_threads, (n + LEAST - 1) / LEAST);
    const int64_t pieces = (blocks + shares - 1) / shares * shares;  // the same number for each thread
    const auto fill = [&](int64_t p) {
        const int64_t start = n * p / pieces, size = n * (p + 1) / pieces - start;
        for (int64_t i = 0; i < n_groups; i++) fill_group(groups[i], given, n, start, size, n, out);
        fill_alone(projections, n_projections, given, n, start, size, out);
    };
    if (n_threads == 1 || pieces == 1) {
        for (int64_t p = 0; p < pieces; p++) fill(p);
    } else {
        share_out(pieces, n_threads, [&](int, int64_t p) { fill(p); });
    }
}

}  // namespace gpuqs
