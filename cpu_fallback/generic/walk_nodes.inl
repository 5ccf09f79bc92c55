// walk over items that are only nodes, in preorder: a register full of walks takes a step together.
//
//   repeat: for each walk that is not at a leaf:
//               right = x[column of at] > threshold of at;  L = leaves to the left of at
//               at += right ? L : 1;  passed += right ? L : 0
//               it is at a leaf if right ? the right child is a leaf : L == 1
//           for each walk at a leaf: leaf[tree][document] = passed; the next walk takes its place
//
// Each instruction set with gathers walks a tree block in its own registers: see its gathers.inl.
#pragma once
#include <cstdint>

#include "generic/walked_items.inl"
#include "layout/walk.hpp"

namespace gpuqs {
namespace {

// x is [documents][columns].
template <class Set, class Value>
void walk_nodes(const WalkLayout& layout, int block, const Value* x, bool has_missing, int n, int stride, int32_t* leaf) {
    (has_missing ? Set::template walk_block<true, Value> : Set::template walk_block<false, Value>)(layout, block, x, n, stride, leaf);
}

// The kernel of an instruction set with gathers; null otherwise.
template <class Set, class Value> constexpr auto walk_nodes_kernel() -> decltype(&walk_nodes<Set, Value>) {
    if constexpr (Set::available)
        return walk_nodes<Set, Value>;
    else
        return nullptr;
}

}  // namespace
}  // namespace gpuqs
