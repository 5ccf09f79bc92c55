#include "jit/machine_code.hpp"

#include <utility>

#include "jit/code_files.hpp"
#include "jit/tree_programs.hpp"

namespace gpuqs {

bool compiles_programs(const Kernels& kernels) { return kernels.encoding != Encoding::none && Executable::allowed(); }

MachineCode::MachineCode(const BitsliceLayout& layout, const Kernels& kernels, int width)
    : spread_(kernels.widths[width].spread[layout.leaf_bytes - 1]) {
    const int word_bytes = kernels.widths[width].word_bytes;
    TreePrograms programs = write_programs(layout, kernels.encoding, word_bytes);
    code_ = std::make_unique<Executable>(programs.code);
    show_code({kernels.isa, 8 * word_bytes, layout.block_offsets, &programs, code_->at(0)});
    starts_ = std::move(programs.starts);
}

void MachineCode::run(int block, const void* words, void* planes, void* leaf) const {
    using Function = void (*)(const void* words, void* planes, void* leaf, const Spread* spread);
    reinterpret_cast<Function>(code_->at(starts_[block]))(words, planes, leaf, spread_);
}

}  // namespace gpuqs
