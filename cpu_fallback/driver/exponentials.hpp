// Exponentials of many numbers, for links.
//
//   exponentials        of each number: the C library's exp, bit for bit, for the training libraries call that
//   table_exponentials  of each number: CatBoost's
//
// The C library takes a number at a time. Where a processor has fused multiply-add and the library is known to compute as glibc
// does, vectors go through the same operations (exponentials_fma.cpp): some thousand numbers, each looked at when the module is
// loaded, tell. Elsewhere, and for what is too large or too small, the library itself is called.
#pragma once
#include <cstdint>

namespace gpuqs {

// out may be x.
void exponentials(const double* x, int64_t n, double* out);
void exponentials(const float* x, int64_t n, float* out);
void table_exponentials(const double* x, int64_t n, double* out);
void table_exponentials(const float* x, int64_t n, float* out);

// CatBoost's exponential of what is less than the first is 0, of what is not less than the second infinite.
constexpr double kLeastTableExponent = -708.39641853226408, kMostTableExponent = 709.78271289338397;

// Whether vectors make the C library's here.
bool has_vector_exponentials();

// For processors with AVX2 and FMA. Each tells whether all numbers fit: are below kMostExponent (floats: kMostFloatExponent) in
// magnitude, or between the two above. Of those that do not, it makes anything. out is not x.
struct VectorExponentials {
    bool (*doubles)(const double* x, int64_t n, double* out);
    bool (*floats)(const float* x, int64_t n, float* out);
    bool (*by_table)(const uint64_t* mantissas, const double* x, int64_t n, double* out);
};
constexpr double kMostExponent = 512;
constexpr float kMostFloatExponent = 88;
extern const VectorExponentials vector_exponentials;

}  // namespace gpuqs
