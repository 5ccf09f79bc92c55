// Plain C++ compares of a row are as fast as hand-written ones.
#pragma once
#include "isa/portable/rows.inl"
