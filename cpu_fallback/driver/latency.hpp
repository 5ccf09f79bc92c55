// Memory latency by the size of the memory that is read: paper 004's ratios of access costs are measured, not assumed.
#pragma once
#include <cstdint>

namespace gpuqs {

// Nanoseconds per read in a chain of `steps` reads, each of which gives the address of the next, over `bytes` of memory (rounded
// down to a power of two, at most 64 MiB): the least of several measurements.
double latency(int64_t bytes, int64_t steps);

}  // namespace gpuqs
