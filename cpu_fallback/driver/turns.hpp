// Turns at Python's interpreter lock.
//
// A thread that finds the lock taken sleeps, and is woken some 30 us later, although between two calls that release the lock
// another thread holds it for one or two. So a thread first takes its turn, waiting awake while it is another one's, and then the
// lock. Turns are only advice: one ends when its thread releases the lock for the next call, or after kLongest, as the thread may
// do something else by then; and none waits longer.
#pragma once
#include <atomic>
#include <cstdint>

#ifdef GPUQS_X86
#include <immintrin.h>
#endif

#include "driver/clock.hpp"

namespace gpuqs {

class Turns {
public:
    // Before a thread takes the lock. now: as by seconds_now().
    void take(const void* thread, double now) {
        const double latest = now + kLongest;
        for (uintptr_t holder = holder_.load(std::memory_order_relaxed);; holder = holder_.load(std::memory_order_relaxed)) {
            const bool waits = holder && now < since_.load(std::memory_order_relaxed) + kLongest && now < latest;
            if (!waits && holder_.compare_exchange_weak(holder, number(thread), std::memory_order_relaxed)) break;
            pause();
            now = seconds_now();
        }
        since_.store(now, std::memory_order_relaxed);
    }
    // After it released the lock.
    void leave(const void* thread) {
        uintptr_t mine = number(thread);
        if (holder_.load(std::memory_order_relaxed) == mine) holder_.compare_exchange_strong(mine, 0, std::memory_order_relaxed);
    }

private:
    static constexpr double kLongest = 10e-6;  // seconds

    static uintptr_t number(const void* thread) { return reinterpret_cast<uintptr_t>(thread); }
    static void pause() {
#if defined(GPUQS_X86)
        _mm_pause();
#elif defined(GPUQS_AARCH64)
        asm volatile("isb");
#endif
    }

    alignas(64) std::atomic<uintptr_t> holder_{0};
    std::atomic<double> since_{0.0};
};

}  // namespace gpuqs
