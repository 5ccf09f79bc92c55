// Tree programs: gpuqs/layout/programs.py as C structs.
#pragma once
#include <cstdint>

namespace gpuqs {

// A node with up to two of its children. Predicates and slots are byte offsets in arrays of the narrowest words; wider
// words scale them.
struct Treelet {
    uint32_t predicate[3];  // of the root, its left child, its right child
    uint16_t slot[3];
    uint16_t first, end;  // of the root
    uint16_t zero;
};

constexpr int kNarrowestWord = 16;
constexpr int kPlanes = 12;  // most bits of a leaf's number: slots hold no larger trees
constexpr int kSpills = 2 * kPlanes;  // most S of a compiled program that wait in memory, two for each subtree that waits

// Kinds of treelets, by the children that they have with their root: neither, one or both.
constexpr int kWithLeft = 1, kWithRight = 2;

struct Run {
    uint16_t kind;
    uint16_t count;
};

// Node j of a tree, between its leaves j - 1 and j. Children by their numbers; 0: a leaf. The root is entry 0's right child.
struct TreeNode {
    uint32_t predicate;
    uint16_t left, right;
};

}  // namespace gpuqs
