// Plain compares of a row are as fast as any made by hand.
#pragma once
#include "isa/portable/rows.inl"
