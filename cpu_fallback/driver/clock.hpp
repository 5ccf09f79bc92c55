// Monotonic clocks, to measure intervals.
#pragma once
#include <chrono>
#include <cstdint>

#ifdef GPUQS_X86
#include <immintrin.h>
#endif

namespace gpuqs {

inline double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The processor's counter, where there is one: to read it takes a few nanoseconds, also if caches are cold.
inline int64_t ticks_now() {
#if defined(GPUQS_X86)
    return static_cast<int64_t>(__rdtsc());
#elif defined(GPUQS_AARCH64)
    int64_t ticks;
    asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
    return ticks;
#else
    return static_cast<int64_t>(seconds_now() * 1e9);
#endif
}

// As measured over some microseconds, so within a few percent.
inline double ticks_of_second() {
    const double start = seconds_now();
    const int64_t first = ticks_now();
    double now = start;
    while (now < start + 20e-6) now = seconds_now();
    return static_cast<double>(ticks_now() - first) / (now - start);
}

}  // namespace gpuqs
