// DS (paper 004, Algorithm 1), the standard order:
//     for each document i
//         for each scorer j
//             score[i] += scorer j of document i
// Every scorer is read again for each document.
#pragma once

#include "blocks.hpp"

namespace baselines {

struct Ds {
    static constexpr const char* name = "ds";

    template <class Visit>
    static void run(const Blocks& b, Visit&& visit) {
        for (long i = 0; i < b.n; ++i)
            for (long j = 0; j < b.m; ++j) visit(i, j);
    }
};

}  // namespace baselines
