// Memory for one call's work, reused from what earlier calls gave back where possible.
#pragma once
#include <cstddef>
#include <memory>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

namespace gpuqs {

struct GiveBack {
    size_t bytes;
    void operator()(void* p) const;
};
using Buffer = std::unique_ptr<void, GiveBack>;

// Whole cache lines, at least one; their contents are unspecified. Throws std::bad_alloc.
Buffer allocate(size_t bytes);

// Between parts of a buffer lie kGuard bytes, so that AddressSanitizer reports a part that is overrun; else none.
#ifdef __SANITIZE_ADDRESS__
constexpr size_t kGuard = 64;
inline void guard(void* at) { ASAN_POISON_MEMORY_REGION(at, kGuard); }
#else
constexpr size_t kGuard = 0;
inline void guard(void*) {}
#endif

}  // namespace gpuqs
