// The driver that all CPU engines share; see scorer.hpp for its loop.
#include "scorer.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "engines.hpp"
#include "kernels.hpp"
#include "scratch.hpp"

namespace gpuqs {
namespace {

// Most bytes of exit leaves that are kept while threads share out the trees.
constexpr size_t kMostByTrees = 16 << 20;

struct Thread {
    Buffer scratch, leaf, sums;
};

int largest_tree_block(const ExitLeaves& engine) {
    int largest = 0;
    for (int b = 0; b < engine.n_tree_blocks(); b++) largest = std::max(largest, engine.first_tree(b + 1) - engine.first_tree(b));
    return largest;
}

// How a batch is cut: `block` documents at a time, laid out in `stride` places.
struct Blocks {
    int64_t size;
    int stride;
};

Blocks blocks_of(const ExitLeaves& engine, const Documents& documents, int n_threads) {
    const int64_t most = engine.document_block();
    if (documents.planes || documents.n >= most * n_threads)  // coded documents keep the blocks they were coded in
        return {most, engine.stride(static_cast<int>(std::min(documents.n, most)))};
    const int64_t each = std::max<int64_t>((documents.n + n_threads - 1) / n_threads, 1);
    const int stride = engine.stride(static_cast<int>(std::min(each, most)));
    return {std::min<int64_t>(stride, most), stride};
}

// Runs work(thread, first document, documents) for every document block; memory is taken before any thread starts.
template <class Work>
void for_document_blocks(const ExitLeaves& engine, const Documents& documents, Blocks blocks, size_t sum_bytes, int n_threads,
                         Work work) {
    const int64_t block = blocks.size;
    const int stride = blocks.stride;
    const int64_t n_blocks = (documents.n + block - 1) / block;
    n_threads = static_cast<int>(std::max<int64_t>(1, std::min<int64_t>(n_threads, n_blocks)));
    const size_t leaf_bytes = static_cast<size_t>(largest_tree_block(engine)) * stride * engine.leaf_bytes();
    std::vector<Thread> threads(n_threads);
    for (Thread& thread : threads) {
        thread = {allocate(engine.scratch_bytes(stride)), allocate(leaf_bytes), allocate(sum_bytes * stride)};
        std::memset(thread.leaf.get(), 0, leaf_bytes);  // places beyond the last document have leaf 0
    }
#pragma omp parallel for schedule(dynamic) num_threads(n_threads) if (n_threads > 1)
    for (int64_t b = 0; b < n_blocks; b++) {
#ifdef _OPENMP
        Thread& thread = threads[n_threads > 1 ? omp_get_thread_num() : 0];
#else
        Thread& thread = threads[0];
#endif
        work(thread, b * block, static_cast<int>(std::min(block, documents.n - b * block)));
    }
}

// Tree blocks as contiguous ranges, one for each thread at most.
std::vector<int> share_trees(const ExitLeaves& engine, int n_threads) {
    std::vector<int> starts = {0};
    const int n = engine.n_tree_blocks();
    for (int b = 1; b < n; b++)
        if (engine.may_begin(b) && b >= static_cast<int64_t>(starts.size()) * n / n_threads) starts.push_back(b);
    starts.push_back(n);
    return starts;
}

// leaf[tree][stride] of all trees, for documents of one block; null where threads can share nothing out.
Buffer find_by_trees(const ExitLeaves& engine, const Documents& documents, Blocks blocks, int n_threads) {
    const size_t bytes = static_cast<size_t>(engine.first_tree(engine.n_tree_blocks())) * blocks.stride * engine.leaf_bytes();
    if (n_threads == 1 || documents.n == 0 || documents.n > blocks.size || bytes > kMostByTrees) return nullptr;
    const std::vector<int> starts = share_trees(engine, n_threads);
    const int n_ranges = static_cast<int>(starts.size()) - 1;
    if (n_ranges < 2) return nullptr;
    Buffer leaf = allocate(bytes);
    std::memset(leaf.get(), 0, bytes);
    std::vector<Buffer> scratch;
    for (int r = 0; r < n_ranges; r++) scratch.push_back(allocate(engine.scratch_bytes(blocks.stride)));
    const int n = static_cast<int>(documents.n);
#pragma omp parallel for num_threads(n_ranges)
    for (int r = 0; r < n_ranges; r++) {
        engine.load(documents, 0, n, blocks.stride, scratch[r].get());
        for (int b = starts[r]; b < starts[r + 1]; b++) {
            const size_t at = static_cast<size_t>(engine.first_tree(b)) * blocks.stride * engine.leaf_bytes();
            engine.find(b, n, blocks.stride, scratch[r].get(), static_cast<char*>(leaf.get()) + at);
        }
    }
    return leaf;
}

template <class Sum>
void score_as(const ExitLeaves& engine, const Kernels& kernels, const Documents& documents, const LeafValues& values, Sum* out,
              int n_threads, bool started) {
    const Blocks blocks = blocks_of(engine, documents, n_threads);
    const int stride = blocks.stride;
    const int n_outputs = values.n_outputs;
    const uint16_t* order = engine.order(stride);
    const Sum* start = static_cast<const Sum*>(values.start);
    const Buffer found = find_by_trees(engine, documents, blocks, n_threads);
    // Where the sum of a block's document for an output stands while trees are added.
    std::vector<int32_t> places(stride);
    for (int d = 0; d < stride; d++) places[d] = kernels.sum_place(values, order ? order[d] : d);
    const auto place = [&](int output, int d) { return static_cast<int64_t>(output) * stride + places[d]; };
    for_document_blocks(
        engine, documents, blocks, sizeof(Sum) * n_outputs, n_threads, [&](Thread& thread, int64_t first, int n) {
            Sum* sums = static_cast<Sum*>(thread.sums.get());
            for (int k = 0; k < n_outputs; k++) {
                std::fill_n(sums + static_cast<int64_t>(k) * stride, stride, start[k]);
                for (int d = 0; started && d < n; d++) sums[place(k, d)] = out[(first + d) * n_outputs + k];
            }
            const auto add = [&](int tree, int n_trees, const void* leaf) {
                kernels.add_values(values, tree, n_trees, engine.leaf_bytes(), leaf, order ? stride : n, stride, sums);
            };
            if (found) {
                add(0, values.n_trees, found.get());
            } else {
                engine.load(documents, first, n, stride, thread.scratch.get());
                for (int b = 0; b < engine.n_tree_blocks(); b++) {
                    engine.find(b, n, stride, thread.scratch.get(), thread.leaf.get());
                    add(engine.first_tree(b), engine.first_tree(b + 1) - engine.first_tree(b), thread.leaf.get());
                }
            }
            for (int d = 0; d < n; d++)
                for (int k = 0; k < n_outputs; k++) out[(first + d) * n_outputs + k] = sums[place(k, d)];
        });
}

template <class Leaf>
void exit_leaves_as(const ExitLeaves& engine, const Documents& documents, const LeafValues& values, int32_t* out, int n_threads) {
    const Blocks blocks = blocks_of(engine, documents, n_threads);
    const int stride = blocks.stride;
    const uint16_t* order = engine.order(stride);
    const Buffer found = find_by_trees(engine, documents, blocks, n_threads);
    for_document_blocks(engine, documents, blocks, 0, n_threads, [&](Thread& thread, int64_t first, int n) {
        const auto number = [&](int tree, int end, const void* leaves) {
            const Leaf* leaf = static_cast<const Leaf*>(leaves);
            for (int t = tree; t < end; t++, leaf += stride)
                for (int d = 0; d < n; d++)
                    out[(first + d) * values.n_trees + t] = values.leaf_id[values.offsets[t] + leaf[order ? order[d] : d]];
        };
        if (found) return number(0, values.n_trees, found.get());
        engine.load(documents, first, n, stride, thread.scratch.get());
        for (int b = 0; b < engine.n_tree_blocks(); b++) {
            engine.find(b, n, stride, thread.scratch.get(), thread.leaf.get());
            number(engine.first_tree(b), engine.first_tree(b + 1), thread.leaf.get());
        }
    });
}

}  // namespace

void score(const ExitLeaves& engine, const Kernels& kernels, const Documents& documents, const LeafValues& values, void* sums,
           int n_threads, bool started) {
    switch (values.kind) {
        case ValueKind::float64: return score_as(engine, kernels, documents, values, static_cast<double*>(sums), n_threads, started);
        case ValueKind::float32: return score_as(engine, kernels, documents, values, static_cast<float*>(sums), n_threads, started);
        case ValueKind::fixed: return score_as(engine, kernels, documents, values, static_cast<int64_t*>(sums), n_threads, started);
    }
}

void exit_leaves(const ExitLeaves& engine, const Documents& documents, const LeafValues& values, int32_t* leaves, int n_threads) {
    switch (engine.leaf_bytes()) {
        case 1: return exit_leaves_as<uint8_t>(engine, documents, values, leaves, n_threads);
        case 2: return exit_leaves_as<uint16_t>(engine, documents, values, leaves, n_threads);
        default: return exit_leaves_as<uint32_t>(engine, documents, values, leaves, n_threads);
    }
}

int64_t coded_bytes(const Bitslice& engine, int64_t n) {
    const int stride = engine.stride(static_cast<int>(std::min<int64_t>(n, engine.document_block())));
    return (n + engine.document_block() - 1) / engine.document_block() * engine.planes_bytes(stride);
}

void encode(const Bitslice& engine, const Documents& part, int64_t n, uint8_t* planes, int n_threads) {
    Documents all = part;
    all.n = n;
    const Blocks blocks = blocks_of(engine, all, 1);  // the same for any number of threads
    const int stride = blocks.stride;
    const int64_t bytes = engine.planes_bytes(stride);
    for_document_blocks(engine, part, blocks, 0, n_threads, [&](Thread& thread, int64_t first, int rows) {
        engine.load(part, first, rows, stride, thread.scratch.get());
        std::memcpy(planes + first / engine.document_block() * bytes, thread.scratch.get(), bytes);
    });
}

void time_stages(const Bitslice& engine, const Kernels& kernels, const Documents& documents, const LeafValues& values, double seconds[4]) {
    using Clock = std::chrono::steady_clock;
    const Blocks blocks = blocks_of(engine, documents, 1);
    std::fill_n(seconds, 4, 0.0);
    for_document_blocks(engine, documents, blocks, sizeof(double) * values.n_outputs, 1, [&](Thread& thread, int64_t first, int n) {
        auto since = Clock::now();
        const auto stage = [&](int number) {
            const auto now = Clock::now();
            seconds[number] += std::chrono::duration<double>(now - since).count();
            since = now;
        };
        std::memset(thread.sums.get(), 0, sizeof(double) * values.n_outputs * blocks.stride);
        engine.load(documents, first, n, blocks.stride, thread.scratch.get());
        stage(0);
        for (int b = 0; b < engine.n_tree_blocks(); b++) {
            const int tree = engine.first_tree(b);
            engine.find_predicates(b, blocks.stride, thread.scratch.get());
            stage(1);
            engine.run_programs(b, blocks.stride, thread.scratch.get(), thread.leaf.get());
            stage(2);
            kernels.add_values(values, tree, engine.first_tree(b + 1) - tree, engine.leaf_bytes(), thread.leaf.get(), blocks.stride,
                               blocks.stride, thread.sums.get());
            stage(3);
        }
    });
}

}  // namespace gpuqs
