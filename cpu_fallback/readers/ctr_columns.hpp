// CatBoost's CTRs: statistics of categories, and of combinations of categories and tests, as columns of documents.
//
//     for each document and projection:
//         key = 0
//         for each element: key += factor * (hash of the category, or whether the test holds)
//         row = the place of key among the projection's keys, else n_keys
//         for each CTR c of the projection: out[first + c] = values[row][c]
#pragma once
#include <cstdint>

namespace gpuqs {

enum CtrElementKind : int32_t {
    CTR_CATEGORY,  // the hash of the column's category
    CTR_ABOVE,     // whether the column's number is above a border
    CTR_EQUALS,    // whether the column's category is the one with a hash
};

// A part of the key of CTRs. A key is the sum of all parts, each times its factor: CatBoost's chain of hashes, expanded.
struct CtrElement {
    int32_t kind;  // CtrElementKind
    int32_t column;
    float border;
    int32_t nan_above;  // whether NaN counts as above the border
    uint32_t hash;
    uint64_t factor;
};

// What the key of CTRs is made of, and their values [n_keys + 1][n_ctrs]; the last row is for keys that training has not met.
struct CtrProjection {
    const CtrElement* elements;
    int64_t n_elements;
    const uint64_t* keys;    // ascending, followed by CTR_WINDOW more
    const uint32_t* starts;  // [2^bits + 1]: at i, the first key whose upper bits are at least i
    const float* values;
    int64_t n_keys;
    int32_t bits;            // of starts: 1 to 31
    int32_t n_ctrs;
    int32_t first;           // column of out that the first CTR fills
};

// A projection of one category and some tests, in a CtrGroup. Its tests select among the numbers from `at` on in the category's row.
struct CtrOfGroup {
    const CtrElement* tests;
    int64_t n_tests;      // if the i-th holds, the place moves on by 2^i n_ctrs
    int32_t at;
    int32_t n_ctrs;
    int32_t first;        // column of out that the first CTR fills
};

// Projections by the same column's categories: one lookup finds the row of values [n_keys + 1][size] that has all their CTRs.
struct CtrGroup {
    CtrProjection category;
    const CtrOfGroup* members;
    int64_t n_members;
    const float* values;
    int64_t size;
};

// Keys that are compared at once.
constexpr int64_t CTR_WINDOW = 8;

// CatBoost's hash of two is CTR_FACTOR * (a + CTR_FACTOR * b).
constexpr uint64_t CTR_FACTOR = 0x4906ba494954cb65;

// Fill the projections' columns of out [column][n] for n documents, which are given [column][n] with categories as hashes. out
// already holds the given numbers, as float32.
void fill_ctrs(const double* given, const CtrProjection* projections, int64_t n_projections, const CtrGroup* groups, int64_t n_groups,
               int64_t n, float* out, int n_threads);

}  // namespace gpuqs
