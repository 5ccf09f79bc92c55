#pragma once
#include "isa/avx512/gathers.inl"
