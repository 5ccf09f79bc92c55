// Machine code for external tools: files to disassemble, and names for `perf`.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace gpuqs {

struct CompiledPrograms {
    const char* isa;
    int documents;  // in a word
    const int32_t* block_offsets;
    const std::vector<size_t>* starts;  // offset of each tree block in the code, and the end
    const uint8_t* address;             // where it runs
};

// GPUQS_DUMP_CODE=folder: the bytes, in folder/gpuqs-PID-ISA-DOCUMENTS-ADDRESS.bin.
// GPUQS_PERF_MAP=1: a line for each tree block in /tmp/perf-PID.map.
struct CodeFiles {
    std::string folder;  // empty: none
    bool perf_map;
};

// What the environment asks for. Python changes the environment while it holds the GIL, so this must be called with the GIL held.
CodeFiles code_files_asked_for();

// A file that cannot be written throws std::ios_base::failure.
void show_code(const CompiledPrograms& compiled, const CodeFiles& files);

}  // namespace gpuqs
