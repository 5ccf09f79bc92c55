// AVX-512 with VBMI and GFNI (Ice Lake, Sapphire Rapids, Zen 4 and later).
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

extern const Kernels kernels_avx512vbmi = table("avx512vbmi");

}  // namespace gpuqs
