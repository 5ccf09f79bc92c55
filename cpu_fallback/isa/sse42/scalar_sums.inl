#pragma once
#include "isa/portable/scalar_sums.inl"
