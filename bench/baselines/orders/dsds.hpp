// DSDS (paper 004, section 3, Figure 1c): blocks of d documents by s scorers, row by row:
//     for each block of d documents
//         for each block of s scorers
//             for each document i of the block
//                 for each scorer j of the block
//                     score[i] += scorer j of document i
#pragma once

#include "blocks.hpp"

namespace baselines {

struct Dsds {
    static constexpr const char* name = "dsds";

    template <class Visit>
    static void run(const Blocks& b, Visit&& visit) {
        for (long row = 0; row < b.n; row += b.d)
            for (long column = 0; column < b.m; column += b.s)
                for (long i = row; i < b.end_of_documents(row); ++i)
                    for (long j = column; j < b.end_of_scorers(column); ++j) visit(i, j);
    }
};

}  // namespace baselines
