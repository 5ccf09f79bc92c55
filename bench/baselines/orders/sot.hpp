// SOT, scorer-ordered traversal (paper 003, Algorithm 1 with its loops exchanged, and Figure 1b); paper 004 calls it SD:
//     for each tree j
//         for each document i
//             score[i] += tree j of document i
#pragma once

#include "sd.hpp"

namespace baselines {

struct Sot : Sd { static constexpr const char* name = "sot"; };

}  // namespace baselines
