#pragma once
#include "isa/portable/paths.inl"
