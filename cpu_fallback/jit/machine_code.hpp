// Tree programs as machine code.
//
//   for each tree:
//       for each node, parents first:
//           S_j = S_end | (S_first & predicate)      one instruction; S in registers
//           plane[k] ^= S_j, k the zeros at the end of j
//       leaves = numbers of the planes' bits          a call of the instruction set's `spread`
//
// Of two subtrees the one that needs fewer registers is written first, while S_first and S_end of the other wait (after
// Sethi and Ullman): a tree of L leaves then needs at most 2 + log2 L registers for its S, whatever its shape.
#pragma once
#include <memory>
#include <vector>

#include "generic/kernels.hpp"
#include "jit/executable.hpp"

namespace gpuqs {

// Whether programs for an instruction set can be made and run here.
bool compiles_programs(const Kernels& kernels);

class MachineCode {
public:
    // For words of one of the instruction set's widths.
    MachineCode(const BitsliceModel& model, const Kernels& kernels, int width);

    // leaf[tree][documents] of a tree batch; planes is scratch for `kPlanes` words.
    void run(int batch, const void* words, void* planes, void* leaf) const;

private:
    const Spread* spread_;
    std::vector<size_t> starts_;
    std::unique_ptr<Executable> code_;
};

}  // namespace gpuqs
