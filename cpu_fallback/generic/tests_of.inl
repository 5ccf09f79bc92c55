// One tree block of a QuickScorerLayout as `qs` and `vqs` read it.
#pragma once
#include <cstdint>

#include "layout/quickscorer.hpp"

namespace gpuqs {
namespace {

template <class Value> const Value* thresholds_of(const QuickScorerLayout& layout);
template <> const float* thresholds_of<float>(const QuickScorerLayout& layout) { return layout.threshold32; }
template <> const double* thresholds_of<double>(const QuickScorerLayout& layout) { return layout.threshold64; }

template <class Value, class Mask>
TestsOf<Value, Mask> tests_of(const QuickScorerLayout& layout, int block) {
    const int64_t row = static_cast<int64_t>(block) * (layout.columns.n + 1);
    return {layout.block_offsets[block + 1] - layout.block_offsets[block],
            layout.columns.n,
            layout.tests.offsets + row,
            thresholds_of<Value>(layout),
            layout.tests.tree,
            static_cast<const Mask*>(layout.tests.mask),
            layout.missing.offsets + row,
            layout.missing.tree,
            static_cast<const Mask*>(layout.missing.mask)};
}

}  // namespace
}  // namespace gpuqs
