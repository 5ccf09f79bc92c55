// SD (paper 004, section 3: SDS with s = 1), the loops of DS exchanged:
//     for each scorer j
//         for each document i
//             score[i] += scorer j of document i
// Every document is read again for each scorer.
#pragma once

#include "blocks.hpp"

namespace baselines {

struct Sd {
    static constexpr const char* name = "sd";

    template <class Visit>
    static void run(const Blocks& b, Visit&& visit) {
        for (long j = 0; j < b.m; ++j)
            for (long i = 0; i < b.n; ++i) visit(i, j);
    }
};

}  // namespace baselines
