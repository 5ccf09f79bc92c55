// The distinct ones among many keys, in ascending order.
#pragma once
#include <cstdint>
#include <vector>

namespace gpuqs {

// Which keys are met first: keys[first[i]] is the i-th distinct one. number [n]: which distinct one each key is. Keys are
// double (no NaN; zeros of either sign are the same), int64_t or int32_t. Where groups are given [n], keys of different groups are
// different, and ascend by group first.
template <class Key> std::vector<int64_t> distinct(const Key* keys, const int32_t* groups, int64_t n, int32_t* number);

// Which of the rows [n] of so many bytes are met first, and which of these each row is: number [n]. None where there are more
// than `most`; nor where two cannot be told apart, as a file may have them.
std::vector<int64_t> distinct_rows(const void* rows, int64_t bytes, int64_t n, int64_t most, int32_t* number);

// How many of the numbers [n], which are in [0, range), are each of these.
std::vector<int64_t> counts(const int32_t* numbers, int64_t n, int64_t range);

// Which of those numbers are at some place where flags [n] have the bit.
std::vector<uint8_t> flagged(const int32_t* numbers, const uint8_t* flags, uint8_t bit, int64_t n, int64_t range);

// Whether distinct[offsets[g] + rank[i]] is keys[i], for g = groups[i] in [0, n_groups), each group's distinct keys ascend, and
// all of them are met: so whether they are what `distinct` finds. offsets [n_groups + 1], distinct and rank may be anything.
bool are_ranks(const double* keys, const int32_t* groups, int64_t n, int64_t n_groups, const double* distinct, const int64_t* offsets,
               int64_t n_distinct, const int32_t* rank, int n_threads);

// Predicates of tree blocks, which superblocks share: whole blocks in a row, as many as have no more distinct predicates
// and nodes than allowed, and one at least.
struct Superblocks {
    std::vector<int64_t> ends;       // of each superblock: the block behind it
    std::vector<int64_t> distinct;   // each superblock's distinct predicates, ascending, one superblock after another
    std::vector<int64_t> n_distinct;
};

// predicate [nodes], in [0, n_predicates); first_node [blocks + 1]. number [nodes]: which of its superblock's distinct ones.
Superblocks number_predicates(const int32_t* predicate, int64_t n_predicates, const int64_t* first_node, int64_t n_blocks,
                              int64_t most_predicates, int64_t most_nodes, int32_t* number);

}  // namespace gpuqs
