// Turns at Python's interpreter lock.
//
// A thread that finds the lock taken sleeps, and is woken some 30 us later, although between two calls that release the lock
// another thread holds it for one or two. So a thread first takes its turn, waiting awake while it is another one's, and then the
// lock. Turns are only advice: one ends when its thread releases the lock for the next call, or when it has lasted too long, as the
// thread may do something else by then.
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
    // Before a thread takes the lock. now: as by ticks_now(). longest: ticks after which another thread's turn is over.
    void take(const void* thread, int64_t now, int64_t longest) {
        int pauses = 0;
        for (uintptr_t holder = holder_.load(std::memory_order_relaxed);; holder = holder_.load(std::memory_order_relaxed)) {
            const bool waits = holder && now < since_.load(std::memory_order_relaxed) + longest && pauses < kMostPauses;
            if (!waits && holder_.compare_exchange_weak(holder, number(thread), std::memory_order_relaxed)) break;
            pause();
            pauses++;
            now = ticks_now();
        }
        since_.store(now, std::memory_order_relaxed);
    }
    // After it released the lock.
    void leave(const void* thread) {
        uintptr_t mine = number(thread);
        if (holder_.load(std::memory_order_relaxed) == mine) holder_.compare_exchange_strong(mine, 0, std::memory_order_relaxed);
    }

private:
    static constexpr int kMostPauses = 400;  // 10 to 30 us, also where the threads of many turns go before this one

    static uintptr_t number(const void* thread) { return reinterpret_cast<uintptr_t>(thread); }
    static void pause() {
#if defined(GPUQS_X86)
        _mm_pause();
#elif defined(GPUQS_AARCH64)
        asm volatile("isb");
#endif
    }

    alignas(64) std::atomic<uintptr_t> holder_{0};
    std::atomic<int64_t> since_{0};
};

}  // namespace gpuqs
