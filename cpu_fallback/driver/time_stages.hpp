// How long each stage of `bitslice` takes in the loop of scorer.hpp.
#pragma once
#include "driver/engines.hpp"
#include "driver/scorer.hpp"

namespace gpuqs {

// Scores as `score` with one thread does. Seconds by stage: rank coding, predicates, programs (with exit leaves), and
// values: all else that `score` does.
void time_stages(const Bitslice&, const Kernels&, const Documents&, const LeafValues&, void* sums, double seconds[4]);

}  // namespace gpuqs
