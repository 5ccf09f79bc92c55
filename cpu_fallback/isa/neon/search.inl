// Sixteen documents, four per register, search each level side by side. Levels of up to 64 thresholds are looked up byte by
// byte in registers, 64 bytes per instruction; larger ones one document at a time.
#pragma once
#include <arm_neon.h>

#include <cstdint>

namespace gpuqs {
namespace {

struct Search {
    static constexpr int kLevels = 8;
    static constexpr int kSide = 4;  // registers of documents; blocks have at least sixteen documents

    // table[answers] of a level of n <= 64 thresholds.
    template <int n> static float32x4_t look_up(const float* table, uint32x4_t answers) {
        const uint8_t* bytes = reinterpret_cast<const uint8_t*>(table);
        // Byte i of a threshold is byte 4 * answer + i of the table.
        const uint8x16_t index = vreinterpretq_u8_u32(vmlaq_n_u32(vdupq_n_u32(0x03020100), answers, 0x04040404));
        if constexpr (n <= 4) {
            return vreinterpretq_f32_u8(vqtbl1q_u8(vld1q_u8(bytes), index));
        } else if constexpr (n == 8) {
            return vreinterpretq_f32_u8(vqtbl2q_u8(vld1q_u8_x2(bytes), index));
        } else {
            uint8x16_t found = vqtbl4q_u8(vld1q_u8_x4(bytes), index);
            // A byte whose index is 64 or more stays as it is.
            for (int b = 64; b < 4 * n; b += 64)
                found = vqtbx4q_u8(found, vld1q_u8_x4(bytes + b), vsubq_u8(index, vdupq_n_u8(static_cast<uint8_t>(b))));
            return vreinterpretq_f32_u8(found);
        }
    }
    static float32x4_t look_up_singly(const float* table, uint32x4_t answers) {
        uint32_t at[4];
        float found[4];
        vst1q_u32(at, answers);
        for (int k = 0; k < 4; k++) found[k] = table[at[k]];
        return vld1q_f32(found);
    }

    // Stores one bit for each of sixteen documents, from lanes that are all ones or zero.
    static void store_bits(const uint32x4_t* where, uint8_t* to) {
        const uint16x8_t low = vuzp1q_u16(vreinterpretq_u16_u32(where[0]), vreinterpretq_u16_u32(where[1]));
        const uint16x8_t high = vuzp1q_u16(vreinterpretq_u16_u32(where[2]), vreinterpretq_u16_u32(where[3]));
        const uint8x16_t each = vuzp1q_u8(vreinterpretq_u8_u16(low), vreinterpretq_u8_u16(high));
        uint8x16_t bits = vandq_u8(each, vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201)));
        for (int halving = 0; halving < 3; halving++) bits = vpaddq_u8(bits, bits);
        to[0] = vgetq_lane_u8(bits, 0);
        to[1] = vgetq_lane_u8(bits, 1);
    }

    // Searches levels level ... n - 1 for sixteen documents; `tie` collects the lanes that equal a threshold.
    template <int level, int n, bool ties>
    static void search_from(const float* table, const float* x, uint32x4_t* answers, uint8_t* top, int64_t plane_bytes,
                            uint32x4_t* tie) {
        if constexpr (level < n) {
            uint32x4_t answer[kSide];
#pragma GCC unroll 4
            for (int s = 0; s < kSide; s++) {
                float32x4_t threshold;
                if constexpr (level == 0)
                    threshold = vdupq_n_f32(table[0]);
                else if constexpr (level <= 6)
                    threshold = look_up<1 << level>(table, answers[s]);
                else
                    threshold = look_up_singly(table, answers[s]);
                const float32x4_t values = vld1q_f32(x + 4 * s);
                answer[s] = vmvnq_u32(vcleq_f32(values, threshold));
                if (ties) *tie = vorrq_u32(*tie, vceqq_f32(values, threshold));
                answers[s] = vorrq_u32(answers[s], vandq_u32(answer[s], vdupq_n_u32(1 << level)));
            }
            store_bits(answer, top - level * plane_bytes);
            search_from<level + 1, n, ties>(table + (level < 4 ? 16 : 1 << level), x, answers, top, plane_bytes, tie);
        }
    }
    template <int n, bool ties, bool keeps>
    static bool levels(const float* table, const float* x, int n_documents, uint8_t* top, int64_t plane_bytes, uint32_t* kept) {
        uint32x4_t tie = vdupq_n_u32(0);
        for (int d = 0; d < n_documents; d += 4 * kSide) {
            uint32x4_t answers[kSide];
            for (int s = 0; s < kSide; s++) answers[s] = vdupq_n_u32(0);
            search_from<0, n, ties>(table, x + d, answers, top + d / 8, plane_bytes, &tie);
            for (int s = 0; keeps && s < kSide; s++) vst1q_u32(kept + d + 4 * s, answers[s]);
        }
        return ties && vmaxvq_u32(tie) != 0;
    }

    static void missing(const float* x, int n_documents, uint8_t* plane) {
        for (int d = 0; d < n_documents; d += 4 * kSide) {
            uint32x4_t where[kSide];
            for (int s = 0; s < kSide; s++) {
                const float32x4_t values = vld1q_f32(x + d + 4 * s);
                where[s] = vmvnq_u32(vceqq_f32(values, values));
            }
            store_bits(where, plane + d / 8);
        }
    }
};

}  // namespace
}  // namespace gpuqs
