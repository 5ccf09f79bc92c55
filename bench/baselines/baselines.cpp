// The papers' systems, each a scorer in a loop order, behind three C functions. Built by program.py for the bench alone.
#include <cstring>
#include <exception>
#include <stdexcept>
#include <string>

#include "orders/dot.hpp"
#include "orders/ds.hpp"
#include "orders/dsd.hpp"
#include "orders/dsds.hpp"
#include "orders/dssd.hpp"
#include "orders/sd.hpp"
#include "orders/sdds.hpp"
#include "orders/sds.hpp"
#include "orders/sdsd.hpp"
#include "orders/sot.hpp"
#include "scorers/block_vpred.hpp"
#include "scorers/oblivious.hpp"
#include "scorers/pred.hpp"
#include "scorers/quickscorer_block.hpp"
#include "scorers/struct_plus.hpp"
#include "scorers/vpred.hpp"
#include "system.hpp"

namespace baselines {
namespace {

template <class Value, class Sum, int V>
using VPredInOrder = SystemOf<Value, Sum, VPred<Value, Sum, V>, Ds>;

template <class Value, class Sum>
class Maker {
public:
    Maker(const Forest<Value, Sum>& forest, long v, long tau) : forest_(forest), v_(v), tau_(tau) {}

    System* make(const std::string& scorer, const std::string& order) {
        if (scorer == "struct_plus") return in_order<StructPlus<Value, Sum>, Dot, Sot, Ds, Sd, Dsd, Sds, Dsds, Sdsd, Sdds, Dssd>(order);
        if (scorer == "pred") return in_order<Pred<Value, Sum>, Ds>(order);
        if (scorer == "oblivious") return in_order<Oblivious<Value, Sum>, Ds>(order);
        if (scorer == "vpred") return of_documents<VPredInOrder, 1, 2, 4, 8, 16, 32>();
        if (scorer == "block_vpred") return of_documents<BlockVPred, 1, 2, 4, 8, 16, 32>();
        if (scorer == "quickscorer_block") return quickscorer_block(order);
        throw std::invalid_argument("no scorer " + scorer);
    }

private:
    template <class Scorer, class... Orders, class... Parameters>
    System* in_order(const std::string& order, Parameters... parameters) {
        System* system = nullptr;
        ((order == Orders::name && (system = new SystemOf<Value, Sum, Scorer, Orders>(forest_, parameters...))), ...);
        if (!system) throw std::invalid_argument("the scorer does not run in the order " + order);
        return system;
    }

    template <template <class, class, int> class SystemOfV, int... V>
    System* of_documents() {
        System* system = nullptr;
        ((v_ == V && (system = new SystemOfV<Value, Sum, V>(forest_))), ...);
        if (!system) throw std::invalid_argument("v is 1, 2, 4, 8, 16 or 32, not " + std::to_string(v_));
        return system;
    }

    template <class Word, int Words>
    System* blocks(const std::string& order) {
        return in_order<QuickScorerBlocks<Value, Sum, Word, Words>, Dsd, Sds, Dsds, Sdsd>(order, tau_);
    }

    System* quickscorer_block(const std::string& order) {
        int64_t most = 0;
        for (long t = 0; t < forest_.n_trees; ++t) most = std::max(most, forest_.leaf_offsets[t + 1] - forest_.leaf_offsets[t]);
        if (most <= 8) return blocks<uint8_t, 1>(order);
        if (most <= 16) return blocks<uint16_t, 1>(order);
        if (most <= 32) return blocks<uint32_t, 1>(order);
        return most <= 64 ? blocks<uint64_t, 1>(order) : blocks<uint64_t, 0>(order);
    }

    const Forest<Value, Sum>& forest_;
    long v_, tau_;
};

}  // namespace
}  // namespace baselines

// What thresholds and documents are, and leaf values and sums: program.py compiles a library for each pair that it needs.
using Value = BASELINES_VALUE;
using Sum = BASELINES_SUM;

extern "C" {

// A system for a forest, or null, with the reason in `error`; it keeps nothing of the forest's arrays.
void* baselines_make(const baselines::Forest<Value, Sum>* forest, const char* scorer, const char* order, long v, long tau, char* error,
                     long room) {
    try {
        return baselines::Maker<Value, Sum>(*forest, v, tau).make(scorer, order);
    } catch (const std::exception& problem) {
        std::strncpy(error, problem.what(), room - 1);
        return nullptr;
    }
}

// Add the scores of n documents to `sums`, in blocks of d documents and s scorers.
void baselines_score(void* system, const void* documents, long n, long d, long s, void* sums) {
    static_cast<baselines::System*>(system)->run(documents, n, d, s, sums);
}

void baselines_free(void* system) { delete static_cast<baselines::System*>(system); }
}
