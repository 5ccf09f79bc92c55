#pragma once
#include "isa/avx2/rows.inl"
