// SDSD (paper 003, Algorithm 2; paper 004, Algorithm 2), the 2D blocking: s scorers by d documents, column by column:
//     for each block of s scorers
//         for each block of d documents
//             for each scorer j of the block
//                 for each document i of the block
//                     score[i] += scorer j of document i
#pragma once

#include "blocks.hpp"

namespace baselines {

struct Sdsd {
    static constexpr const char* name = "sdsd";

    template <class Visit>
    static void run(const Blocks& b, Visit&& visit) {
        for (long column = 0; column < b.m; column += b.s)
            for (long row = 0; row < b.n; row += b.d)
                for (long j = column; j < b.end_of_scorers(column); ++j)
                    for (long i = row; i < b.end_of_documents(row); ++i) visit(i, j);
    }
};

}  // namespace baselines
