// The kernels that are compiled once per instruction set, as a table of functions.
#pragma once
#include <cstdint>

#include "jit/encoding.hpp"
#include "layout/bitslice.hpp"
#include "layout/documents.hpp"
#include "layout/leaves.hpp"
#include "layout/quickscorer.hpp"
#include "layout/ranks.hpp"
#include "layout/rankwalk.hpp"
#include "layout/walk.hpp"

namespace gpuqs {

// Turns bit planes into leaf[documents], of one or two bytes each. Prefetches `lines` cache lines of `code`.
using Spread = void (*)(const void* planes, void* leaf, const void* code, int lines);

// The stages of bitslice for words of one width: 8 * word_bytes documents.
struct BitsliceKernels {
    int word_bytes;
    void (*predicates)(const BitsliceLayout&, int block, const void* planes, void* words);
    void (*programs)(const BitsliceLayout&, int block, const void* words, void* slots, void* leaf);
    Spread spread[2][kPlanes + 1];  // [bytes of a leaf - 1][planes]
};

constexpr int kMaxWidths = 3;

// The kernels that read documents as values of one type. Those that score find leaf[tree][stride] of a tree block.
template <class Value> struct ValueKernels {
    // Loads documents [first, first + n) into x[column][stride].
    void (*load)(const Documents&, int64_t first, int n, const Columns&, int stride, Value* x);
    // The same into x[document][column]; true if some value is missing.
    bool (*load_rows)(const Documents&, int64_t first, int n, const Columns&, Value* x);

    // From x[column][stride]; `bits` is scratch. qs scores one or four documents together. Null where QuickScorer is not built.
    void (*qs)(const QuickScorerLayout&, int block, const Value* x, int n, int stride, int together, void* bits, void* leaf);
    void (*vqs)(const QuickScorerLayout&, int block, const Value* x, int n, int stride, void* bits, uint8_t* leaf);

    // Replaces n values by their keys, for walk; see WalkKey.
    void (*to_keys)(int64_t n, Value* x);
    // From the keys of x[document][column]. Walks begin where `starts` says, or at the roots if it is null.
    void (*walk)(const WalkLayout&, int block, const WalkKey<Value>* x, bool has_missing, int n, int stride, int32_t* leaf,
                 const WalkStarts* starts);
    // From x[document][column], from the roots over items that are only nodes (nodes_alone); null for instruction sets without gathers.
    void (*walk_nodes)(const WalkLayout&, int block, const Value* x, bool has_missing, int n, int stride, int32_t* leaf);

    // Codes for rankwalk; rank is scratch of the shape of x. For walks, code[document][entry] from x[document][column];
    void (*rank_codes)(const RankWalkLayout&, const Value* x, int n, int32_t* rank, uint32_t* code);
    // for jumps, code[document][kJumpEntries] from the same;
    void (*jump_codes)(const RankWalkLayout&, const Value* x, int n, int32_t* rank, uint8_t* code);
    // for tests, code[entry][places] from x[column][stride]; stride is a multiple of places_together(n, rank_lanes).
    void (*rank_bytes)(const RankWalkLayout&, const Value* x, int n, int stride, int32_t* rank, int8_t* code);
};

struct Kernels {
    const char* isa;    // its name
    Encoding encoding;  // how tree programs are encoded as machine code

    ValueKernels<float> of_float;
    ValueKernels<double> of_double;
    const ValueKernels<float>& of(const float*) const { return of_float; }
    const ValueKernels<double>& of(const double*) const { return of_double; }

    // sums[output][stride] += values of the exit leaves leaf[tree][stride] of trees [first, first + n_trees). Leaf vectors
    // without tables are added to sums[document][output].
    void (*add_values)(const LeafValues&, int first, int n_trees, int leaf_bytes, const void* leaf, int n, int stride, void* sums);
    // Bytes of the parts into which LeafValues::tables split values, for trees of up to 32 or 64 leaves; 0: no tables.
    int (*table_part)(int n_leaves, int value_bytes);
    // The places of n documents in `sums`. order: their places in `leaf`; null: document d is at place d.
    void (*sum_places)(const LeafValues&, const uint16_t* order, int n, int32_t* places);

    bool walks_nodes_alone() const { return of_float.walk_nodes; }

    int vqs_lanes;  // documents that vqs scores at once; the stride is a multiple of it

    // rankwalk finds leaf[tree][stride] of a tree block: by walks,
    void (*rankwalk)(const RankWalkLayout&, int block, const uint32_t* code, int n, int stride, uint8_t* leaf);
    // by jumps (null for instruction sets without them),
    void (*rank_jumps)(const RankWalkLayout&, int block, const uint8_t* code, const LeafRecords&, int n, int stride, uint8_t* leaf);
    // or, for more documents, by evaluating every test for rank_lanes of them at once.
    int rank_lanes;
    void (*rank_tests)(const RankWalkLayout&, int block, const int8_t* code, const LeafRecords&, int n, int stride, uint8_t* leaf);

    // Ranks documents [first, first + n) into bit planes.
    void (*rank)(const RankTables&, const Documents&, int64_t first, int n, uint8_t* planes, int64_t plane_bytes);

    int n_widths;
    BitsliceKernels widths[kMaxWidths];  // the narrowest first
};

}  // namespace gpuqs
