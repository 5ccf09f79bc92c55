// Words of any compiler's vectors, and no registers to shuffle.
#pragma once
#include "generic/words.inl"
