#pragma once
#include "isa/avx512/lanes.inl"
