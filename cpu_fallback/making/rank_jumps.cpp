#include "making/rank_jumps.hpp"

#include <algorithm>

namespace gpuqs {

std::vector<int32_t> place_trees(const Trees& trees, int64_t tree_block, int words_together, uint8_t* root) {
    std::vector<int32_t> first;
    int64_t used = 0;
    for (int64_t t = 0; t < trees.n_trees; t++) {
        const int64_t n = std::max<int64_t>(trees.node_offsets[t + 1] - trees.node_offsets[t], 1);
        if (used + n > places_of(words_together) || t % tree_block == 0) first.push_back(static_cast<int32_t>(t)), used = 0;
        root[t] = static_cast<uint8_t>(used);
        used += n;
    }
    first.push_back(static_cast<int32_t>(trees.n_trees));
    return first;
}

void fill_places(JumpWord* words, int32_t root, const Tree& tree, const Pairs& siblings, const RankTest* tests) {
    if (!tree.n) {
        JumpWord& word = words[root / kJumpPlaces];
        word.position[root % kJumpPlaces] = 255;  // which no byte exceeds
        word.onward[root % kJumpPlaces] = static_cast<uint8_t>(root | kLeafOnRight);
    }
    for (int64_t i = 0; i < tree.n; i++) {
        const int64_t item = tree.item(i), right = tree.item(tree.right[i]);
        const bool leaf_on_left = tree.left[i] < 0, leaf_on_right = tree.is_leaf(right);
        const int32_t place = root + siblings.before(item), at = place % kJumpPlaces;
        JumpWord& word = words[place / kJumpPlaces];
        word.entry[at] = static_cast<uint8_t>(tests[i].entry - 1);
        word.position[at] = static_cast<uint8_t>(kSigned - tests[i].position);
        const int32_t onward = leaf_on_left ? root + siblings.label(item) : leaf_on_right ? place + 1 : root + siblings.before(right);
        word.onward[at] = static_cast<uint8_t>(onward | (leaf_on_right ? kLeafOnRight : 0));
    }
}

}  // namespace gpuqs
