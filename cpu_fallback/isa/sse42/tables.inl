// Sixteen bytes per look-up.
#pragma once
#include "generic/byte_tables.inl"
#include "generic/value_tables.inl"
