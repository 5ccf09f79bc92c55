#pragma once
#include "isa/portable/jumps.inl"
