// The driver that all CPU engines share, and the interface through which it runs them.
//
//   for each few document blocks (threads share these out):
//       engine.load(documents)                      rank or transpose them
//       sums = start, or what the caller began them with
//       for each superblock (some tree blocks):     so many trees stay in the caches for other documents
//           for each document block:
//               for each tree block, in tree order:
//                   engine.bring(tree block)            for a thread's first document block only
//                   engine.find(tree block) -> leaf     exit leaf of every (tree, document)
//                   add_values(leaf) -> sums            or: store the leaves' own numbers;
//                                                       a stage that ends within them is written out on the way
//       write the sums out
//
// If all documents fit one block, threads share out the superblocks instead, and one adds up.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "layout/documents.hpp"
#include "layout/leaves.hpp"

namespace gpuqs {

struct Kernels;

// How an engine finds exit leaves: a position among the tree's leaves, from left to right.
class ExitLeaves {
public:
    virtual ~ExitLeaves() = default;
    virtual int document_block() const = 0;     // δ: load and find take at most so many documents at a time
    // A document block of up to n documents gets so many places in what load and find write.
    virtual int stride(int n) const = 0;
    virtual int leaf_bytes() const = 0;         // 1, 2 or 4: size of one stored position
    virtual int n_tree_blocks() const = 0;
    virtual int first_tree(int block) const = 0;  // of block 0 ... n_tree_blocks (the end)
    int largest_tree_block() const {              // its number of trees
        int largest = 0;
        for (int block = 0; block < n_tree_blocks(); block++) largest = std::max(largest, first_tree(block + 1) - first_tree(block));
        return largest;
    }
    // load writes a document block into so many bytes, aligned to 64; each thread has a scratch of so many.
    virtual size_t loaded_bytes(int stride) const = 0;
    virtual size_t scratch_bytes(int stride) const = 0;
    // Ranks or transposes documents [first, first + n); n <= document_block().
    virtual void load(const Documents& documents, int64_t first, int n, int stride, void* loaded, void* scratch) const = 0;
    // order[d] is the place of document d in what find writes; null: its place is d.
    virtual const uint16_t* order(int stride) const = 0;
    // One thread calls this before any calls load or find with a stride; it may ask so many to help.
    virtual void make_ready(int, int) const {}
    // Whether a superblock begins with this tree block. For the others of a superblock, find needs what its call for the first
    // left in scratch.
    virtual bool begins_superblock(int) const { return true; }
    // So many document blocks go through a superblock, one after another, before any goes on to the next superblock.
    virtual int blocks_together() const { return 1; }
    // Brings what find will read of a tree block into the caches, where other work may have put it out of them.
    virtual void bring(int, int, const LeafRecords&) const {}
    // Writes leaf[tree in block][stride] of a tree block, and may ask for the leaves' records. Calls go through the tree blocks
    // in order; of a range of trees, to those that hold some of it, and to the first of its superblock.
    virtual void find(int block, int n, int stride, const void* loaded, void* scratch, const LeafRecords& records,
                      void* leaf) const = 0;
};

// All are of the range of trees that LeafValues tells.
// sums: [documents][n_outputs] of double, float or int64; started: they begin with what is there, not with start.
void score(const ExitLeaves&, const Kernels&, const Documents&, const LeafValues&, void* sums, int n_threads, bool started);

// Stages of the trees: n_ends ascending numbers of trees of the range, before which all stages end but the last. Sums of stage s
// are written at s * stride.
struct Stages {
    const int32_t* ends = nullptr;
    int n_ends = 0;
    int64_t stride = 0;
};

// sums: [n_ends + 1] times those of score, after each stage. begin: [documents][n_outputs] that they begin with; null: start.
void score_stages(const ExitLeaves&, const Kernels&, const Documents&, const LeafValues&, const Stages&, const void* begin, void* sums,
                  int n_threads);

// leaves: [documents][n_trees] of the source library's leaf numbers.
void exit_leaves(const ExitLeaves&, const Documents&, const LeafValues&, int32_t* leaves, int n_threads);

class Bitslice;

// Bytes of n coded documents: planes[document block][bytes of a block].
int64_t coded_bytes(const Bitslice&, int64_t n);
// Codes a part of n documents. `planes` is the place of its first block; parts are whole blocks, but for the last.
void encode(const Bitslice&, const Documents& part, int64_t n, uint8_t* planes, int n_threads);

}  // namespace gpuqs
