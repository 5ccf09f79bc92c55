// A system of the papers: a scorer (of one tree, of v documents in one tree, of a block of trees) in a loop order.
#pragma once

#include <algorithm>

#include "orders/blocks.hpp"
#include "scorers/forest.hpp"

namespace baselines {

struct System {
    virtual ~System() = default;
    // Add n documents' scores to `sums`, in blocks of d documents and s scorers.
    virtual void run(const void* documents, long n, long d, long s, void* sums) = 0;
};

template <class Value, class Sum, class Scorer, class Order>
class SystemOf : public System {
public:
    template <class... Parameters>
    explicit SystemOf(const Forest<Value, Sum>& forest, Parameters... parameters)
        : scorer_(forest, parameters...), n_columns_(forest.n_columns) {}

    void run(const void* documents, long n, long d, long s, void* sums) override {
        const Batch<Value, Sum> batch{static_cast<const Value*>(documents), n, n_columns_, static_cast<Sum*>(sums)};
        constexpr long k = Scorer::documents;
        const Blocks blocks{(n + k - 1) / k, scorer_.scorers(), std::max(d / k, 1l), s};
        Order::run(blocks, [&](long i, long j) { scorer_.add(batch, i, j); });
    }

private:
    Scorer scorer_;
    long n_columns_;
};

}  // namespace baselines
