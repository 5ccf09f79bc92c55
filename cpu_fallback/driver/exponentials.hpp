// Exponentials of many numbers, for links.
//
//   exponentials        the C library's exp of each number, bit for bit, as the training libraries call that
//   table_exponentials  CatBoost's exponential of each number
//
// The C library takes one number at a time. If the processor has AVX2 and fused multiply-add and the library computes as glibc
// does, vector code repeats glibc's operations (exponentials_fma.cpp); about a thousand numbers of each type are tested when the
// module is loaded. Otherwise, and for numbers that are too large or too small, the library itself is called.
#pragma once
#include <cstdint>

namespace gpuqs {

// out may be x.
void exponentials(const double* x, int64_t n, double* out);
void exponentials(const float* x, int64_t n, float* out);
void table_exponentials(const double* x, int64_t n, double* out);
void table_exponentials(const float* x, int64_t n, float* out);

// CatBoost's exponential of a number is 0 below the first limit, and infinite from the second on.
constexpr double kMinTableExponent = -708.39641853226408, kMaxTableExponent = 709.78271289338397;

// Whether the vector code gives the C library's exponentials here.
bool has_vector_exponentials();

// For processors with AVX2 and FMA. Each returns whether all numbers fit: magnitudes below kMaxExponent (floats:
// kMaxFloatExponent), or for by_table numbers between the two limits above. The results of numbers that do not fit are
// unspecified. out must not be x.
struct VectorExponentials {
    bool (*doubles)(const double* x, int64_t n, double* out);
    bool (*floats)(const float* x, int64_t n, float* out);
    bool (*by_table)(const uint64_t* mantissas, const double* x, int64_t n, double* out);
};
constexpr double kMaxExponent = 512;
constexpr float kMaxFloatExponent = 88;
extern const VectorExponentials vector_exponentials;

}  // namespace gpuqs
