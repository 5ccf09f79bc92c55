// The driver that all CPU engines share, and the interface through which it runs them.
//
//   for each few document blocks (threads share these out):
//       engine.load(documents)                      rank or transpose them
//       sums = start, or what the caller began them with
//       for each range of tree blocks:              as many as caches hold: other documents find them there
//           for each document block:
//               for each tree block, in tree order:
//                   engine.find(tree block) -> leaf     exit leaf of every (tree, document)
//                   add_values(leaf) -> sums            or: store the leaves' own numbers
//       write the sums out
//
// Fewer documents than fill a block for each thread: threads share out the tree blocks instead, and one adds up.
#pragma once
#include <cstddef>
#include <cstdint>

#include "layout/documents.hpp"
#include "layout/leaf_values.hpp"

namespace gpuqs {

struct Kernels;

// How an engine finds exit leaves: a position among the tree's leaves, from left to right.
class ExitLeaves {
public:
    virtual ~ExitLeaves() = default;
    virtual int document_block() const = 0;     // δ: most documents that load and find work on
    // Places that load and find reserve for each block's documents, if blocks have up to n documents.
    virtual int stride(int n) const = 0;
    virtual int leaf_bytes() const = 0;         // 1, 2 or 4: size of one stored position
    virtual int n_tree_blocks() const = 0;
    virtual int first_tree(int block) const = 0;  // of block 0 ... n_tree_blocks (the end)
    // Sizes of 64-byte aligned memory: for the document block that load writes, and for one thread's scratch.
    virtual size_t loaded_bytes(int stride) const = 0;
    virtual size_t scratch_bytes(int stride) const = 0;
    // Documents [first, first + n) of `documents`; n <= document_block().
    virtual void load(const Documents& documents, int64_t first, int n, int stride, void* loaded, void* scratch) const = 0;
    // The place of each document in find's result; null: document d is at place d.
    virtual const uint16_t* order(int stride) const = 0;
    // Called before load and find work with a stride, by one thread.
    virtual void make_ready(int) const {}
    // Whether find may start with this tree block; if not, it needs what its call for the block before left in scratch.
    virtual bool may_begin(int) const { return true; }
    // Document blocks that go through one range of tree blocks, one after another, before any goes on to the next range.
    virtual int blocks_together() const { return 1; }
    // Writes leaf[tree in block][stride]. Calls go through the blocks in order.
    virtual void find(int block, int n, int stride, const void* loaded, void* scratch, void* leaf) const = 0;
};

// sums: [documents][n_outputs] of double, float or int64; started: they begin with what is there, not with start.
void score(const ExitLeaves&, const Kernels&, const Documents&, const LeafValues&, void* sums, int n_threads, bool started);

// leaves: [documents][n_trees] of the source library's leaf numbers.
void exit_leaves(const ExitLeaves&, const Documents&, const LeafValues&, int32_t* leaves, int n_threads);

class Bitslice;

// Bytes of n coded documents: planes[document block][bytes of a block].
int64_t coded_bytes(const Bitslice&, int64_t n);
// Codes a part of n documents. `planes` is the place of its first block; parts are whole blocks, but for the last.
void encode(const Bitslice&, const Documents& part, int64_t n, uint8_t* planes, int n_threads);

// Seconds that one thread spends on the documents, by stage: rank coding, predicates, programs (with exit leaves), values.
void time_stages(const Bitslice&, const Kernels&, const Documents&, const LeafValues&, double seconds[4]);

}  // namespace gpuqs
