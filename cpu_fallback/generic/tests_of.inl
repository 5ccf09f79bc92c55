// One tree block of a QuickScorerLayout's lists, as the kernels read it.
#pragma once
#include <cstdint>

#include "layout/quickscorer.hpp"

namespace gpuqs {
namespace {

template <class Value> const Value* thresholds_of(const TestLists& lists);
template <> const float* thresholds_of<float>(const TestLists& lists) { return lists.threshold32; }
template <> const double* thresholds_of<double>(const TestLists& lists) { return lists.threshold64; }

template <class Value, class Mask>
TestsOf<Value, Mask> tests_of(const QuickScorerLayout& layout, const TestLists& lists, int block) {
    const int64_t row = static_cast<int64_t>(block) * (layout.columns.n + 1);
    return {layout.block_offsets[block + 1] - layout.block_offsets[block],
            layout.columns.n,
            lists.tests.offsets + row,
            thresholds_of<Value>(lists),
            lists.tests.tree,
            static_cast<const Mask*>(lists.tests.mask),
            lists.missing.offsets + row,
            lists.missing.tree,
            static_cast<const Mask*>(lists.missing.mask)};
}

}  // namespace
}  // namespace gpuqs
