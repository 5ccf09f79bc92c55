// Memory for one call's work, reused from what earlier calls gave back where possible.
#pragma once
#include <cstddef>
#include <memory>

namespace gpuqs {

struct GiveBack {
    size_t bytes;
    void operator()(void* p) const;
};
using Buffer = std::unique_ptr<void, GiveBack>;

// Whole cache lines, at least one; their contents are unspecified. Throws std::bad_alloc.
Buffer allocate(size_t bytes);

}  // namespace gpuqs
