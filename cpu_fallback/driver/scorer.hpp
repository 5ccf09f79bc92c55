// The driver that all CPU engines share, and the interface through which it runs them.
//
//   for each group of document blocks (threads share these out):
//       engine.load(documents)                      rank or transpose them
//       sums = start, or what the caller began them with
//       for each superblock (some tree blocks):     its trees stay in the caches for the next document blocks
//           for each document block:
//               for each tree block, in tree order:
//                   engine.bring(tree block)            for a thread's first document block only
//                   engine.find(tree block) -> leaf     exit leaf of every (tree, document)
//                   add_values(leaf) -> sums            or: store the leaves' own numbers;
//                                                       a stage that ends within the tree block is written out on the way
//       write the sums out
//
// If all documents fit one block, threads share out the superblocks instead, and one thread adds up the values.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "layout/documents.hpp"
#include "layout/leaves.hpp"

namespace gpuqs {

struct Kernels;

// How an engine finds exit leaves: a position among the tree's leaves, from left to right.
class ExitLeaves {
public:
    // block_offsets: the first tree of each tree block, then the number of trees.
    explicit ExitLeaves(std::vector<int32_t> block_offsets) : block_offsets_(std::move(block_offsets)) {
        for (int block = 0; block < n_tree_blocks(); block++) largest_ = std::max(largest_, first_tree(block + 1) - first_tree(block));
    }
    virtual ~ExitLeaves() = default;
    int n_tree_blocks() const { return static_cast<int>(block_offsets_.size()) - 1; }
    int first_tree(int block) const { return block_offsets_[block]; }  // of block 0 ... n_tree_blocks (the end)
    int largest_tree_block() const { return largest_; }                // its number of trees
    virtual int document_block() const = 0;     // δ: most documents that load and find take at a time
    // Places that a document block of up to n documents gets in what load and find write.
    virtual int stride(int n) const = 0;
    virtual int leaf_bytes() const = 0;         // 1, 2 or 4: size of one stored position
    // Bytes that load writes for a document block, aligned to 64, and bytes of each thread's scratch.
    virtual size_t loaded_bytes(int stride) const = 0;
    virtual size_t scratch_bytes(int stride) const = 0;
    // Ranks or transposes documents [first, first + n); n <= document_block().
    virtual void load(const Documents& documents, int64_t first, int n, int stride, void* loaded, void* scratch) const = 0;
    // order[d] is the place of document d in what find writes; null: its place is d.
    virtual const uint16_t* order(int stride) const = 0;
    // One thread calls this with a stride and a number of threads, before any thread calls load or find with that stride. Other
    // threads may help it.
    virtual void make_ready(int, int) const {}
    // Whether a superblock begins with this tree block. For the other blocks of a superblock, find needs what its call for the
    // first block left in scratch.
    virtual bool begins_superblock(int) const { return true; }
    // Document blocks that go through a superblock, one after another, before any goes on to the next superblock.
    virtual int blocks_together() const { return 1; }
    // Brings what find will read of a tree block into the caches, in case other work has evicted it.
    virtual void bring(int, int, const LeafRecords&) const {}
    // Writes leaf[tree in block][stride] of a tree block, and may prefetch the leaves' records. Calls are in the order of tree
    // blocks. For a range of trees, they are for the blocks that hold some of these, and for the first block of the superblock in
    // which the range begins.
    virtual void find(int block, int n, int stride, const void* loaded, void* scratch, const LeafRecords& records,
                      void* leaf) const = 0;
    // Whether find also adds the records of a single document's exit leaves, if they have a sum.
    virtual bool adds_in_find() const { return false; }

private:
    const std::vector<int32_t> block_offsets_;
    int largest_ = 0;
};

// The functions below score the range of trees that LeafValues gives.
// sums: [documents][n_outputs] of double, float or int64; started: they begin with what sums holds, not with LeafValues::start.
void score(const ExitLeaves&, const Kernels&, const Documents&, const LeafValues&, void* sums, int n_threads, bool started);

// Stages of scoring: `ends` are n_ends ascending numbers of trees of the range. Each stage except the last ends just before one of
// them. Sums of stage s are written at s * stride.
struct Stages {
    const int32_t* ends = nullptr;
    int n_ends = 0;
    int64_t stride = 0;
};

// sums: [n_ends + 1] arrays as for score, one for each stage. begin: [documents][n_outputs], what sums begin with; null: start.
void score_stages(const ExitLeaves&, const Kernels&, const Documents&, const LeafValues&, const Stages&, const void* begin, void* sums,
                  int n_threads);

// leaves: [documents][n_trees] of the source library's leaf numbers.
void exit_leaves(const ExitLeaves&, const Documents&, const LeafValues&, int32_t* leaves, int n_threads);

class Bitslice;

// Bytes of n coded documents: planes[document block][bytes of a block].
int64_t coded_bytes(const Bitslice&, int64_t n);
// Codes a part of n documents. `planes` is the place of its first block. All parts except the last are whole blocks.
void encode(const Bitslice&, const Documents& part, int64_t n, uint8_t* planes, int n_threads);

}  // namespace gpuqs
