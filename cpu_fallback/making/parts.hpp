// Trees shared out among threads, in runs of consecutive trees.
#pragma once
#include <cstdint>

#include "driver/threads.hpp"

namespace gpuqs {

// Parts for n_threads threads: several for each, as a thread may be held up.
constexpr int64_t n_parts(int n_threads) { return n_threads == 1 ? 1 : 8 * n_threads; }

// Runs work(part, first, last) for the parts of [0, n), in parallel if there are several threads.
template <class Work> void each_part(int64_t n, int n_threads, const Work& work) {
    const int64_t parts = n_parts(n_threads);
    share_out(parts, n_threads, [&](int, int64_t part) { work(part, n * part / parts, n * (part + 1) / parts); });
}

// Sets a flag that other threads may set, too, and mostly have already.
template <class Flag> void set_for_all(Flag* flag) {
    if (!__atomic_load_n(flag, __ATOMIC_RELAXED)) __atomic_store_n(flag, Flag{1}, __ATOMIC_RELAXED);
}

}  // namespace gpuqs
