// Pages of machine code: written once, then run and no longer written.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "jit/code_bytes.hpp"

namespace gpuqs {

class Executable {
public:
    // One part after another; throws std::bad_alloc where the system gives no such pages.
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
