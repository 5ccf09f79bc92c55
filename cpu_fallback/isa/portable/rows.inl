// Three levels at once, in plain C++: their answers are the number of the row's seven thresholds below the value.
#pragma once
#include <cstdint>

namespace gpuqs {
namespace {

struct Rows {
    // Searches levels level ... level + 2; `answers` holds those to the levels before, `top` is the plane of the first.
    template <bool ties>
    static bool search(const float* rows, int level, const float* x, int n_documents, uint32_t* answers, uint8_t* top,
                       int64_t plane_bytes) {
        bool tie = false;
        for (int d = 0; d < n_documents; d += 8) {
            uint8_t bits[3] = {0, 0, 0};
            for (int k = 0; k < 8; k++) {
                const float* row = rows + int64_t{8} * answers[d + k];
                int below = 0;
                for (int i = 0; i < 7; i++) {
                    below += !(x[d + k] <= row[i]);
                    if (ties) tie |= x[d + k] == row[i];
                }
                for (int l = 0; l < 3; l++) {
                    const uint32_t answer = below >> (2 - l) & 1;
                    bits[l] |= static_cast<uint8_t>(answer << k);
                    answers[d + k] |= answer << (level + l);
                }
            }
            for (int l = 0; l < 3; l++) top[d / 8 - l * plane_bytes] = bits[l];
        }
        return tie;
    }
};

}  // namespace
}  // namespace gpuqs
