// NEON: four floats or two doubles per register; eight documents at a time.
#pragma once
#include <arm_neon.h>

#include <cstdint>

#include "generic/leftmost.inl"

namespace gpuqs {
namespace {

struct Lanes {
    static constexpr int n = 8;
    struct Singles { float32x4_t at[2]; };
    struct Doubles { float64x2_t at[4]; };
    struct Where32 { uint32x4_t at[2]; };  // lanes of 32 bits, all ones or zero
    struct Where64 { uint64x2_t at[4]; };

    static Singles load(const float* x) { return {{vld1q_f32(x), vld1q_f32(x + 4)}}; }
    static Doubles load(const double* x) { return {{vld1q_f64(x), vld1q_f64(x + 2), vld1q_f64(x + 4), vld1q_f64(x + 6)}}; }

    static Where32 greater(const Singles& v, float threshold) {
        const float32x4_t t = vdupq_n_f32(threshold);
        return {{vcgtq_f32(v.at[0], t), vcgtq_f32(v.at[1], t)}};
    }
    static Where64 greater(const Doubles& v, double threshold) {
        const float64x2_t t = vdupq_n_f64(threshold);
        return {{vcgtq_f64(v.at[0], t), vcgtq_f64(v.at[1], t), vcgtq_f64(v.at[2], t), vcgtq_f64(v.at[3], t)}};
    }
    static Where32 is_nan(const Singles& v) {
        return {{vmvnq_u32(vceqq_f32(v.at[0], v.at[0])), vmvnq_u32(vceqq_f32(v.at[1], v.at[1]))}};
    }
    static Where64 is_nan(const Doubles& v) {
        Where64 where;
        for (int r = 0; r < 4; r++) where.at[r] = vreinterpretq_u64_u32(vmvnq_u32(vreinterpretq_u32_u64(vceqq_f64(v.at[r], v.at[r]))));
        return where;
    }
    static bool any(const Where32& w) { return vmaxvq_u32(vorrq_u32(w.at[0], w.at[1])) != 0; }
    static bool any(const Where64& w) {
        const uint64x2_t all = vorrq_u64(vorrq_u64(w.at[0], w.at[1]), vorrq_u64(w.at[2], w.at[3]));
        return vmaxvq_u32(vreinterpretq_u32_u64(all)) != 0;
    }

    static void and_where(const Where32& w, uint32_t* bits, uint32_t mask) {
        const uint32x4_t m = vdupq_n_u32(mask);
        for (int r = 0; r < 2; r++) vst1q_u32(bits + 4 * r, vandq_u32(vld1q_u32(bits + 4 * r), vornq_u32(m, w.at[r])));
    }
    static void and_where(const Where64& w, uint64_t* bits, uint64_t mask) {
        const uint64x2_t m = vdupq_n_u64(mask);
        for (int r = 0; r < 4; r++) vst1q_u64(bits + 2 * r, vandq_u64(vld1q_u64(bits + 2 * r), vornq_u64(m, w.at[r])));
    }
    static void and_where(const Where32& w, uint64_t* bits, uint64_t mask) {
        // Each 32-bit lane, doubled, becomes a 64-bit lane.
        Where64 wide;
        for (int r = 0; r < 2; r++) {
            wide.at[2 * r] = vreinterpretq_u64_u32(vzip1q_u32(w.at[r], w.at[r]));
            wide.at[2 * r + 1] = vreinterpretq_u64_u32(vzip2q_u32(w.at[r], w.at[r]));
        }
        and_where(wide, bits, mask);
    }
    static void and_where(const Where64& w, uint32_t* bits, uint32_t mask) {
        const auto halves = [](uint64x2_t a, uint64x2_t b) { return vuzp1q_u32(vreinterpretq_u32_u64(a), vreinterpretq_u32_u64(b)); };
        and_where(Where32{{halves(w.at[0], w.at[1]), halves(w.at[2], w.at[3])}}, bits, mask);
    }

    static void leftmost(const uint32_t* bits, uint8_t* leaf) {
        const uint32x4_t low = vclzq_u32(vld1q_u32(bits)), high = vclzq_u32(vld1q_u32(bits + 4));
        vst1_u8(leaf, vmovn_u16(vcombine_u16(vmovn_u32(low), vmovn_u32(high))));
    }
    static void leftmost(const uint64_t* bits, uint8_t* leaf) {
        for (int k = 0; k < n; k++) leaf[k] = static_cast<uint8_t>(gpuqs::leftmost(bits[k]));
    }
};

}  // namespace
}  // namespace gpuqs
