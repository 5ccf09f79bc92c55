// The instruction sets that kernels are built for: the only list of them, from which Python's is made.
#pragma once
#include "generic/kernels.hpp"

namespace gpuqs {

struct InstructionSet {
    const Kernels* kernels;
    bool (*is_here)();  // whether this processor has it

    const char* name() const { return kernels->isa; }
    int lanes() const { return kernels->vqs_lanes; }                                          // documents that vqs scores at once
    int widest_word() const { return 8 * kernels->widths[kernels->n_widths - 1].word_bytes; }  // in documents
    bool has_encoder() const { return kernels->encoding != Encoding::none; }                  // of tree programs as machine code
    bool has_jumps() const { return kernels->rank_jumps; }                                    // for few documents
    bool gathers() const;  // whether walks over nodes only exist and are faster than over nodes and leaves
};

// All that were built, best first.
const InstructionSet* begin_instruction_sets();
const InstructionSet* end_instruction_sets();

// Whether the kernels of qs and vqs were built.
bool has_quickscorer();

// The kernels of that name; null if there are none, or this processor cannot run them.
const Kernels* find_kernels(const char* isa);

}  // namespace gpuqs
