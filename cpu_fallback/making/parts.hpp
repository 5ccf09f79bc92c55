// Trees shared out among threads, some in a row to each.
#pragma once
#include <cstdint>

#include "driver/threads.hpp"

namespace gpuqs {

// Parts that so many threads go through: several each, for a thread may be held up.
constexpr int64_t n_parts(int n_threads) { return n_threads == 1 ? 1 : 8 * n_threads; }

// Runs work(part, first, last) for the parts of [0, n), at once where there are threads.
template <class Work> void each_part(int64_t n, int n_threads, const Work& work) {
    const int64_t parts = n_parts(n_threads);
    share_out(parts, n_threads, [&](int, int64_t part) { work(part, n * part / parts, n * (part + 1) / parts); });
}

// Sets what other threads may set, too, and mostly have.
template <class Flag> void set_for_all(Flag* flag) {
    if (!__atomic_load_n(flag, __ATOMIC_RELAXED)) __atomic_store_n(flag, Flag{1}, __ATOMIC_RELAXED);
}

}  // namespace gpuqs
