// CityHash64, version 1.0, by which CatBoost identifies categories.
#pragma once
#include <cstdint>

namespace gpuqs {

uint64_t city_hash_64(const char* text, uint64_t n);

}  // namespace gpuqs
