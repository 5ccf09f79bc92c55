// Pages of machine code: written once, then executable and no longer writable.
#pragma once
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "jit/code_bytes.hpp"

namespace gpuqs {

// This process may not make code.
struct CodeForbidden : std::bad_alloc {};

class Executable {
public:
    // Places one part after another; throws CodeForbidden, or std::bad_alloc if memory is short.
    explicit Executable(const std::vector<const CodeBytes*>& parts);
    ~Executable();
    Executable(const Executable&) = delete;
    Executable& operator=(const Executable&) = delete;

    // Whether this system lets a process write code and run it.
    static bool allowed();

    const uint8_t* at(size_t offset) const { return pages_ + offset; }
    template <class Function> Function* function_at(size_t offset) const { return reinterpret_cast<Function*>(pages_ + offset); }

private:
    uint8_t* pages_;
    size_t bytes_;
};

}  // namespace gpuqs
