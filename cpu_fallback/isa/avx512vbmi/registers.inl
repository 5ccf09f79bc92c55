#pragma once
#include "isa/avx512/registers.inl"
