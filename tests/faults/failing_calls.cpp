// Preloaded into a test process: the n-th call of one kind fails, once or from then on, and the memory blocks that
// gpuqs's own modules hold are counted. Linux with glibc.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdarg.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>

extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);
void __libc_free(void*);
}

namespace {

// Same numbers as in sweep.py. own_memory: allocations by gpuqs's modules; large_memory: by anyone, of at least kLarge bytes.
enum Kind { own_memory, large_memory, map, protect, thread, opening, reading, writing, syncing, renaming, closing };

std::atomic<int> armed_kind{-1};
std::atomic<long> n_seen{0}, first_failing{0};
std::atomic<bool> from_then_on{false};

// NumPy and Python's own libraries do not always survive if the allocation of a small structure fails.
constexpr size_t kLarge = 2048;

bool fails(Kind kind) {
    if (armed_kind.load(std::memory_order_relaxed) != kind) return false;
    const long n = ++n_seen;
    return from_then_on ? n >= first_failing : n == first_failing;
}

// Address ranges of the code of gpuqs's modules.
constexpr int kMaxModules = 8;
uintptr_t code_start[kMaxModules], code_end[kMaxModules];
std::atomic<int> n_modules{0};

bool is_own(const void* caller) {
    const auto at = reinterpret_cast<uintptr_t>(caller);
    for (int i = 0; i < n_modules; i++)
        if (at >= code_start[i] && at < code_end[i]) return true;
    return false;
}

// Hash table of the addresses of memory that they hold.
constexpr size_t kPlaces = 1 << 16;
void* held[kPlaces];
std::atomic<long> n_held{0};
std::atomic_flag held_lock = ATOMIC_FLAG_INIT;

struct Locked {
    Locked() {
        while (held_lock.test_and_set(std::memory_order_acquire)) {}
    }
    ~Locked() { held_lock.clear(std::memory_order_release); }
};

size_t place_of(const void* p) { return (reinterpret_cast<uintptr_t>(p) >> 4) * 0x9e3779b97f4a7c15u >> 48; }

void hold(void* p) {
    const Locked locked;
    size_t at = place_of(p);
    while (held[at]) at = (at + 1) % kPlaces;
    held[at] = p;
    n_held++;
}

void give_back(void* p) {
    if (!p || n_held.load(std::memory_order_relaxed) == 0) return;
    const Locked locked;
    size_t hole = place_of(p);
    while (held[hole] && held[hole] != p) hole = (hole + 1) % kPlaces;
    if (!held[hole]) return;
    n_held--;
    // Move later entries up into the hole, unless they would end up before their hash position.
    for (size_t at = (hole + 1) % kPlaces; held[at]; at = (at + 1) % kPlaces)
        if ((at - place_of(held[at])) % kPlaces >= (at - hole) % kPlaces) {
            held[hole] = held[at];
            hole = at;
        }
    held[hole] = nullptr;
}

// Whether it is this call's turn to fail.
bool no_memory(bool own, size_t n) { return (n >= kLarge && fails(large_memory)) || (own && fails(own_memory)); }

template <class Ask> void* memory(const void* caller, size_t n, Ask ask) {
    const bool own = is_own(caller);
    if (no_memory(own, n)) {
        errno = ENOMEM;
        return nullptr;
    }
    void* p = ask();
    if (own && p) hold(p);
    return p;
}

template <class Ask> void* memory_or_throw(const void* caller, size_t n, Ask ask) {
    if (void* p = memory(caller, n, ask)) return p;
    throw std::bad_alloc();
}

long failing(int error) {
    errno = error;
    return -1;
}

}  // namespace

#define CALLER __builtin_return_address(0)

extern "C" {

// From now on, modules whose paths contain `part` count as gpuqs's own. Returns how many pieces of code they have.
int faults_aim(const char* part) {
    n_modules = 0;
    const auto look = [](dl_phdr_info* module, size_t, void* part) {
        if (!strstr(module->dlpi_name, static_cast<const char*>(part))) return 0;
        for (int i = 0; i < module->dlpi_phnum && n_modules < kMaxModules; i++)
            if (const auto& piece = module->dlpi_phdr[i]; piece.p_type == PT_LOAD && piece.p_flags & PF_X) {
                code_start[n_modules] = module->dlpi_addr + piece.p_vaddr;
                code_end[n_modules] = code_start[n_modules] + piece.p_memsz;
                n_modules++;
            }
        return 0;
    };
    dl_iterate_phdr(look, const_cast<char*>(part));
    return n_modules;
}

void faults_arm(int kind, long n, int persistent) {
    n_seen = 0;
    first_failing = n;
    from_then_on = persistent;
    armed_kind = kind;
}

// Returns how many calls of the armed kind were made.
long faults_disarm() {
    armed_kind = -1;
    return n_seen;
}

// Number of memory blocks that gpuqs's own modules hold.
long faults_held() { return n_held; }

void* malloc(size_t n) {
    return memory(CALLER, n, [=] { return __libc_malloc(n); });
}
void* calloc(size_t n, size_t size) {
    return memory(CALLER, n * size, [=] { return __libc_calloc(n, size); });
}
void* realloc(void* p, size_t n) {
    const bool own = is_own(CALLER);
    if (no_memory(own, n)) return errno = ENOMEM, nullptr;
    void* moved = __libc_realloc(p, n);
    if (moved || n == 0) give_back(p);
    if (own && moved) hold(moved);
    return moved;
}
void* memalign(size_t unit, size_t n) {
    return memory(CALLER, n, [=] { return __libc_memalign(unit, n); });
}
void* aligned_alloc(size_t unit, size_t n) {
    return memory(CALLER, n, [=] { return __libc_memalign(unit, n); });
}
int posix_memalign(void** to, size_t unit, size_t n) {
    void* p = memory(CALLER, n, [=] { return __libc_memalign(unit, n); });
    if (!p) return ENOMEM;
    *to = p;
    return 0;
}
void free(void* p) {
    give_back(p);
    __libc_free(p);
}

void* mmap(void* at, size_t n, int protection, int flags, int file, off_t offset) {
    if (fails(map)) return errno = ENOMEM, MAP_FAILED;
    return reinterpret_cast<void*>(syscall(SYS_mmap, at, n, protection, flags, file, offset));
}
void* mmap64(void* at, size_t n, int protection, int flags, int file, off_t offset) __attribute__((alias("mmap")));
int mprotect(void* at, size_t n, int protection) {
    return static_cast<int>(fails(protect) ? failing(EACCES) : syscall(SYS_mprotect, at, n, protection));
}

int pthread_create(pthread_t* id, const pthread_attr_t* attributes, void* (*run)(void*), void* argument) {
    using Create = decltype(&pthread_create);
    static const auto create = reinterpret_cast<Create>(dlsym(RTLD_NEXT, "pthread_create"));
    return fails(thread) ? EAGAIN : create(id, attributes, run, argument);
}

#define OPEN(name, folder, parameters)                                                                              \
    int name parameters {                                                                                           \
        va_list more;                                                                                               \
        va_start(more, flags);                                                                                      \
        const mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0;                               \
        va_end(more);                                                                                               \
        return static_cast<int>(fails(opening) ? failing(EMFILE) : syscall(SYS_openat, folder, path, flags, mode)); \
    }
OPEN(open, AT_FDCWD, (const char* path, int flags, ...))
OPEN(open64, AT_FDCWD, (const char* path, int flags, ...))
OPEN(openat, folder, (int folder, const char* path, int flags, ...))
OPEN(openat64, folder, (int folder, const char* path, int flags, ...))

ssize_t read(int file, void* to, size_t n) { return fails(reading) ? failing(EIO) : syscall(SYS_read, file, to, n); }
ssize_t write(int file, const void* from, size_t n) { return fails(writing) ? failing(ENOSPC) : syscall(SYS_write, file, from, n); }
int fsync(int file) { return static_cast<int>(fails(syncing) ? failing(EIO) : syscall(SYS_fsync, file)); }
int rename(const char* from, const char* to) {
    return static_cast<int>(fails(renaming) ? failing(EIO) : syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}
int close(int file) {
    const long closed = syscall(SYS_close, file);  // closed even if close reports failure, as on Linux
    return static_cast<int>(fails(closing) ? failing(EIO) : closed);
}

}  // extern "C"

void* operator new(size_t n) {
    return memory_or_throw(CALLER, n, [=] { return __libc_malloc(n ? n : 1); });
}
void* operator new[](size_t n) {
    return memory_or_throw(CALLER, n, [=] { return __libc_malloc(n ? n : 1); });
}
void* operator new(size_t n, std::align_val_t unit) {
    return memory_or_throw(CALLER, n, [=] { return __libc_memalign(static_cast<size_t>(unit), n); });
}
void* operator new[](size_t n, std::align_val_t unit) {
    return memory_or_throw(CALLER, n, [=] { return __libc_memalign(static_cast<size_t>(unit), n); });
}
