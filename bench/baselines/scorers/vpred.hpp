// VPRED (paper 002, section 2; paper 003, section 2; of Asadi et al.): PRED with v documents interleaved, in the order of DS:
//     for each v documents, for each tree
//         node[1..v] = root
//         as many times as the tree is deep, the loop unrolled, for v = 1..v:
//             node[v] = node[v].child[x[v][node[v].feature] > node[v].threshold]
//         score[1..v] += values of the leaves node[1..v]
// The authors' code adds documents to the last group until it has v; here these go one at a time.
#pragma once

#include "predicated.hpp"

namespace baselines {

template <class Value, class Sum, int V>
class VPred {
public:
    static constexpr long documents = V;

    explicit VPred(const Forest<Value, Sum>& forest) : trees_(forest) {}

    long scorers() const { return static_cast<long>(trees_.trees.size()); }

    void add(const Batch<Value, Sum>& batch, long group, long tree) {
        const long first = group * V;
        if (first + V <= batch.n) {
            add_predicated(trees_, batch, first, tree, Together<V>());
        } else {
            for (long document = first; document < batch.n; ++document) add_predicated(trees_, batch, document, tree, Together<1>());
        }
    }

private:
    PredicatedTrees<Value, Sum> trees_;
};

}  // namespace baselines
