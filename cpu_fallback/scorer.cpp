// The driver that all CPU engines share; see scorer.hpp for its loop.
#include "scorer.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "engines.hpp"
#include "kernels.hpp"

namespace gpuqs {
namespace {

struct Free {
    void operator()(void* p) const { std::free(p); }
};
using Buffer = std::unique_ptr<void, Free>;

Buffer allocate(size_t bytes) {
    const size_t whole = std::max<size_t>((bytes + 63) / 64 * 64, 64);
    void* p = std::aligned_alloc(64, whole);
    if (!p) throw std::bad_alloc();
    return Buffer(p);
}

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

template <class Sum>
void score_as(const ExitLeaves& engine, const Kernels& kernels, const Documents& documents, const LeafValues& values, Sum* out,
              int n_threads, bool started) {
    const Blocks blocks = blocks_of(engine, documents, n_threads);
    const int stride = blocks.stride;
    const int n_outputs = values.n_outputs;
    const uint16_t* order = engine.order(stride);
    const Sum* start = static_cast<const Sum*>(values.start);
    // Where the sum of a block's document for an output stands while trees are added.
    const auto place = [=](int output, int d) { return static_cast<int64_t>(output) * stride + (order ? order[d] : d); };
    for_document_blocks(
        engine, documents, blocks, sizeof(Sum) * n_outputs, n_threads, [&](Thread& thread, int64_t first, int n) {
            Sum* sums = static_cast<Sum*>(thread.sums.get());
            for (int k = 0; k < n_outputs; k++) {
                std::fill_n(sums + static_cast<int64_t>(k) * stride, stride, start[k]);
                for (int d = 0; started && d < n; d++) sums[place(k, d)] = out[(first + d) * n_outputs + k];
            }
            engine.load(documents, first, n, stride, thread.scratch.get());
            for (int b = 0; b < engine.n_tree_blocks(); b++) {
                engine.find(b, n, stride, thread.scratch.get(), thread.leaf.get());
                const int tree = engine.first_tree(b);
                kernels.add_values(values, tree, engine.first_tree(b + 1) - tree, engine.leaf_bytes(), thread.leaf.get(),
                                   order ? stride : n, stride, sums);
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
    for_document_blocks(engine, documents, blocks, 0, n_threads, [&](Thread& thread, int64_t first, int n) {
        engine.load(documents, first, n, stride, thread.scratch.get());
        for (int b = 0; b < engine.n_tree_blocks(); b++) {
            engine.find(b, n, stride, thread.scratch.get(), thread.leaf.get());
            const Leaf* leaf = static_cast<const Leaf*>(thread.leaf.get());
            for (int t = engine.first_tree(b); t < engine.first_tree(b + 1); t++, leaf += stride)
                for (int d = 0; d < n; d++)
                    out[(first + d) * values.n_trees + t] = values.leaf_id[values.offsets[t] + leaf[order ? order[d] : d]];
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

void encode(const Bitslice& engine, const Documents& documents, uint8_t* planes, int n_threads) {
    const Blocks blocks = blocks_of(engine, documents, 1);  // the same for any number of threads
    const int stride = blocks.stride;
    const int64_t bytes = engine.planes_bytes(stride);
    for_document_blocks(engine, documents, blocks, 0, n_threads, [&](Thread& thread, int64_t first, int n) {
        engine.load(documents, first, n, stride, thread.scratch.get());
        std::memcpy(planes + first / engine.document_block() * bytes, thread.scratch.get(), bytes);
    });
}

}  // namespace gpuqs
