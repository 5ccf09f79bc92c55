// Stress of driver/threads.cpp and driver/scratch.cpp; built with ThreadSanitizer by test_threads.py.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <random>
#include <thread>
#include <vector>

#include "driver/scratch.hpp"
#include "driver/threads.hpp"

using gpuqs::allocate;
using gpuqs::share_out;

namespace {

#define CHECK(what) \
    if (!(what)) std::printf("%s:%d: not %s\n", __FILE__, __LINE__, #what), std::abort()

constexpr int kMost = 9;

// Each piece runs once, no thread number is used twice at a time, and the caller sees the pieces' writes without atomics.
void whole_jobs(unsigned seed) {
    std::mt19937 random(seed);
    for (int round = 0; round < 300; round++) {
        const int n = static_cast<int>(random() % 60), n_threads = 1 + static_cast<int>(random() % kMost);
        const int failing = random() % 5 == 0 && n ? static_cast<int>(random() % n) : -1;
        std::vector<int> found(n), busy(n_threads);
        bool failed = false;
        try {
            share_out(n, n_threads, [&](int thread, int64_t p) {
                CHECK(thread >= 0 && thread < n_threads && busy[thread]++ == 0);
                const gpuqs::Buffer scratch = allocate(p % 3 ? 1000 : 2 << 20);
                std::memset(scratch.get(), static_cast<int>(p), 1000);
                found[p] += static_cast<const unsigned char*>(scratch.get())[999] + 1;
                busy[thread]--;
                if (p == failing) throw std::bad_alloc();
            });
        } catch (const std::bad_alloc&) {
            failed = true;
        }
        CHECK(failed == (failing >= 0));
        for (int p = 0; p < n && !failed; p++) CHECK(found[p] == p + 1);
        if (failed) CHECK(found[failing] == failing + 1);
    }
}

// All helper threads are stuck in another job: this job must not wait for them.
void while_helpers_are_stuck() {
    std::atomic<int> stuck{0};
    std::atomic<bool> over{false};
    const int most = gpuqs_most_threads();
    std::thread other([&] {
        share_out(most, most, [&](int, int64_t) {
            for (stuck++; !over;) std::this_thread::yield();
        });
    });
    while (stuck < most) std::this_thread::yield();
    int n_done = 0;
    share_out(1000, most, [&](int thread, int64_t) {
        CHECK(thread == 0);
        n_done++;
    });
    CHECK(n_done == 1000);
    // Then all become free at once, and no more may join than were asked for.
    share_out(100, 2, [&](int thread, int64_t p) {
        CHECK(thread < 2);
        if (p == 10) over = true;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
    other.join();
}

}  // namespace

int main() {
    std::vector<std::thread> callers;
    for (unsigned seed = 0; seed < 6; seed++) callers.emplace_back(whole_jobs, seed);
    for (std::thread& caller : callers) caller.join();
    while_helpers_are_stuck();
    std::puts("finished");
}
