// SSE4.2 has no gathers or permutes of floats; AVX2 introduced them.
#pragma once
#include "isa/portable/search.inl"
