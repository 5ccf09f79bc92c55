// DSD (paper 004, Algorithm 3): a scorer that was loaded serves d documents that stay in a cache:
//     for each block of d documents
//         for each scorer j
//             for each document i of the block
//                 score[i] += scorer j of document i
#pragma once

#include "blocks.hpp"

namespace baselines {

struct Dsd {
    static constexpr const char* name = "dsd";

    template <class Visit>
    static void run(const Blocks& b, Visit&& visit) {
        for (long first = 0; first < b.n; first += b.d)
            for (long j = 0, end = b.end_of_documents(first); j < b.m; ++j)
                for (long i = first; i < end; ++i) visit(i, j);
    }
};

}  // namespace baselines
