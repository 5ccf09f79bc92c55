// One tree block of a QuickScorerModel as `qs` and `vqs` read it.
#pragma once
#include <cstdint>

#include "layout/quickscorer.hpp"

namespace gpuqs {
namespace {

template <class Value> const Value* thresholds_of(const QuickScorerModel& model);
template <> const float* thresholds_of<float>(const QuickScorerModel& model) { return model.threshold32; }
template <> const double* thresholds_of<double>(const QuickScorerModel& model) { return model.threshold64; }

template <class Value, class Mask>
TestsOf<Value, Mask> tests_of(const QuickScorerModel& model, int block) {
    const int64_t row = static_cast<int64_t>(block) * (model.columns.n + 1);
    return {model.block_offsets[block + 1] - model.block_offsets[block],
            model.columns.n,
            model.tests.offsets + row,
            thresholds_of<Value>(model),
            model.tests.tree,
            static_cast<const Mask*>(model.tests.mask),
            model.missing.offsets + row,
            model.missing.tree,
            static_cast<const Mask*>(model.missing.mask)};
}

}  // namespace
}  // namespace gpuqs
