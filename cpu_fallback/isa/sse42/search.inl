// Gathers and permutes of floats come with AVX2.
#pragma once
#include "isa/portable/search.inl"
