// SDDS (paper 003, section 3; paper 004, section 3, Figure 1e): it visits pairs in the order of SDS:
//     for each block of s scorers
//         for each block of d documents
//             for each document i of the block
//                 for each scorer j of the block
//                     score[i] += scorer j of document i
#pragma once

#include "blocks.hpp"

namespace baselines {

struct Sdds {
    static constexpr const char* name = "sdds";

    template <class Visit>
    static void run(const Blocks& b, Visit&& visit) {
        for (long column = 0; column < b.m; column += b.s)
            for (long row = 0; row < b.n; row += b.d)
                for (long i = row; i < b.end_of_documents(row); ++i)
                    for (long j = column; j < b.end_of_scorers(column); ++j) visit(i, j);
    }
};

}  // namespace baselines
