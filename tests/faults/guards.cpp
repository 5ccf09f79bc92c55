// Preloaded into a test process: memory allocated by gpuqs's own modules and NumPy lies between two inaccessible pages,
// starting right after the first or ending right before the second. Generated machine code is guarded as well.
// Linux with glibc.
#include <errno.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
}

namespace {

const size_t kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));
constexpr unsigned char kAnything = 0xa5;  // initial content of memory, and of the bytes around it

// Address ranges of the code of the watched modules.
constexpr int kMaxPieces = 8;
uintptr_t code_start[kMaxPieces], code_end[kMaxPieces];
std::atomic<int> n_pieces{0};
std::atomic<bool> on{false}, at_start{false};
std::atomic<long> n_guarded{0};

bool is_watched(const void* caller) {
    if (!on) return false;
    const auto at = reinterpret_cast<uintptr_t>(caller);
    for (int i = 0; i < n_pieces; i++)
        if (at >= code_start[i] && at < code_end[i]) return true;
    return false;
}

// Guarded blocks lie in one range of addresses that are never reused, so that use after free is caught, too. A block
// consists of a guard page, its own pages and a guard page; the first guard page stores the block's record.
constexpr size_t kRange = size_t{1} << 42;
uintptr_t range = 0;
std::atomic<uintptr_t> next{0};

struct Block {
    size_t pages;
    unsigned char* start;
    size_t bytes;
};

[[noreturn]] void end(const char* why) {
    if (write(2, why, strlen(why)) < 0) abort();
    abort();
}

bool is_guarded(const void* p) { return reinterpret_cast<uintptr_t>(p) - range < kRange && range; }

void* guarded(size_t unit, size_t n) {
    n = n ? n : 1;
    const size_t pages = (n + kPage - 1) / kPage * kPage;
    const size_t whole = pages + 2 * kPage, aligned = unit > kPage ? unit : kPage;
    // The block's own pages start at an address aligned to `unit`.
    uintptr_t first = next.fetch_add(whole + aligned);
    first = (first + kPage + aligned - 1) / aligned * aligned;
    if (first + pages + kPage > range + kRange) end("no addresses left for guarded memory\n");
    auto* at = reinterpret_cast<unsigned char*>(first);
    if (mprotect(at - kPage, kPage + pages, PROT_READ | PROT_WRITE) != 0) end("no memory left for guarded memory\n");
    memset(at, kAnything, pages);
    unsigned char* start = at_start ? at : at + (pages - n) / unit * unit;
    *reinterpret_cast<Block*>(at - kPage) = {pages, start, n};
    if (mprotect(at - kPage, kPage, PROT_NONE) != 0) end("cannot guard a page\n");
    n_guarded++;
    return start;
}

void release(void* p) {
    // The user's block starts in its first own page; the page before it holds the record.
    auto* page = reinterpret_cast<unsigned char*>(reinterpret_cast<uintptr_t>(p) / kPage * kPage);
    mprotect(page - kPage, kPage, PROT_READ);
    const Block block = *reinterpret_cast<Block*>(page - kPage);
    if (block.start != p) end("guarded memory: given back twice, or not as it was given out\n");
    for (const unsigned char* at = page; at < page + block.pages; at++)
        if ((at < block.start || at >= block.start + block.bytes) && *at != kAnything) end("guarded memory: written beside it\n");
    madvise(page - kPage, kPage + block.pages, MADV_DONTNEED);
    mprotect(page - kPage, kPage + block.pages, PROT_NONE);
}

}  // namespace

#define CALLER __builtin_return_address(0)

extern "C" {

// Watch modules with these paths. Returns how many pieces of code they have.
int guards_watch(const char** paths, int n_paths) {
    struct Paths {
        const char** path;
        int n;
    } wanted = {paths, n_paths};
    void* taken = mmap(nullptr, kRange, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (taken == MAP_FAILED) end("no addresses for guarded memory\n");
    next = range = reinterpret_cast<uintptr_t>(taken);
    const auto look = [](dl_phdr_info* module, size_t, void* data) {
        const Paths& wanted = *static_cast<const Paths*>(data);
        for (int path = 0; path < wanted.n; path++)
            for (int i = 0; !strcmp(module->dlpi_name, wanted.path[path]) && i < module->dlpi_phnum; i++)
                if (const auto& piece = module->dlpi_phdr[i]; piece.p_type == PT_LOAD && piece.p_flags & PF_X) {
                    if (n_pieces == kMaxPieces) end("too many pieces of code\n");
                    code_start[n_pieces] = module->dlpi_addr + piece.p_vaddr;
                    code_end[n_pieces] = code_start[n_pieces] + piece.p_memsz;
                    n_pieces++;
                }
        return 0;
    };
    dl_iterate_phdr(look, &wanted);
    return n_pieces;
}

// From now on, blocks start right after a guard page (start), or end right before one.
void guards_begin(int start) {
    at_start = start;
    on = true;
}
void guards_end() { on = false; }
long guards_count() { return n_guarded; }

void* malloc(size_t n) { return is_watched(CALLER) ? guarded(16, n) : __libc_malloc(n); }
void* calloc(size_t n, size_t size) {
    if (!is_watched(CALLER)) return __libc_calloc(n, size);
    void* p = guarded(16, n * size);
    memset(p, 0, n * size);
    return p;
}
void* realloc(void* p, size_t n) {
    if (!is_guarded(p)) return __libc_realloc(p, n);
    auto* page = reinterpret_cast<unsigned char*>(reinterpret_cast<uintptr_t>(p) / kPage * kPage);
    mprotect(page - kPage, kPage, PROT_READ);
    const size_t before = reinterpret_cast<Block*>(page - kPage)->bytes;
    void* moved = guarded(16, n);
    memcpy(moved, p, before < n ? before : n);
    release(p);
    return moved;
}
void* memalign(size_t unit, size_t n) { return is_watched(CALLER) ? guarded(unit, n) : __libc_memalign(unit, n); }
void* aligned_alloc(size_t unit, size_t n) { return is_watched(CALLER) ? guarded(unit, n) : __libc_memalign(unit, n); }
int posix_memalign(void** to, size_t unit, size_t n) {
    *to = is_watched(CALLER) ? guarded(unit, n) : __libc_memalign(unit, n);
    return *to ? 0 : ENOMEM;
}
void free(void* p) { is_guarded(p) ? release(p) : __libc_free(p); }

}  // extern "C"

void* operator new(size_t n) {
    void* p = is_watched(CALLER) ? guarded(16, n) : __libc_malloc(n ? n : 1);
    if (!p) throw std::bad_alloc();
    return p;
}
