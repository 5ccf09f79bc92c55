// Runs the threads of a CUDA block as fibers of one OS thread, in a chosen order, from one meeting
// point (barrier, shuffle, vote) to the next. Never compiled with a sanitizer itself: it tells
// ThreadSanitizer (-DWITH_TSAN) and AddressSanitizer (-DWITH_ASAN) about its fibers.
#include "cuda_emulation.hpp"

#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

#ifdef WITH_TSAN
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned);
void __tsan_destroy_fiber(void*);
void __tsan_switch_to_fiber(void*, unsigned);
void __tsan_acquire(void*);
void __tsan_release(void*);
}
#endif
#ifdef WITH_ASAN
extern "C" {
void __sanitizer_start_switch_fiber(void**, const void*, size_t);
void __sanitizer_finish_switch_fiber(void*, const void**, size_t*);
}
#endif

// -- changing stacks --------------------------------------------------------------------------
#if defined(__x86_64__)
extern "C" void emulation_switch(void** save, void* load);
asm(R"(.text
.globl emulation_switch
.type emulation_switch,@function
emulation_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp,(%rdi)
    movq %rsi,%rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size emulation_switch,.-emulation_switch
)");
struct Context {
    void* stack_pointer = nullptr;
    void start(char* stack, size_t size, void (*entry)()) {
        void** top = reinterpret_cast<void**>((reinterpret_cast<uintptr_t>(stack) + size) & ~uintptr_t(15));
        *--top = nullptr;  // keeps the stack aligned as after a call
        *--top = reinterpret_cast<void*>(entry);
        for (int i = 0; i < 6; ++i) *--top = nullptr;
        stack_pointer = top;
    }
    void swap(Context& to) { emulation_switch(&stack_pointer, to.stack_pointer); }
};
#else
#include <ucontext.h>
struct Context {
    ucontext_t context;
    void start(char* stack, size_t size, void (*entry)()) {
        getcontext(&context);
        context.uc_stack.ss_sp = stack;
        context.uc_stack.ss_size = size;
        context.uc_link = nullptr;
        makecontext(&context, entry, 0);
    }
    void swap(Context& to) { swapcontext(&context, &to.context); }
};
#endif

namespace emulation {
namespace {

constexpr size_t STACK_BYTES = 256 << 10, STACK_GUARD_BYTES = 64 << 10;
constexpr size_t GUARD_BYTES = 64;

// A fiber's stack, kept until the process ends. Below it lies a guard region that may not be accessed.
class Stack {
public:
    Stack() : begin_(map(nullptr, STACK_GUARD_BYTES + STACK_BYTES, PROT_NONE) + STACK_GUARD_BYTES) { renew(); }
    char* begin() const { return begin_; }
    void renew() { map(begin_, STACK_BYTES, PROT_READ | PROT_WRITE); }

private:
    static char* map(char* at, size_t bytes, int access) {
        void* mapped = mmap(at, bytes, access, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);
        if (mapped == MAP_FAILED) std::abort();
        return static_cast<char*>(mapped);
    }
    char* begin_;
};

enum class State { ready, at_block, at_warp, done };

struct Fiber {
    Thread thread;  // first: `current` points here
    State state;
    Site site;
    unsigned mask;
    uint64_t value;
    uint64_t lanes[32];
    Context context;
    Stack stack;
    void *tsan = nullptr, *brief_tsan = nullptr;
};

std::vector<std::unique_ptr<Fiber>> fibers;
std::vector<unsigned> ready;
unsigned n_threads, n_done;
std::mt19937 random_bits;
Launch launch_;
void (*body_)(void*);
void* argument_;
std::string error;
unsigned char* shared;
unsigned char guard_byte;
Context main_context;

// ThreadSanitizer's view: what is ordered before what.
void* main_tsan;
char launch_start, launch_end, block_barrier, warp_meeting[32];

#ifdef WITH_TSAN
// Making a ThreadSanitizer fiber takes longer than most threads run, so launches, which follow each other, share them. Blocks of a
// launch do not, because nothing orders them. Only some 8,000 may exist at a time, so threads beyond MAX_KEPT get one for their block.
constexpr size_t MAX_KEPT = 4096;
std::vector<void*> kept;
size_t n_started;  // in this launch

void take_tsan_fiber(Fiber& f) {
    if (n_started < MAX_KEPT) {
        if (n_started == kept.size()) kept.push_back(__tsan_create_fiber(0));
        f.tsan = kept[n_started];
    } else {
        if (f.brief_tsan) __tsan_destroy_fiber(f.brief_tsan);
        f.tsan = f.brief_tsan = __tsan_create_fiber(0);
    }
    ++n_started;
}

void release(char& token) { __tsan_release(&token); }
void acquire(char& token) { __tsan_acquire(&token); }
#else
void release(char&) {}
void acquire(char&) {}
#endif

#ifdef WITH_ASAN
const void* main_stack;
size_t main_stack_bytes;
#endif

void fail(const std::string& message) {
    if (error.empty()) error = message;
}

std::string where(const Fiber& f) {
    return "thread " + std::to_string(f.thread.number) + " at " + f.site.what + " (" + f.site.file + ":" + std::to_string(f.site.line) +
           ")";
}

bool same_site(const Site& a, const Site& b) {
    return a.line == b.line && !std::strcmp(a.what, b.what) && !std::strcmp(a.file, b.file);
}

Fiber& self() { return *reinterpret_cast<Fiber*>(current); }

void to_main([[maybe_unused]] bool forever) {
    Fiber& f = self();
#ifdef WITH_ASAN
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(forever ? nullptr : &fake, main_stack, main_stack_bytes);
#endif
#ifdef WITH_TSAN
    __tsan_switch_to_fiber(main_tsan, 1);  // 1: no order between the two
#endif
    f.context.swap(main_context);
#ifdef WITH_ASAN
    __sanitizer_finish_switch_fiber(fake, &main_stack, &main_stack_bytes);
#endif
}

void resume(Fiber& f) {
    current = &f.thread;
#ifdef WITH_ASAN
    void* fake = nullptr;
    __sanitizer_start_switch_fiber(&fake, f.stack.begin(), STACK_BYTES);
#endif
#ifdef WITH_TSAN
    __tsan_switch_to_fiber(f.tsan, 1);
#endif
    main_context.swap(f.context);
#ifdef WITH_ASAN
    __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#endif
}

void enter() {
#ifdef WITH_ASAN
    __sanitizer_finish_switch_fiber(nullptr, &main_stack, &main_stack_bytes);
#endif
    acquire(launch_start);
    body_(argument_);
    release(launch_end);
    self().state = State::done;
    ++n_done;
    to_main(true);
    std::abort();
}

// A meeting orders only the threads that meet: ThreadSanitizer is told so here, for each of them, when they are released.
void order_members([[maybe_unused]] size_t first, [[maybe_unused]] char& token) {
#ifdef WITH_TSAN
    for (int step = 0; step < 2; ++step)
        for (size_t i = first; i < ready.size(); ++i) {
            __tsan_switch_to_fiber(fibers[ready[i]]->tsan, 1);
            step ? acquire(token) : release(token);
        }
    __tsan_switch_to_fiber(main_tsan, 1);
#endif
}

void make_ready(unsigned i) {
    fibers[i]->state = State::ready;
    ready.push_back(i);
}

// Called when nobody can run: lets the block through its barrier if everybody is there.
bool release_block() {
    const Fiber* first = nullptr;
    for (unsigned i = 0; i < n_threads; ++i) {
        const Fiber& f = *fibers[i];
        if (f.state == State::done) continue;
        if (f.state != State::at_block) return false;
        if (!first) first = &f;
        if (!same_site(first->site, f.site)) fail("divergent barrier: " + where(*first) + " but " + where(f));
    }
    if (n_done) fail("divergent barrier: " + where(*first) + " but " + std::to_string(n_done) + " threads have exited");
    for (unsigned i = 0; i < n_threads; ++i) make_ready(i);
    order_members(0, block_barrier);
    return true;
}

// Whether all lanes of fiber i's mask wait at its site; reports masks that can never be met.
bool warp_is_complete(unsigned i) {
    const Fiber& f = *fibers[i];
    const unsigned base = i / 32 * 32;
    if (!(f.mask >> (i - base) & 1)) {
        fail("lane outside its own mask: " + where(f));
        return false;
    }
    for (unsigned lane = 0; lane < 32; ++lane) {
        if (!(f.mask >> lane & 1)) continue;
        if (base + lane >= n_threads || fibers[base + lane]->state == State::done) {
            fail("mask names lane " + std::to_string(lane) + ", which is not there: " + where(f));
            return false;
        }
        const Fiber& other = *fibers[base + lane];
        if (other.state != State::at_warp || other.mask != f.mask || !same_site(other.site, f.site)) return false;
    }
    return true;
}

bool release_warps() {
    bool any = false;
    for (unsigned i = 0; i < n_threads && error.empty(); ++i) {
        if (fibers[i]->state != State::at_warp || !warp_is_complete(i)) continue;
        const unsigned base = i / 32 * 32, mask = fibers[i]->mask;
        const size_t first = ready.size();
        for (unsigned lane = 0; lane < 32; ++lane) {
            if (!(mask >> lane & 1)) continue;
            for (unsigned k = 0; k < 32; ++k) fibers[base + lane]->lanes[k] = mask >> k & 1 ? fibers[base + k]->value : 0;
            make_ready(base + lane);
        }
        order_members(first, warp_meeting[i / 32]);
        any = true;
    }
    return any;
}

unsigned next_ready() {
    size_t k = 0;
    if (launch_.options.order == 1) k = ready.size() - 1;
    if (launch_.options.order == 2) k = random_bits() % ready.size();
    const unsigned i = ready[k];
    ready.erase(ready.begin() + static_cast<std::ptrdiff_t>(k));
    return i;
}

void report_deadlock() {
    std::string message = "deadlock, no thread can run: ";
    int named = 0;
    for (unsigned i = 0; i < n_threads && named < 3; ++i)
        if (fibers[i]->state != State::done) message += where(*fibers[i]) + "; ", ++named;
    fail(message + std::to_string(n_done) + " threads have exited");
}

// Fresh shared memory for each block, full of noise: nothing may rely on what it held.
void make_shared() {
    const size_t bytes = launch_.shared_bytes;
#ifdef WITH_ASAN
    const size_t guard = 0;
#else
    const size_t guard = GUARD_BYTES;
#endif
    shared = static_cast<unsigned char*>(std::malloc(bytes + guard + !bytes));
    for (size_t i = 0; i < bytes; ++i) shared[i] = static_cast<unsigned char>(random_bits());
    guard_byte = static_cast<unsigned char>(random_bits());
    std::memset(shared + bytes, guard_byte, guard);
}

void check_guard() {
#ifndef WITH_ASAN
    for (size_t i = 0; i < GUARD_BYTES; ++i)
        if (shared[launch_.shared_bytes + i] != guard_byte) fail("write past the end of shared memory");
#endif
}

void start_fiber(unsigned i, dim3 block) {
    Fiber& f = *fibers[i];
    const dim3 size = launch_.block;
    f.thread = {{i % size.x, i / size.x % size.y, i / size.x / size.y}, block, size, launch_.grid, i};
    f.context.start(f.stack.begin(), STACK_BYTES, enter);
#ifdef WITH_TSAN
    take_tsan_fiber(f);
#endif
    make_ready(i);
}

// While it lives, denormals count as zeros if the launch says so.
#if defined(__x86_64__)
constexpr unsigned DENORMALS_ARE_ZEROS = 0x0040, FLUSH_TO_ZERO = 0x8000;
struct Flushing {
    unsigned before = _mm_getcsr();
    Flushing() {
        if (launch_.options.flush) _mm_setcsr(before | DENORMALS_ARE_ZEROS | FLUSH_TO_ZERO);
    }
    ~Flushing() { _mm_setcsr(before); }
};
#else
struct Flushing {
    Flushing() {
        if (launch_.options.flush) fail("only x86-64 is told here to flush denormals");
    }
};
#endif

void run_block(dim3 block) {
    const Flushing flushing;
    make_shared();
    n_done = 0;
    ready.clear();
#ifdef WITH_TSAN
    for (unsigned i = 0; i < n_threads; ++i) fibers[i]->stack.renew();  // fresh memory, not that of the last block's fibers
#endif
    release(launch_start);
    for (unsigned i = 0; i < n_threads; ++i) start_fiber(i, block);
    while (n_done < n_threads && error.empty()) {
        if (ready.empty() && !release_warps() && !release_block()) report_deadlock();
        if (ready.empty() || !error.empty()) break;
        resume(*fibers[next_ready()]);
    }
    check_guard();
}

}  // namespace

Thread* current;

void* shared_memory() { return shared; }

void meet_block(Site site) {
    Fiber& f = self();
    f.state = State::at_block;
    f.site = site;
    to_main(false);
}

const uint64_t* meet_warp(unsigned mask, uint64_t value, Site site) {
    Fiber& f = self();
    f.state = State::at_warp;
    f.site = site;
    f.mask = mask;
    f.value = value;
    to_main(false);
    return f.lanes;
}

void before_atomic() {
    if (launch_.atomics) {
        const dim3 block = current->block, grid = launch_.grid;
        ++launch_.atomics[((uint64_t(block.z) * grid.y + block.y) * grid.x + block.x) * 32 + current->number / 32];
    }
    if (launch_.options.order != 2 || random_bits() % 8) return;
    make_ready(self().thread.number);
    to_main(false);
}

int run(const Launch& launch, void (*body)(void*), void* argument) {
    launch_ = launch;
    body_ = body;
    argument_ = argument;
    error.clear();
    random_bits.seed(launch.options.seed);
    n_threads = launch.block.x * launch.block.y * launch.block.z;
    while (fibers.size() < n_threads) fibers.push_back(std::make_unique<Fiber>());
#ifdef WITH_TSAN
    main_tsan = __tsan_get_current_fiber();
    n_started = 0;
#endif
    const uint64_t n_blocks = uint64_t(launch.grid.x) * launch.grid.y * launch.grid.z;
    std::vector<uint64_t> order(n_blocks);
    for (uint64_t i = 0; i < n_blocks; ++i) order[i] = launch.options.order == 1 ? n_blocks - 1 - i : i;
    if (launch.options.order == 2)
        for (uint64_t i = n_blocks; i > 1; --i) std::swap(order[i - 1], order[random_bits() % i]);
    std::vector<void*> used;  // kept, so that ThreadSanitizer does not mistake two blocks' memory for the same
    for (uint64_t i = 0; i < n_blocks && error.empty(); ++i) {
        const uint64_t b = order[i];
        const dim3 grid = launch.grid;
        run_block({unsigned(b % grid.x), unsigned(b / grid.x % grid.y), unsigned(b / grid.x / grid.y)});
        used.push_back(shared);
#ifndef WITH_TSAN
        std::free(shared);
        used.pop_back();
#endif
    }
    acquire(launch_end);
    for (void* memory : used) std::free(memory);
    if (error.empty()) return 0;
    std::snprintf(launch.error, 1024, "%s", error.c_str());
    return 1;
}

}  // namespace emulation
