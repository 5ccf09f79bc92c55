// A buffer of bytes for many small appends.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace gpuqs {

// The system provides megabytes faster in huge pages; if it has none, nothing is lost.
inline void advise_huge_pages(void* memory, size_t bytes) {
#ifdef MADV_HUGEPAGE
    constexpr uintptr_t page = 4096;
    const uintptr_t start = (reinterpret_cast<uintptr_t>(memory) + page - 1) / page * page;
    const uintptr_t end = (reinterpret_cast<uintptr_t>(memory) + bytes) / page * page;
    if (end > start + (2 << 20)) madvise(reinterpret_cast<void*>(start), end - start, MADV_HUGEPAGE);
#else
    static_cast<void>(memory);
    static_cast<void>(bytes);
#endif
}

class CodeBytes {
public:
    const uint8_t* data() const { return bytes_.get(); }
    size_t size() const { return size_; }
    const uint8_t* begin() const { return data(); }
    const uint8_t* end() const { return data() + size_; }

    // Where up to `n` bytes may be written next; `grow` says how many were.
    uint8_t* room(size_t n) {
        if (__builtin_expect(capacity_ - size_ < n, 0)) reserve(2 * capacity_ + n + 4096);
        return bytes_.get() + size_;
    }
    void grow(size_t n) { size_ += n; }

    // For when it is known that about `capacity` bytes will come.
    void reserve(size_t capacity) {
        if (capacity <= capacity_) return;
        // realloc moves large blocks by changing page tables, which std::vector cannot use.
        void* const moved = std::realloc(bytes_.get(), capacity);
        if (!moved) throw std::bad_alloc();
        static_cast<void>(bytes_.release());
        bytes_.reset(static_cast<uint8_t*>(moved));
        capacity_ = capacity;
        advise_huge_pages(moved, capacity);
    }

private:
    struct Free {
        void operator()(uint8_t* bytes) const { std::free(bytes); }
    };
    std::unique_ptr<uint8_t[], Free> bytes_;
    size_t size_ = 0, capacity_ = 0;
};

}  // namespace gpuqs
