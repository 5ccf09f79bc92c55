// Tree programs as the bytes of machine code, which any machine can write.
//
//   for each tree:
//       for each node, parents first:
//           S_j = S_end | (S_first & predicate)      one instruction; S in registers
//           plane[k] ^= S_j, k the zeros at the end of j
//       leaves = numbers of the planes' bits          a call of the instruction set's `spread`, which prefetches code a few trees
//                                                     ahead, if code is to be prefetched
//
// Of two subtrees, the one that needs fewer registers is written first, while S_first and S_end of the other wait (after Sethi and
// Ullman). In a tree of L leaves at most log2 L subtrees wait at once, whatever its shape, with two S each. Planes have the
// remaining registers. If there are too few, planes are spilled, the highest first, then the S of waiting subtrees.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "jit/code_ahead.hpp"
#include "jit/code_bytes.hpp"
#include "jit/encoding.hpp"
#include "layout/bitslice.hpp"

namespace gpuqs {

struct TreePrograms {
    CodeBytes code;              // whole cache lines
    std::vector<size_t> starts;  // of each tree block's function (words of predicates, words of planes, leaves, spread functions)
};

constexpr int kAllRegisters = 32;  // no encoding has more

// Writes the programs of tree blocks [first, end), with at most `most_registers` registers for S and planes; tests set fewer than
// the encoding has, so that small trees spill, too.
TreePrograms write_programs(const BitsliceLayout& layout, Encoding encoding, CodeAhead ahead, int word_bytes, int first, int end,
                            int most_registers = kAllRegisters);

}  // namespace gpuqs
