// Tree programs: gpuqs/layout/programs.py as C structs.
#pragma once
#include <cstdint>

namespace gpuqs {

// A node with up to two of its children. Predicates and slots are byte offsets into arrays of the narrowest words; kernels
// for wider words scale them.
struct Treelet {
    uint32_t predicate[3];  // of the root, its left child and its right child
    uint16_t slot[3];
    uint16_t first, end;  // slots of the root's S_first and S_end
    uint16_t zero;
};

constexpr int kNarrowestWord = 16;
constexpr int kPlanes = 12;  // upper limit of bits in a leaf index: slots hold no larger trees
constexpr int kSpills = 2 * kPlanes;  // upper limit of spilled S in a compiled program, two for each waiting subtree

// Bits of a treelet's kind: which of its root's children it includes.
constexpr int kWithLeft = 1, kWithRight = 2;

struct Run {
    uint16_t kind;
    uint16_t count;
};

// Node j of a tree lies between its leaves j - 1 and j. `left` and `right` are the children's numbers, or 0 for a leaf. Entry 0
// has the root as its right child.
struct TreeNode {
    uint32_t predicate;
    uint16_t left, right;
};

}  // namespace gpuqs
