// Tiles of four by four gain nothing over single values.
#pragma once
#include "isa/portable/tile.inl"
