// Tree programs as machine code that runs here.
#pragma once
#include <memory>
#include <vector>

#include "generic/kernels.hpp"
#include "jit/code_files.hpp"
#include "jit/executable.hpp"
#include "jit/tree_programs.hpp"

namespace gpuqs {

// Whether programs for an instruction set can be made and run here.
bool compiles_programs(const Kernels& kernels);

class MachineCode {
public:
    // The code of all tree blocks, given in parts, for words of one of the instruction set's widths.
    MachineCode(const BitsliceLayout& layout, const Kernels& kernels, int width, const std::vector<TreePrograms>& parts,
                const CodeFiles& files);

    // Reads a tree block's code into the caches, if it is not prefetched.
    void bring(int block) const;
    // leaf[tree][documents] of a tree block; planes is scratch for kPlanes + kSpills words.
    void run(int block, const void* words, void* planes, void* leaf) const;

private:
    const Spread* spread_;
    std::vector<size_t> starts_;  // of tree blocks, and the end
    std::unique_ptr<Executable> code_;
};

}  // namespace gpuqs
