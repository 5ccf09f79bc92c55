// Block-VPRED (paper 003, after Algorithm 2): the 2D blocking SDSD with VPRED inside, d / v groups of v documents a block:
//     for each block of s trees
//         for each block of d documents
//             for each tree of the block
//                 for each v documents of the block
//                     walk the tree with all v, a level at a time; score[v] += value of the leaf of each
#pragma once

#include "../orders/sdsd.hpp"
#include "../system.hpp"
#include "vpred.hpp"

namespace baselines {

template <class Value, class Sum, int V>
using BlockVPred = SystemOf<Value, Sum, VPred<Value, Sum, V>, Sdsd>;

}  // namespace baselines
