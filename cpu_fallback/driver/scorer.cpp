// The driver that all CPU engines share; see scorer.hpp for its loop.
#include "driver/scorer.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "driver/engines.hpp"
#include "driver/linear.hpp"
#include "driver/scratch.hpp"
#include "driver/threads.hpp"
#include "generic/kernels.hpp"

namespace gpuqs {
namespace {

// Upper limit of the bytes of exit leaves that are kept while threads share out the trees.
constexpr size_t kMaxByTrees = 16 << 20;
// Each thread gets several shares of the trees, so that a late thread still finds work.
constexpr int kSharesOfThread = 4;
// Leaf numbers of a document that are written together, two cache lines of them: written one by one, each could load and evict its
// cache line again.
constexpr int kNumbersTogether = 32;

// A thread's memory for its part of a call.
struct Thread {
    char *loaded, *scratch, *leaf, *sums;
    bool brought;  // the tree data that it reads is in its caches
    Buffer memory;
};

// fills_blocks: whether every document block has as many documents as places.
Thread thread_with(size_t loaded_bytes, size_t scratch_bytes, size_t leaf_bytes, size_t sum_bytes, bool fills_blocks = false) {
    const size_t before_scratch = whole_lines(loaded_bytes) + kGuard;
    const size_t before_leaf = before_scratch + whole_lines(scratch_bytes) + kGuard;
    const size_t before_sums = before_leaf + whole_lines(leaf_bytes) + kGuard;
    Buffer memory = allocate(before_sums + sum_bytes);
    char* const loaded = static_cast<char*>(memory.get());
    for (const size_t end : {before_scratch, before_leaf, before_sums}) guard(loaded + end - kGuard);
    if (!fills_blocks) std::memset(loaded + before_leaf, 0, leaf_bytes);  // places beyond the last document have leaf 0
    return {loaded, loaded + before_scratch, loaded + before_leaf, loaded + before_sums, false, std::move(memory)};
}

// How a batch is cut into document blocks of `size` documents each, in `stride` places. If there are several superblocks,
// up to `together` document blocks go through one superblock before the next; else each block goes through all trees by itself.
struct DocumentBlocks {
    int64_t size;
    int stride;
    int together;
    bool by_superblocks;
};

int64_t quotient_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Document blocks that each thread takes next, of n that are left: three quarters of its share, so that all end at about the same
// time, although one came late or lost its processor for a while.
int64_t next_share(int64_t n, int n_threads, int64_t most) { return std::clamp<int64_t>(n * 3 / (4 * n_threads), 1, most); }

DocumentBlocks blocks_of(const ExitLeaves& engine, const Documents& documents, int n_threads) {
    const int64_t most = engine.document_block();
    DocumentBlocks blocks = {most, engine.stride(static_cast<int>(std::min(documents.n, most))), 1, false};
    if (!documents.planes && documents.n < most * n_threads) {  // coded documents keep the blocks they were coded in
        const int64_t each = std::max<int64_t>(quotient_up(documents.n, n_threads), 1);
        blocks.stride = engine.stride(static_cast<int>(std::min(each, most)));
        blocks.size = std::min<int64_t>(blocks.stride, most);
    }
    const int n_tree_blocks = engine.n_tree_blocks();
    for (int b = 1; b < n_tree_blocks && engine.blocks_together() > 1 && !blocks.by_superblocks; b++)
        blocks.by_superblocks = engine.begins_superblock(b);
    if (blocks.by_superblocks) {
        const int64_t n = std::max<int64_t>(quotient_up(documents.n, blocks.size), 1), fitting = engine.blocks_together();
        const int64_t together = n_threads == 1 ? quotient_up(n, quotient_up(n, fitting)) : next_share(n, n_threads, fitting);
        blocks.together = static_cast<int>(together);
    }
    return blocks;
}

// The tree blocks [first, end) that a range of trees needs: `first` begins a superblock, and the range begins in block `within`.
struct TreeBlocks {
    int first, within, end;
    // Of the blocks before the range, find is called only for the first.
    bool left_out(int block) const { return first < block && block < within; }
};

TreeBlocks blocks_of_trees(const ExitLeaves& engine, const LeafValues& values) {
    const int n = engine.n_tree_blocks();
    TreeBlocks blocks = {0, 0, n};
    while (blocks.within < n && engine.first_tree(blocks.within + 1) <= values.first_tree) blocks.within++;
    blocks.first = blocks.within;
    while (0 < blocks.first && blocks.first < n && !engine.begins_superblock(blocks.first)) blocks.first--;
    while (blocks.end > blocks.within && engine.first_tree(blocks.end - 1) >= values.first_tree + values.n_trees) blocks.end--;
    return blocks;
}

// The end of the tree blocks that document blocks go through before the next ones do: of the superblock that begins with `first`,
// or all up to `most`.
int end_of_superblock(const ExitLeaves& engine, const DocumentBlocks& blocks, int first, int most) {
    if (!blocks.by_superblocks) return most;
    int end = first + 1;
    while (end < most && !engine.begins_superblock(end)) end++;
    return end;
}

// The first document of each piece of work, and the end. Threads take as many pieces of one size as there are threads, then smaller
// ones.
std::vector<int64_t> pieces_of(int64_t n, const DocumentBlocks& blocks, int n_threads) {
    const int64_t n_blocks = quotient_up(n, blocks.size);
    std::vector<int64_t> starts;
    for (int64_t at = 0, share = blocks.together; at < n_blocks; at += share) {
        if (n_threads > 1 && starts.size() % n_threads == 0) share = next_share(n_blocks - at, n_threads, blocks.together);
        starts.push_back(at * blocks.size);
    }
    starts.push_back(n);
    return starts;
}

// Calls work(thread, first document, number of documents) for every document block, or up to `together` of them. All memory is
// allocated before threads start.
template <class Work>
void for_document_blocks(const ExitLeaves& engine, const Documents& documents, const DocumentBlocks& blocks, size_t sum_bytes,
                         int n_threads, Work work) {
    const int stride = blocks.stride;
    std::vector<int64_t> starts;
    if (blocks.together > 1) starts = pieces_of(documents.n, blocks, n_threads);
    const auto start_of = [&](int64_t p) { return starts.empty() ? std::min(p * blocks.size, documents.n) : starts[p]; };
    const int64_t n_pieces = starts.empty() ? quotient_up(documents.n, blocks.size) : static_cast<int64_t>(starts.size()) - 1;
    n_threads = static_cast<int>(std::max<int64_t>(1, std::min<int64_t>(n_threads, n_pieces)));
    const auto with_memory = [&] {
        const size_t leaf_bytes = static_cast<size_t>(engine.largest_tree_block()) * stride * engine.leaf_bytes();
        return thread_with(engine.loaded_bytes(stride) * blocks.together, engine.scratch_bytes(stride), leaf_bytes,
                           sum_bytes * stride * blocks.together);
    };
    Thread caller = with_memory();  // without a vector, a single thread allocates less
    std::vector<Thread> helpers;
    if (n_threads > 1) helpers.reserve(n_threads - 1);
    while (static_cast<int>(helpers.size()) < n_threads - 1) helpers.push_back(with_memory());
    share_out(n_pieces, n_threads, [&](int thread, int64_t p) {
        work(thread ? helpers[thread - 1] : caller, start_of(p), static_cast<int>(start_of(p + 1) - start_of(p)));
    });
}

// Finds the exit leaves of documents [first, first + n), one or more document blocks, in the trees of `values`, and calls
// work(document block, number of documents, first tree, number of trees, leaf).
template <class Work>
void find_exit_leaves(const ExitLeaves& engine, const Documents& documents, const DocumentBlocks& blocks, const LeafValues& values,
                      const TreeBlocks& trees, Thread& thread, const LeafRecords& records, int64_t first, int n, Work work) {
    const int size = static_cast<int>(blocks.size), stride = blocks.stride;
    const size_t loaded_bytes = engine.loaded_bytes(stride);
    for (int d = 0; d < n; d += size)
        engine.load(documents, first + d, std::min(size, n - d), stride, thread.loaded + d / size * loaded_bytes, thread.scratch);
    for (int s = trees.first, end; s < trees.end; s = end) {
        end = end_of_superblock(engine, blocks, s, trees.end);
        for (int d = 0; d < n; d += size)
            for (int b = s; b < end; b++) {
                if (trees.left_out(b)) continue;
                const int rows = std::min(size, n - d);
                if (d == 0 && !thread.brought) engine.bring(b, stride, records);
                engine.find(b, rows, stride, thread.loaded + d / size * loaded_bytes, thread.scratch, records, thread.leaf);
                if (b < trees.within) continue;
                const int of_block = engine.first_tree(b), tree = std::max(of_block, values.first_tree);
                const int n_trees = std::min(engine.first_tree(b + 1), values.first_tree + values.n_trees) - tree;
                const size_t before = static_cast<size_t>(tree - of_block) * stride * engine.leaf_bytes();
                work(d / size, rows, tree, n_trees, thread.leaf + before);
            }
    }
    thread.brought = true;
}

// Cuts tree blocks into up to `most` shares of whole superblocks: returns the first block of each, and the end.
std::vector<int> share_trees(const ExitLeaves& engine, const TreeBlocks& trees, int most) {
    std::vector<int> starts = {trees.first};
    const int n = trees.end - trees.first;
    for (int b = 1; b < n; b++)
        if (engine.begins_superblock(trees.first + b) && b >= static_cast<int64_t>(starts.size()) * n / most)
            starts.push_back(trees.first + b);
    starts.push_back(trees.end);
    return starts;
}

// leaf[tree][stride] of the trees of `values`; it lies within `memory`.
struct Found {
    Buffer memory;
    const void* leaf = nullptr;
};

// Finds the exit leaves of a batch of one document block with several threads; returns nothing if there is no work to share out.
Found find_by_trees(const ExitLeaves& engine, const Documents& documents, const DocumentBlocks& blocks, const LeafValues& values,
                    const TreeBlocks& trees, const LeafRecords& records, int n_threads) {
    if (n_threads == 1 || documents.n == 0 || documents.n > blocks.size) return {};
    const size_t of_tree = static_cast<size_t>(blocks.stride) * engine.leaf_bytes();
    const int first_tree = engine.first_tree(trees.first);
    const size_t bytes = (engine.first_tree(trees.end) - first_tree) * of_tree;
    if (bytes > kMaxByTrees) return {};
    const std::vector<int> starts = share_trees(engine, trees, n_threads * kSharesOfThread);
    const int n_shares = static_cast<int>(starts.size()) - 1;
    if (n_shares < 2) return {};
    Buffer leaf = allocate(bytes);
    std::memset(leaf.get(), 0, bytes);
    std::vector<Thread> threads;
    while (static_cast<int>(threads.size()) < std::min(n_shares, n_threads))
        threads.push_back(thread_with(engine.loaded_bytes(blocks.stride), engine.scratch_bytes(blocks.stride), 0, 0));
    std::vector<char> loads(threads.size(), true);  // whether a thread has still to load the documents
    const int n = static_cast<int>(documents.n);
    share_out(n_shares, static_cast<int>(threads.size()), [&](int number, int64_t share) {
        const Thread& thread = threads[number];
        if (loads[number]) engine.load(documents, 0, n, blocks.stride, thread.loaded, thread.scratch);
        loads[number] = false;
        for (int b = starts[share]; b < starts[share + 1]; b++) {
            if (trees.left_out(b)) continue;
            const size_t at = (engine.first_tree(b) - first_tree) * of_tree;
            engine.bring(b, blocks.stride, records);
            engine.find(b, n, blocks.stride, thread.loaded, thread.scratch, records, static_cast<char*>(leaf.get()) + at);
        }
    });
    const void* const of_trees = static_cast<char*>(leaf.get()) + (values.first_tree - first_tree) * of_tree;
    return {std::move(leaf), of_trees};
}

// How the sums of a document block lie while trees are added.
struct SumLayout {
    int n_outputs, stride;
    bool by_document;       // [document][output], else [output][document]
    const int32_t* places;  // of the documents

    int64_t size() const { return static_cast<int64_t>(n_outputs) * stride; }
    template <class Sum> void start(Sum* sums, const Sum* of_outputs) const {
        if (by_document)
            for (int row = 0; row < stride; row++) std::copy_n(of_outputs, n_outputs, sums + static_cast<int64_t>(row) * n_outputs);
        else
            for (int k = 0; k < n_outputs; k++) std::fill_n(sums + static_cast<int64_t>(k) * stride, stride, of_outputs[k]);
    }
    // values: [rows][n_outputs]
    template <class Sum> void read(Sum* sums, const Sum* values, int rows) const {
        for_each(rows, [=](int64_t sum, int64_t value) { sums[sum] = values[value]; });
    }
    template <class Sum> void write(const Sum* sums, Sum* values, int rows) const {
        for_each(rows, [=](int64_t sum, int64_t value) { values[value] = sums[sum]; });
    }

private:
    // Calls f(place among the sums, place in [rows][n_outputs]).
    template <class F> void for_each(int rows, F f) const {
        const int64_t n = n_outputs;
        if (by_document)
            for (int i = 0; i < rows; i++)
                for (int k = 0; k < n; k++) f(places[i] * n + k, i * n + k);
        else
            for (int k = 0; k < n; k++)
                for (int i = 0; i < rows; i++) f(static_cast<int64_t>(k) * stride + places[i], i * n + k);
    }
};

// The records that add_values reads of exit leaves.
LeafRecords records_of(const LeafValues& values) {
    if (values.row) return {values.row, sizeof *values.row, values.offsets};
    const int64_t value_bytes = values.kind == ValueKind::float64 ? sizeof(double) : sizeof(float);
    return {values.tables ? nullptr : values.value, values.width * value_bytes, values.offsets};
}

// Adds the values of exit leaves leaf[tree][stride] to the sums of a document block of `rows` documents, of which `first` is the
// first.
template <class Sum>
void add_trees(const ExitLeaves& engine, const Kernels& kernels, const Documents& documents, const LeafValues& values, int64_t first,
               int rows, int tree, int n_trees, const void* leaf, const SumLayout& layout, Sum* sums) {
    const uint16_t* const order = engine.order(layout.stride);
    if constexpr (std::is_same_v<Sum, double>)
        if (values.linear.bounds)
            return add_linear(values, documents, first, rows, tree, n_trees, engine.leaf_bytes(), leaf, layout.stride, order,
                              layout.places, sums);
    kernels.add_values(values, tree, n_trees, engine.leaf_bytes(), leaf, order ? layout.stride : rows, layout.stride, sums);
}

// Whether the sum of a single document is that of all trees' records, which the engine adds in find.
bool is_added_in_find(const ExitLeaves& engine, const LeafValues& values, const LeafRecords& records) {
    return engine.adds_in_find() && values.kind != ValueKind::fixed && values.n_outputs == 1 && records.first && !values.row &&
           !values.linear.bounds && values.n_trees == engine.first_tree(engine.n_tree_blocks());
}

// What most calls are: one document block on the caller's thread, without stages. score_as goes through three times as many cache
// lines of code, which a call with cold caches waits for.
template <class Sum>
void score_block(const ExitLeaves& engine, const Kernels& kernels, const Documents& documents, const LeafValues& values, Sum* out) {
    const int n = static_cast<int>(documents.n), stride = engine.stride(n), n_outputs = values.n_outputs;
    engine.make_ready(stride, 1);
    const size_t sum_bytes = whole_lines(sizeof(Sum) * n_outputs * stride);
    Thread thread = thread_with(engine.loaded_bytes(stride), engine.scratch_bytes(stride),
                                static_cast<size_t>(engine.largest_tree_block()) * stride * engine.leaf_bytes(),
                                sum_bytes + sizeof(int32_t) * stride, n == stride);
    Sum* const sums = reinterpret_cast<Sum*>(thread.sums);
    int32_t* const places = reinterpret_cast<int32_t*>(thread.sums + sum_bytes);
    kernels.sum_places(values, engine.order(stride), n, places);
    const SumLayout layout = {n_outputs, stride, values.width > 1 && !values.tables, places};
    layout.start(sums, static_cast<const Sum*>(values.start));
    const DocumentBlocks block = {n, stride, 1, false};
    LeafRecords records = records_of(values);
    if (n == 1 && is_added_in_find(engine, values, records)) records.sum = sums;
    find_exit_leaves(engine, documents, block, values, blocks_of_trees(engine, values), thread, records, 0, n,
                     [&](int, int rows, int tree, int n_trees, const void* leaf) {
                         if (!records.sum) add_trees(engine, kernels, documents, values, 0, rows, tree, n_trees, leaf, layout, sums);
                     });
    layout.write(sums, out, n);
}

template <class Sum>
void score_as(const ExitLeaves& engine, const Kernels& kernels, const Documents& documents, const LeafValues& values,
              const Stages& stages, const Sum* begin, Sum* out, int n_threads) {
    const DocumentBlocks blocks = blocks_of(engine, documents, n_threads);
    const int stride = blocks.stride, size = static_cast<int>(blocks.size), n_outputs = values.n_outputs;
    engine.make_ready(stride, n_threads);
    const uint16_t* order = engine.order(stride);
    const LeafRecords records = records_of(values);
    const TreeBlocks trees = blocks_of_trees(engine, values);
    const Found found = find_by_trees(engine, documents, blocks, values, trees, records, n_threads);
    const Buffer memory = allocate(sizeof(int32_t) * stride);
    int32_t* const places = static_cast<int32_t*>(memory.get());
    kernels.sum_places(values, order, static_cast<int>(std::min<int64_t>(size, documents.n)), places);
    const SumLayout layout = {n_outputs, stride, values.width > 1 && !values.tables, places};
    for_document_blocks(engine, documents, blocks, sizeof(Sum) * n_outputs, n_threads, [&](Thread& thread, int64_t first, int n) {
        Sum* const sums = reinterpret_cast<Sum*>(thread.sums);
        const auto row = [&](int block) { return first + block * blocks.size; };  // a block's first document
        const auto add_all = [&](int block, int rows, int tree, int n_trees, const void* leaf) {
            add_trees(engine, kernels, documents, values, row(block), rows, tree, n_trees, leaf, layout, sums + block * layout.size());
        };
        const auto write = [&](int block, int rows, int stage) {
            layout.write(sums + block * layout.size(), out + stage * stages.stride + row(block) * n_outputs, rows);
        };
        const auto add = [&](int block, int rows, int tree, int n_trees, const void* leaf) {
            const char* from = static_cast<const char*>(leaf);
            const int32_t *const ends = stages.ends, *const last = ends + stages.n_ends;
            for (const int32_t* end = std::lower_bound(ends, last, tree); end < last && *end < tree + n_trees; end++) {
                const int of_stage = *end - tree;
                if (of_stage > 0) add_all(block, rows, tree, of_stage, from);
                write(block, rows, static_cast<int>(end - ends));
                from += static_cast<int64_t>(of_stage) * stride * engine.leaf_bytes();
                n_trees -= of_stage;
                tree = *end;
            }
            add_all(block, rows, tree, n_trees, from);
        };
        for (int block = 0; block * size < n; block++)
            layout.start(sums + block * layout.size(), static_cast<const Sum*>(values.start));
        for (int d = 0; d < n && begin; d += size)
            layout.read(sums + d / size * layout.size(), begin + row(d / size) * n_outputs, std::min(size, n - d));
        if (found.leaf)
            add(0, n, values.first_tree, values.n_trees, found.leaf);
        else
            find_exit_leaves(engine, documents, blocks, values, trees, thread, records, first, n, add);
        for (int d = 0; d < n; d += size) write(d / size, std::min(size, n - d), stages.n_ends);
    });
}

// Writes the source library's numbers of the leaves leaf[tree][stride] of some trees to out[document][tree of the range].
template <class Leaf>
void write_numbers(const LeafValues& values, const uint16_t* order, int tree, int n_trees, const Leaf* leaf, int stride, int n,
                   int32_t* out) {
    const int32_t* number[kNumbersTogether];  // of each tree's leaves
    for (int k = 0; k < n_trees; k++) number[k] = values.leaf_id + values.offsets[tree + k];
    out += tree - values.first_tree;
    for (int d = 0; d < n; d++, out += values.n_trees) {
        const Leaf* const of_document = leaf + (order ? order[d] : d);
#pragma GCC unroll 4  // else the loop takes a sixth longer where it lies across two cache lines
        for (int k = 0; k < n_trees; k++) out[k] = number[k][of_document[static_cast<int64_t>(k) * stride]];
    }
}

template <class Leaf>
void exit_leaves_as(const ExitLeaves& engine, const Documents& documents, const LeafValues& values, int32_t* out, int n_threads) {
    const DocumentBlocks blocks = blocks_of(engine, documents, n_threads);
    const int stride = blocks.stride;
    engine.make_ready(stride, n_threads);
    const uint16_t* order = engine.order(stride);
    const LeafRecords records = {values.leaf_id, sizeof(int32_t), values.offsets};
    const TreeBlocks trees = blocks_of_trees(engine, values);
    const Found found = find_by_trees(engine, documents, blocks, values, trees, records, n_threads);
    for_document_blocks(engine, documents, blocks, 0, n_threads, [&](Thread& thread, int64_t first, int n) {
        const auto number = [&](int block, int rows, int tree, int n_trees, const void* leaves) {
            const Leaf* leaf = static_cast<const Leaf*>(leaves);
            int32_t* const to = out + (first + block * blocks.size) * values.n_trees;
            for (int t = 0; t < n_trees; t += kNumbersTogether)
                write_numbers(values, order, tree + t, std::min(kNumbersTogether, n_trees - t), leaf + static_cast<int64_t>(t) * stride,
                              stride, rows, to);
        };
        if (found.leaf)
            number(0, n, values.first_tree, values.n_trees, found.leaf);
        else
            find_exit_leaves(engine, documents, blocks, values, trees, thread, records, first, n, number);
    });
}

}  // namespace

void score(const ExitLeaves& engine, const Kernels& kernels, const Documents& documents, const LeafValues& values, void* sums,
           int n_threads, bool started) {
    score_stages(engine, kernels, documents, values, {}, started ? sums : nullptr, sums, n_threads);
}

void score_stages(const ExitLeaves& engine, const Kernels& kernels, const Documents& documents, const LeafValues& values,
                  const Stages& stages, const void* begin, void* sums, int n_threads) {
    n_threads = std::max(n_threads, 1);
    const auto as = [&](auto zero) {
        using Sum = decltype(zero);
        const bool is_one_block = 0 < documents.n && documents.n <= engine.document_block();
        if (is_one_block && n_threads == 1 && !begin && stages.n_ends == 0)
            return score_block(engine, kernels, documents, values, static_cast<Sum*>(sums));
        score_as(engine, kernels, documents, values, stages, static_cast<const Sum*>(begin), static_cast<Sum*>(sums), n_threads);
    };
    switch (values.kind) {
        case ValueKind::float64: return as(double{});
        case ValueKind::float32: return as(float{});
        case ValueKind::fixed: return as(int64_t{});
    }
}

void exit_leaves(const ExitLeaves& engine, const Documents& documents, const LeafValues& values, int32_t* leaves, int n_threads) {
    n_threads = std::max(n_threads, 1);
    switch (engine.leaf_bytes()) {
        case 1: return exit_leaves_as<uint8_t>(engine, documents, values, leaves, n_threads);
        case 2: return exit_leaves_as<uint16_t>(engine, documents, values, leaves, n_threads);
        default: return exit_leaves_as<uint32_t>(engine, documents, values, leaves, n_threads);
    }
}

int64_t coded_bytes(const Bitslice& engine, int64_t n) {
    const int stride = engine.stride(static_cast<int>(std::min<int64_t>(n, engine.document_block())));
    return quotient_up(n, engine.document_block()) * static_cast<int64_t>(engine.loaded_bytes(stride));
}

void encode(const Bitslice& engine, const Documents& part, int64_t n, uint8_t* planes, int n_threads) {
    Documents all = part;
    all.n = n;
    DocumentBlocks blocks = blocks_of(engine, all, 1);  // the same for any number of threads
    blocks.together = 1;
    const int64_t bytes = static_cast<int64_t>(engine.loaded_bytes(blocks.stride));
    for_document_blocks(engine, part, blocks, 0, n_threads, [&](Thread& thread, int64_t first, int rows) {
        engine.load(part, first, rows, blocks.stride, planes + first / blocks.size * bytes, thread.scratch);
    });
}

}  // namespace gpuqs
