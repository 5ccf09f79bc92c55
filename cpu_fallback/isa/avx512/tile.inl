#pragma once
#include "isa/avx2/tile.inl"
