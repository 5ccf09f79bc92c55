// The position of a bitvector's leftmost set bit is that of the exit leaf.
#pragma once
#include <cstdint>

namespace gpuqs {
namespace {

inline int leftmost(uint64_t bits) { return __builtin_clzll(bits); }
inline int leftmost(uint32_t bits) { return __builtin_clz(bits); }
inline int leftmost(uint16_t bits) { return __builtin_clz(static_cast<uint32_t>(bits) << 16); }
inline int leftmost(uint8_t bits) { return __builtin_clz(static_cast<uint32_t>(bits) << 24); }

}  // namespace
}  // namespace gpuqs
