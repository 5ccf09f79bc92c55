// SDS (paper 004, section 3, Figure 1b): s scorers that stay in a cache serve a document after the other:
//     for each block of s scorers
//         for each document i
//             for each scorer j of the block
//                 score[i] += scorer j of document i
#pragma once

#include "blocks.hpp"

namespace baselines {

struct Sds {
    static constexpr const char* name = "sds";

    template <class Visit>
    static void run(const Blocks& b, Visit&& visit) {
        for (long first = 0; first < b.m; first += b.s)
            for (long i = 0, end = b.end_of_scorers(first); i < b.n; ++i)
                for (long j = first; j < end; ++j) visit(i, j);
    }
};

}  // namespace baselines
