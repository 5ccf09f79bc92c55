// No jumps: evaluating all tests one at a time would take longer than a walk.
#pragma once
#include "layout/rankwalk.hpp"

namespace gpuqs {
namespace {

struct Jumps {
    static constexpr bool available = false;

    // How many of a block of thresholds lie below x.
    template <class Value> static int below(const Value* threshold, Value x) {
        int count = 0;
        for (int i = 0; i < kBlockThresholds; i++) count += threshold[i] < x;
        return count;
    }
};

}  // namespace
}  // namespace gpuqs
