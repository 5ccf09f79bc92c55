#pragma once
#include "isa/avx512/search.inl"
