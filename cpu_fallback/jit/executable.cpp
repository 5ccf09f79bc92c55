#include "jit/executable.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <new>

#if defined(GPUQS_X86) && (defined(__linux__) || defined(__APPLE__))
#include <sys/mman.h>
#define GPUQS_EXECUTABLE
#endif

namespace gpuqs {

#ifdef GPUQS_EXECUTABLE

Executable::Executable(const std::vector<const CodeBytes*>& parts) : bytes_(1) {
    for (const CodeBytes* part : parts) bytes_ += part->size();
    void* pages = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) throw std::bad_alloc();
    pages_ = static_cast<uint8_t*>(pages);
    advise_huge_pages(pages, bytes_);
    uint8_t* to = pages_;
    for (const CodeBytes* part : parts)
        if (part->size()) to = std::copy(part->begin(), part->end(), to);
    if (mprotect(pages_, bytes_, PROT_READ | PROT_EXEC) != 0) {
        const bool forbidden = errno == EACCES || errno == EPERM;  // else memory is short
        munmap(pages_, bytes_);
        if (forbidden) throw CodeForbidden();
        throw std::bad_alloc();
    }
}

Executable::~Executable() { munmap(pages_, bytes_); }

bool Executable::allowed() {
    static std::atomic<int> known{-1};  // not `static const bool`: after a fork during its initialization, the child would hang
    if (known < 0) {
        try {
            const Executable nothing({});
            known = 1;
        } catch (const CodeForbidden&) {
            known = 0;
        } catch (const std::bad_alloc&) {
            return false;  // for now
        }
    }
    return known == 1;
}

#else

Executable::Executable(const std::vector<const CodeBytes*>&) { throw CodeForbidden(); }
Executable::~Executable() {}
bool Executable::allowed() { return false; }

#endif

}  // namespace gpuqs
