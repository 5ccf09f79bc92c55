// Bytes that are appended many times, a few at a time.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>

namespace gpuqs {

class CodeBytes {
public:
    const uint8_t* data() const { return bytes_.get(); }
    size_t size() const { return size_; }
    const uint8_t* begin() const { return data(); }
    const uint8_t* end() const { return data() + size_; }

    // Where up to `n` bytes may be written next; `grow` says how many were.
    uint8_t* room(size_t n) {
        if (size_ + n > capacity_) reserve(2 * capacity_ + n + 4096);
        return bytes_.get() + size_;
    }
    void grow(size_t n) { size_ += n; }

private:
    struct Free {
        void operator()(uint8_t* bytes) const { std::free(bytes); }
    };
    // Large blocks are moved by the system's page tables, which vectors do not ask for.
    void reserve(size_t capacity) {
        void* const moved = std::realloc(bytes_.get(), capacity);
        if (!moved) throw std::bad_alloc();
        static_cast<void>(bytes_.release());
        bytes_.reset(static_cast<uint8_t*>(moved));
        capacity_ = capacity;
    }

    std::unique_ptr<uint8_t[], Free> bytes_;
    size_t size_ = 0, capacity_ = 0;
};

}  // namespace gpuqs
