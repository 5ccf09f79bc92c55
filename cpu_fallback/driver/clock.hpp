// A monotonic clock in seconds, to measure intervals.
#pragma once
#include <chrono>

namespace gpuqs {

inline double seconds_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

}  // namespace gpuqs
