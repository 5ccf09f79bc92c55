// PRED (paper 002, section 2; of Asadi et al.): a comparison's outcome is an index, not a branch:
//     node = root
//     as many times as the tree is deep, the loop unrolled:
//         node = node.child[x[node.feature] > node.threshold]
//     score += value of the leaf `node`
#pragma once

#include "predicated.hpp"

namespace baselines {

template <class Value, class Sum>
class Pred {
public:
    static constexpr long documents = 1;

    explicit Pred(const Forest<Value, Sum>& forest) : trees_(forest) {}

    long scorers() const { return static_cast<long>(trees_.trees.size()); }

    void add(const Batch<Value, Sum>& batch, long document, long tree) { add_predicated(trees_, batch, document, tree, Together<1>()); }

private:
    PredicatedTrees<Value, Sum> trees_;
};

}  // namespace baselines
