// A pointer chase: cache lines linked to one circle in random order, which no prefetcher foresees.
#include "driver/latency.hpp"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "driver/scratch.hpp"

namespace gpuqs {
namespace {

struct alignas(64) Line {
    uint32_t next;
};

}  // namespace

double latency(int64_t bytes, int64_t steps) {
    const uint32_t n = static_cast<uint32_t>(std::clamp<int64_t>(bytes / static_cast<int64_t>(sizeof(Line)), 1, 1 << 24));
    const Buffer memory = allocate(n * sizeof(Line));
    Line* const lines = static_cast<Line*>(memory.get());
    for (uint32_t i = 0; i < n; i++) lines[i].next = i;
    // Sattolo's shuffle leaves one circle through all lines.
    uint64_t state = 88172645463325252u;
    for (uint32_t i = n - 1; i > 0; i--) {
        state ^= state << 13, state ^= state >> 7, state ^= state << 17;
        std::swap(lines[i].next, lines[state % i].next);
    }
    uint32_t at = 0;
    for (uint32_t i = 0; i < std::min<uint32_t>(n, 1 << 14); i++) at = lines[at].next;
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < steps; i++) at = lines[at].next;
    asm volatile("" ::"r"(at));
    const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
    return taken.count() / static_cast<double>(std::max<int64_t>(steps, 1));
}

}  // namespace gpuqs
