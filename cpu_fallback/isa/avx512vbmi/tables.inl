#pragma once
#include "isa/avx512/tables.inl"
