// What a loop order runs over. Every order visits a document's scorers in ascending order, so that sums have the
// same bits in all of them.
#pragma once

#include <algorithm>

namespace baselines {

struct Blocks {
    long n, m;  // documents (or groups of them) and scorers
    long d, s;  // those of a block

    long end_of_documents(long first) const { return std::min(first + d, n); }
    long end_of_scorers(long first) const { return std::min(first + s, m); }
};

}  // namespace baselines
