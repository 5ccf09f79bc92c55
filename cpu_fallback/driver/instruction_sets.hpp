// The instruction sets that kernels are built for: the one list of them, from which Python has its own.
#pragma once
#include "generic/kernels.hpp"

namespace gpuqs {

struct InstructionSet {
    const Kernels* kernels;
    bool (*is_here)();  // whether this processor has it

    const char* name() const { return kernels->isa; }
    int lanes() const { return kernels->vqs_lanes; }                                          // documents that vqs scores at once
    int widest_word() const { return 8 * kernels->widths[kernels->n_widths - 1].word_bytes; }  // in documents
    bool has_encoder() const { return kernels->encoding != Encoding::none; }                  // of machine code
    bool has_jumps() const { return kernels->rank_jumps; }                                    // for few documents
    bool gathers() const;  // walks over nodes alone, and faster than over nodes and leaves
};

// All that were built, best first.
const InstructionSet* begin_instruction_sets();
const InstructionSet* end_instruction_sets();

// Whether the kernels of qs and vqs were built.
bool has_quickscorer();

// The kernels of that name; null: there are none, or not on this processor.
const Kernels* find_kernels(const char* isa);

}  // namespace gpuqs
