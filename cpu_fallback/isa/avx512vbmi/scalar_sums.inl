#pragma once
#include "isa/avx512/scalar_sums.inl"
