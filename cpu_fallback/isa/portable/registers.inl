// Words as any compiler's vectors; no registers to shuffle.
#pragma once
#include "generic/words.inl"
