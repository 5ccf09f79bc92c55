#include "jit/machine_code.hpp"

namespace gpuqs {

bool compiles_programs(const Kernels& kernels) { return kernels.encoding != Encoding::none && Executable::allowed(); }

MachineCode::MachineCode(const BitsliceLayout& layout, const Kernels& kernels, int width, const std::vector<TreePrograms>& parts,
                         const CodeFiles& files)
    : spread_(kernels.widths[width].spread[layout.leaf_bytes - 1]) {
    std::vector<const CodeBytes*> codes;
    size_t bytes = 0;
    for (const TreePrograms& part : parts) {
        codes.push_back(&part.code);
        for (const size_t start : part.starts) starts_.push_back(bytes + start);
        bytes += part.code.size();
    }
    starts_.push_back(bytes);
    code_ = std::make_unique<Executable>(codes);
    show_code({kernels.isa, 8 * kernels.widths[width].word_bytes, layout.block_offsets, &starts_, code_->at(0)}, files);
}

// Reads one cache line after the other, which processors prefetch when it is data.
void MachineCode::bring(int block) const {
    if (code_ahead_here() != CodeAhead::read) return;
    constexpr size_t line = 64;
    for (size_t at = starts_[block]; at < starts_[block + 1]; at += line)
        static_cast<void>(*static_cast<const volatile uint8_t*>(code_->at(at)));
}

void MachineCode::run(int block, const void* words, void* planes, void* leaf) const {
    using Function = void(const void* words, void* planes, void* leaf, const Spread* spread);
    code_->function_at<Function>(starts_[block])(words, planes, leaf, spread_);
}

}  // namespace gpuqs
