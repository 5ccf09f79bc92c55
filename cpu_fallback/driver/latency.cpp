// A pointer chase: cache lines linked into one cycle in an order that no prefetcher predicts.
#include "driver/latency.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

#include "driver/scratch.hpp"

namespace gpuqs {
namespace {

struct alignas(64) Line { uint32_t next; };

constexpr uint32_t kMaxLines = 1 << 20, kWarmed = 1 << 14;
constexpr int kReadings = 5;  // the least is returned: other work can only add time
// A linear congruential generator that passes through all numbers below any power of two.
constexpr uint32_t kMultiplier = 1664525, kIncrement = 1013904223;

}  // namespace

double latency(int64_t bytes, int64_t steps) {
    uint32_t n = 1;  // a power of two, so that all lines form one cycle
    while (n < kMaxLines && 2 * static_cast<int64_t>(n * sizeof(Line)) <= bytes) n *= 2;
    const Buffer memory = allocate(n * sizeof(Line));
    Line* const lines = static_cast<Line*>(memory.get());
    // A line's successor is the generator's next number: lines are written in memory order, and read in a scrambled order.
    for (uint32_t i = 0; i < n; i++) lines[i].next = (i * kMultiplier + kIncrement) & (n - 1);
    uint32_t at = 0;
    for (uint32_t i = 0; i < std::min(n, kWarmed); i++) at = lines[at].next;
    double least = std::numeric_limits<double>::infinity();
    for (int reading = 0; reading < kReadings; reading++) {
        const auto start = std::chrono::steady_clock::now();
        for (int64_t i = 0; i < steps; i++) at = lines[at].next;
        asm volatile("" ::"r"(at));
        const std::chrono::duration<double, std::nano> taken = std::chrono::steady_clock::now() - start;
        least = std::min(least, taken.count() / static_cast<double>(std::max<int64_t>(steps, 1)));
    }
    return least;
}

}  // namespace gpuqs
