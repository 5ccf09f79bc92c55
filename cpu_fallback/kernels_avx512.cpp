// AVX-512 F, BW, DQ, VL, CD: Skylake-X and later, Zen 4 and later.
#include <immintrin.h>

#include "kernels.hpp"

namespace gpuqs {
namespace {

#include "tile_avx.inl"
#include "registers_avx512.inl"
#include "values.inl"
#include "stages.inl"
#include "qs.inl"
#include "lanes_avx512.inl"
#include "vqs.inl"
#include "walk.inl"
#include "rankwalk.inl"
#include "words.inl"
#include "search_avx512.inl"
#include "ranks.inl"
#include "bitslice.inl"
#include "table.inl"

}  // namespace

extern const Kernels kernels_avx512 = table("avx512");

}  // namespace gpuqs
