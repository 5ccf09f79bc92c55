// How long memory of a size takes to answer: paper 004's ratios of access costs are measured, not assumed.
#pragma once
#include <cstdint>

namespace gpuqs {

// Nanoseconds of one of `steps` reads, each of whose addresses the read before it gives, over so many bytes (as far as that
// is a power of two, at most 64 MiB): the least of some readings.
double latency(int64_t bytes, int64_t steps);

}  // namespace gpuqs
