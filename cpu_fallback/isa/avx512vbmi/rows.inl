#pragma once
#include "isa/avx512/rows.inl"
