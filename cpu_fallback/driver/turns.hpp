// Turns at Python's interpreter lock.
//
// A thread that finds the lock taken sleeps until it is woken, which takes ten times longer than small calls hold the lock: about a
// microsecond from one call's work to the next's. So a thread takes its turn first, waiting briefly and awake if it is another
// thread's, then the lock. A turn is only advice: a thread that has waited in vain takes the lock as it would have without it.
#pragma once
#include <atomic>
#include <cstdint>

#ifdef GPUQS_X86
#include <immintrin.h>
#endif

namespace gpuqs {

class Turns {
public:
    // Before the thread takes the lock.
    void take(const void* thread) {
        const auto number = reinterpret_cast<uintptr_t>(thread);
        for (int i = 0; i < kPauses; i++) {
            uintptr_t nobody = 0;
            if (!holder_.load(std::memory_order_relaxed) && holder_.compare_exchange_strong(nobody, number, std::memory_order_relaxed))
                return;
            pause();
        }
        holder_.store(number, std::memory_order_relaxed);  // the other one does something else, or waits for a processor
    }
    // After it released the lock.
    void leave(const void* thread) {
        auto number = reinterpret_cast<uintptr_t>(thread);
        if (holder_.load(std::memory_order_relaxed) == number) holder_.compare_exchange_strong(number, 0, std::memory_order_relaxed);
    }

private:
    static constexpr int kPauses = 400;  // 8 us on an Intel Emerald Rapids, 25 on older ones; to be woken takes 30

    static void pause() {
#if defined(GPUQS_X86)
        _mm_pause();
#elif defined(GPUQS_AARCH64)
        asm volatile("isb");
#endif
    }

    alignas(64) std::atomic<uintptr_t> holder_{0};
};

}  // namespace gpuqs
