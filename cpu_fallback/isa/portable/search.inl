// Eight documents side by side, looked up one by one.
#pragma once
#include <cstdint>

namespace gpuqs {
namespace {

struct Search {
    static constexpr int kLevels = 8;

    template <int n, bool ties, bool keeps>
    static bool levels(const float* table, const float* x, int n_documents, uint8_t* top, int64_t plane_bytes, uint32_t* kept) {
        bool tie = false;
        for (int d = 0; d < n_documents; d += 8) {
            int answers[8] = {0};
            const float* of_level = table;
            for (int level = 0; level < n; of_level += level < 4 ? 16 : 1 << level, level++) {
                uint8_t bits = 0;
                for (int k = 0; k < 8; k++) {
                    const float threshold = of_level[answers[k]];
                    const int answer = !(x[d + k] <= threshold);
                    if (ties) tie |= x[d + k] == threshold;
                    answers[k] |= answer << level;
                    bits |= static_cast<uint8_t>(answer << k);
                }
                top[d / 8 - level * plane_bytes] = bits;
            }
            for (int k = 0; keeps && k < 8; k++) kept[d + k] = answers[k];
        }
        return tie;
    }

    static void missing(const float* x, int n_documents, uint8_t* plane) {
        for (int d = 0; d < n_documents; d += 8) {
            uint8_t bits = 0;
            for (int k = 0; k < 8; k++) bits |= static_cast<uint8_t>((x[d + k] != x[d + k]) << k);
            plane[d / 8] = bits;
        }
    }
};

}  // namespace
}  // namespace gpuqs
