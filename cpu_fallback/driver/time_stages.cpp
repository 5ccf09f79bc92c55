#include "driver/time_stages.hpp"

#include <algorithm>

#include "driver/clock.hpp"
#include "generic/kernels.hpp"

namespace gpuqs {
namespace {

// A Bitslice that measures the time of its stages, for one thread.
class TimedBitslice final : public ExitLeaves {
public:
    TimedBitslice(const Bitslice& engine, double seconds[4]) : ExitLeaves(engine), engine_(engine), seconds_(seconds) {}

    int document_block() const override { return engine_.document_block(); }
    int stride(int n) const override { return engine_.stride(n); }
    int leaf_bytes() const override { return engine_.leaf_bytes(); }
    size_t loaded_bytes(int stride) const override { return engine_.loaded_bytes(stride); }
    size_t scratch_bytes(int stride) const override { return engine_.scratch_bytes(stride); }
    const uint16_t* order(int stride) const override { return engine_.order(stride); }
    bool begins_superblock(int block) const override { return engine_.begins_superblock(block); }
    int blocks_together() const override { return engine_.blocks_together(); }
    // Code is made once per model, not once per call: its time counts for no stage.
    void make_ready(int stride, int n_threads) const override {
        engine_.make_ready(stride, n_threads);
        since_ = seconds_now();
    }
    void load(const Documents& documents, int64_t first, int n, int stride, void* loaded, void* scratch) const override {
        stage(3);
        engine_.load(documents, first, n, stride, loaded, scratch);
        stage(0);
    }
    void find(int block, int, int stride, const void* loaded, void* scratch, const LeafRecords&, void* leaf) const override {
        stage(3);
        engine_.find_predicates(block, stride, loaded, scratch);
        stage(1);
        engine_.run_programs(block, stride, scratch, leaf);
        stage(2);
    }

    void bring(int block, int stride, const LeafRecords& records) const override {
        stage(3);
        engine_.bring(block, stride, records);
        stage(2);
    }

    // The time since the last stage's end belongs to this one.
    void stage(int number) const {
        const double now = seconds_now();
        seconds_[number] += now - since_;
        since_ = now;
    }

private:
    const Bitslice& engine_;
    double* const seconds_;
    mutable double since_ = 0;
};

}  // namespace

void time_stages(const Bitslice& engine, const Kernels& kernels, const Documents& documents, const LeafValues& values, void* sums,
                 double seconds[4]) {
    std::fill_n(seconds, 4, 0.0);
    const TimedBitslice timed(engine, seconds);
    score(timed, kernels, documents, values, sums, 1, false);
    timed.stage(3);
}

}  // namespace gpuqs
