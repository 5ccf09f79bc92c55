#pragma once
#include "isa/portable/gathers.inl"
