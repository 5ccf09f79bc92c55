// No tables in registers: leaf values are looked up one by one.
#pragma once
#include <cstdint>

#include "layout/leaves.hpp"

namespace gpuqs {
namespace {

struct Tables {
    static constexpr bool available = false;
    static constexpr int bytes_of_part(int, int) { return 0; }
    static void sum_places(const LeafValues&, int, int32_t*) {}
    template <class Value> static void add_trees(const LeafValues&, int, int, int, int, const uint8_t*, int, int, Value*) {}
};

}  // namespace
}  // namespace gpuqs
