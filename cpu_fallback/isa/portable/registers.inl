// Words as portable compiler vectors; no registers to shuffle.
#pragma once
#include "generic/words.inl"
