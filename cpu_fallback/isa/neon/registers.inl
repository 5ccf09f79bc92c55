// NEON's registers of bytes, for sixteen documents.
#pragma once
#include <arm_neon.h>

#include <cstdint>

#include "generic/words.inl"

namespace gpuqs {
namespace {

inline Word16 select(Word16 m, Word16 a, Word16 b) { return (Word16)vbslq_u64((uint64x2_t)m, (uint64x2_t)a, (uint64x2_t)b); }

using Register = uint8x16_t;
constexpr int kRegisterBytes = sizeof(Register);

inline Register load_register(const void* at) { return vld1q_u8(static_cast<const uint8_t*>(at)); }
inline void store_register(void* at, Register r) { vst1q_u8(static_cast<uint8_t*>(at), r); }

template <int w> inline Register unpack_low(Register a, Register b) {
    if (w == 1) return vzip1q_u8(a, b);
    return vreinterpretq_u8_u16(vzip1q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)));
}
template <int w> inline Register unpack_high(Register a, Register b) {
    if (w == 1) return vzip2q_u8(a, b);
    return vreinterpretq_u8_u16(vzip2q_u16(vreinterpretq_u16_u8(a), vreinterpretq_u16_u8(b)));
}

inline Register add(float, Register a, Register b) {
    return vreinterpretq_u8_f32(vaddq_f32(vreinterpretq_f32_u8(a), vreinterpretq_f32_u8(b)));
}
inline Register add(int32_t, Register a, Register b) {
    return vreinterpretq_u8_s32(vaddq_s32(vreinterpretq_s32_u8(a), vreinterpretq_s32_u8(b)));
}

}  // namespace
}  // namespace gpuqs
