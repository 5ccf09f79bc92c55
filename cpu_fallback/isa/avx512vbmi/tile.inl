#pragma once
#include "isa/avx512/tile.inl"
