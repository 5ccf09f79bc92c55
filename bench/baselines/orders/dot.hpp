// DOT, document-ordered traversal (paper 003, Algorithm 1 and Figure 1a); paper 004 calls it DS:
//     for each document i
//         for each tree j
//             score[i] += tree j of document i
#pragma once

#include "ds.hpp"

namespace baselines {

struct Dot : Ds { static constexpr const char* name = "dot"; };

}  // namespace baselines
