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

// Turns bit planes into leaf[documents], of one or two bytes each.
using Spread = void (*)(const void* planes, void* leaf);

// The stages of bitslice for words of one width: 8 * word_bytes documents.
struct BitsliceKernels {
    int word_bytes;
    void (*predicates)(const BitsliceLayout&, int block, const void* planes, void* words);
    void (*programs)(const BitsliceLayout&, int block, const void* words, void* slots, void* leaf);
    Spread spread[2][kPlanes + 1];  // [bytes of a leaf - 1][planes]
};

constexpr int kMaxWidths = 3;

// Kernels that find leaf[tree][stride] of a tree block; `bits` is scratch, x is [column][stride]. qs scores one or four documents
// together.
struct QuickScorerKernels {
    void (*qs_float)(const QuickScorerLayout&, int block, const float* x, int n, int stride, int together, void* bits, void* leaf);
    void (*qs_double)(const QuickScorerLayout&, int block, const double* x, int n, int stride, int together, void* bits, void* leaf);
    void (*vqs_float)(const QuickScorerLayout&, int block, const float* x, int n, int stride, void* bits, uint8_t* leaf);
    void (*vqs_double)(const QuickScorerLayout&, int block, const double* x, int n, int stride, void* bits, uint8_t* leaf);
};

struct Kernels {
    const char* isa;    // its name
    Encoding encoding;  // how tree programs are encoded as machine code

    // Load documents [first, first + n) into feature-major x[column][stride].
    void (*load_float)(const Documents&, int64_t first, int n, const Columns&, int stride, float* x);
    void (*load_double)(const Documents&, int64_t first, int n, const Columns&, int stride, double* x);
    // The same into x[document][column]; true if some value is missing.
    bool (*load_rows_float)(const Documents&, int64_t first, int n, const Columns&, float* x);
    bool (*load_rows_double)(const Documents&, int64_t first, int n, const Columns&, double* x);

    // sums[output][stride] += values of the exit leaves leaf[tree][stride] of trees [first, first + n_trees). Leaf vectors
    // without tables are added to sums[document][output].
    void (*add_values)(const LeafValues&, int first, int n_trees, int leaf_bytes, const void* leaf, int n, int stride, void* sums);
    // Bytes of the parts into which LeafValues::tables split values, for trees of up to 32 or 64 leaves; 0: no tables.
    int (*table_part)(int n_leaves, int value_bytes);
    // The places of n documents in `sums`. order: their places in `leaf`; null: document d is at place d.
    void (*sum_places)(const LeafValues&, const uint16_t* order, int n, int32_t* places);

    int vqs_lanes;  // documents that vqs scores at once; the stride is a multiple of it
    QuickScorerKernels quickscorer;  // null where they are not built
    // For walk, x is [document][column]. Walks begin where `starts` says, or at the roots if it is null.
    void (*walk_float)(const WalkLayout&, int block, const float* x, bool has_missing, int n, int stride, int32_t* leaf,
                       const WalkStarts* starts);
    void (*walk_double)(const WalkLayout&, int block, const double* x, bool has_missing, int n, int stride, int32_t* leaf,
                        const WalkStarts* starts);
    // Walk from the roots over items that are only nodes (nodes_alone); null for instruction sets without gathers.
    void (*walk_nodes_float)(const WalkLayout&, int block, const float* x, bool has_missing, int n, int stride, int32_t* leaf);
    void (*walk_nodes_double)(const WalkLayout&, int block, const double* x, bool has_missing, int n, int stride, int32_t* leaf);

    // Codes for walks, code[document][entry], from x[document][column]; rank is scratch of the shape of x.
    void (*rank_codes_float)(const RankWalkLayout&, const float* x, int n, int32_t* rank, uint32_t* code);
    void (*rank_codes_double)(const RankWalkLayout&, const double* x, int n, int32_t* rank, uint32_t* code);
    // Walks to leaf[tree][stride] of a tree block.
    void (*rankwalk)(const RankWalkLayout&, int block, const uint32_t* code, int n, int stride, uint8_t* leaf);
    // The same by jumps, from code[document][kJumpEntries]; rank_jumps is null for instruction sets without jumps.
    void (*jump_codes_float)(const RankWalkLayout&, const float* x, int n, int32_t* rank, uint8_t* code);
    void (*jump_codes_double)(const RankWalkLayout&, const double* x, int n, int32_t* rank, uint8_t* code);
    void (*rank_jumps)(const RankWalkLayout&, int block, const uint8_t* code, const LeafRecords&, int n, int stride, uint8_t* leaf);
    // The same for more documents, which evaluate every test: code[entry][places], from x[column][stride]; rank is scratch of the
    // shape of x; stride is a multiple of places_together(n, rank_lanes).
    int rank_lanes;
    void (*rank_bytes_float)(const RankWalkLayout&, const float* x, int n, int stride, int32_t* rank, int8_t* code);
    void (*rank_bytes_double)(const RankWalkLayout&, const double* x, int n, int stride, int32_t* rank, int8_t* code);
    void (*rank_tests)(const RankWalkLayout&, int block, const int8_t* code, const LeafRecords&, int n, int stride, uint8_t* leaf);

    // Ranks documents [first, first + n) into bit planes.
    void (*rank)(const RankTables&, const Documents&, int64_t first, int n, uint8_t* planes, int64_t plane_bytes);

    int n_widths;
    BitsliceKernels widths[kMaxWidths];  // the narrowest first
};

}  // namespace gpuqs
