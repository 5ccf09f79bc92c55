// Small scratch comes from a bump arena that each thread keeps, so that a call with few documents takes no memory from the system.
// Large scratch lies on large pages: on small pages, words may by chance compete for the same sets of the L2 cache, and take four
// times as long to write. As the system clears large pages slowly, they are kept between calls.
#include "driver/scratch.hpp"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

#ifdef __linux__
#include <sys/mman.h>
#endif

namespace gpuqs {
namespace {

constexpr size_t kLine = 64, kLargePage = 2 << 20, kLarge = kLargePage / 2;
#ifdef __SANITIZE_ADDRESS__
constexpr size_t kMaxKept = 0, kMaxArena = 0;  // so that use after free and overruns are detected
#else
constexpr size_t kMaxKept = 64 << 20, kMaxArena = 1 << 20;
#endif

struct Kept {
    size_t bytes;
    void* at;
};

// No thread waits: one that finds the store locked does without it.
std::mutex store_lock;
std::vector<Kept>& store = *new std::vector<Kept>;  // the oldest first; never destroyed: threads may give back at exit
size_t n_kept = 0;

// fork waits until no thread changes the store; the child gets it unlocked. If registering fails, a child may find it locked
// forever, and does without it.
[[maybe_unused]] const int at_fork =
    pthread_atfork([] { store_lock.lock(); }, [] { store_lock.unlock(); }, [] { store_lock.unlock(); });

size_t whole(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

void* take(size_t bytes) {
    const std::unique_lock<std::mutex> lock(store_lock, std::try_to_lock);
    for (size_t i = lock ? store.size() : 0; i-- > 0;)
        if (store[i].bytes == bytes) {
            void* at = store[i].at;
            store.erase(store.begin() + static_cast<std::ptrdiff_t>(i));
            n_kept -= bytes;
            return at;
        }
    return nullptr;
}

bool keep(size_t bytes, void* at) {
    const std::unique_lock<std::mutex> lock(store_lock, std::try_to_lock);
    if (!lock || bytes > kMaxKept) return false;
    while (n_kept + bytes > kMaxKept) {
        std::free(store.front().at);
        n_kept -= store.front().bytes;
        store.erase(store.begin());
    }
    try {
        store.push_back({bytes, at});
    } catch (const std::bad_alloc&) {
        return false;
    }
    n_kept += bytes;
    return true;
}

// A bump arena: buffers follow one another, and their memory is used again only once all are released. It is empty between calls,
// and then grows to the most that calls have needed at once.
class Arena {
public:
    ~Arena() { std::free(memory_); }

    void* allocate(size_t bytes) {  // null if there is no room, but counted all the same
        if (held_ == 0 && most_ > size_) grow();
        held_ += bytes;
        most_ = std::max(most_, std::min(held_, kMaxArena));
        if (bytes > size_ - used_) return nullptr;
        used_ += bytes;
        return memory_ + used_ - bytes;
    }

    bool release(void* at, size_t bytes) {  // whether the buffer was in the arena
        held_ -= bytes;
        const bool here = at >= memory_ && at < memory_ + size_;
        if (held_ == 0) used_ = 0;
        return here;
    }

private:
    void grow() {
        std::free(memory_);
        memory_ = static_cast<char*>(std::aligned_alloc(kLine, most_));
        size_ = memory_ ? most_ : 0;
    }

    char* memory_ = nullptr;
    size_t size_ = 0, used_ = 0, held_ = 0, most_ = 0;
};

// The calling thread allocates and frees all memory of a call: helpers do neither.
thread_local Arena arena;

}  // namespace

Buffer allocate(size_t bytes) {
    const bool large = bytes >= kLarge;
    bytes = whole(bytes ? bytes : 1, large ? kLargePage : kLine);
    if (void* kept = large ? take(bytes) : arena.allocate(bytes)) return Buffer(kept, {bytes});
    void* at = std::aligned_alloc(large ? kLargePage : kLine, bytes);
    if (!at) {
        if (!large) arena.release(nullptr, bytes);
        throw std::bad_alloc();
    }
#ifdef MADV_HUGEPAGE
    if (large) madvise(at, bytes, MADV_HUGEPAGE);
#endif
    return Buffer(at, {bytes});
}

void GiveBack::operator()(void* at) const {
    if (bytes >= kLargePage ? !keep(bytes, at) : !arena.release(at, bytes)) std::free(at);
}

}  // namespace gpuqs
