// AVX-512 F, BW, DQ, VL, CD (Skylake-X, Cascade Lake).
#include <immintrin.h>

#include "kernels.hpp"

namespace gpuqs {
namespace {

using Word = uint64_t __attribute__((vector_size(64)));

#include "tile_avx.inl"
#include "values_avx512.inl"
#include "stages.inl"
#include "qs.inl"
#include "lanes_avx512.inl"
#include "vqs.inl"
#include "walk.inl"
#include "search_avx512.inl"
#include "ranks.inl"
#include "bitslice.inl"
#include "table.inl"

}  // namespace

extern const Kernels kernels_avx512 = table("avx512");

}  // namespace gpuqs
