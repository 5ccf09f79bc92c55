// Distinct keys, in ascending order, among many.
#pragma once
#include <cstdint>
#include <vector>

namespace gpuqs {

// Returns where each distinct key is first met: keys[first[i]] is the i-th distinct key. number [n]: which distinct key each key
// is. Keys are double (no NaN; zeros of either sign are the same), int64_t or int32_t. If groups [n] are given, keys of different
// groups are distinct, and they ascend by group first.
template <class Key> std::vector<int64_t> distinct(const Key* keys, const int32_t* groups, int64_t n, int32_t* number);

// Returns where each distinct row of `bytes` bytes is first met, in order of appearance. number [n]: which distinct row each row
// is. Empty if there are more than `most`, or if different rows have the same hash, which a file can be made to cause.
std::vector<int64_t> distinct_rows(const void* rows, int64_t bytes, int64_t n, int64_t most, int32_t* number);

// How often each number in [0, range) occurs among the numbers [n].
std::vector<int64_t> counts(const int32_t* numbers, int64_t n, int64_t range);

// For each number in [0, range): `bit` if it occurs at some place where flags [n] have that bit, else 0.
std::vector<uint8_t> flagged(const int32_t* numbers, const uint8_t* flags, uint8_t bit, int64_t n, int64_t range);

// Whether these arrays are what `distinct` finds: distinct[offsets[g] + rank[i]] is keys[i] for g = groups[i], each group's
// distinct keys ascend, and all of them are met. groups are in [0, n_groups); offsets [n_groups + 1], distinct and rank may hold
// anything.
bool are_ranks(const double* keys, const int32_t* groups, int64_t n, int64_t n_groups, const double* distinct, const int64_t* offsets,
               int64_t n_distinct, const int32_t* rank, int n_threads);

// Superblocks and their predicates. A superblock is as many consecutive tree blocks as have no more distinct predicates and nodes
// than allowed, but at least one.
struct Superblocks {
    std::vector<int64_t> ends;       // of each superblock: the block after its last one
    std::vector<int64_t> distinct;   // each superblock's distinct predicates, ascending, one superblock after another
    std::vector<int64_t> n_distinct;
};

// predicate [nodes], in [0, n_predicates); first_node [blocks + 1]. number [nodes]: which of its superblock's distinct predicates
// each node has.
Superblocks number_predicates(const int32_t* predicate, int64_t n_predicates, const int64_t* first_node, int64_t n_blocks,
                              int64_t max_predicates, int64_t max_nodes, int32_t* number);

}  // namespace gpuqs
