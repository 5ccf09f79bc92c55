// No sums in vector registers: compilers add documents one by one.
#pragma once
#include <cstdint>

namespace gpuqs {
namespace {

struct ScalarSums {
    // Adds the leaves of the first documents; returns for how many.
    template <class Value, class Sum, class Leaf>
    static int add_by_registers(const Value*, const int64_t*, int, int, const Leaf*, int, int, Sum*) {
        return 0;
    }
};

}  // namespace
}  // namespace gpuqs
