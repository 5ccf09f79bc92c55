// Lets g++ compile the project's .cu files and run their kernels on the CPU: the CUDA constructs that
// those kernels use, and no others. scheduler.cpp schedules the threads.
#pragma once
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

struct dim3 { unsigned x = 1, y = 1, z = 1; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };

namespace emulation {

struct Thread {
    dim3 thread, block, block_size, grid_size;
    unsigned number;  // inside its block
};
extern Thread* current;

// A place in the source where threads meet.
struct Site {
    const char* what;
    const char* file;
    int line;
};

void meet_block(Site site);
// Every lane that `mask` names hands in a value; returns the 32 values of the warp.
const uint64_t* meet_warp(unsigned mask, uint64_t value, Site site);
void before_atomic();  // another thread may run here
void* shared_memory();

struct Options {
    int order;  // 0 forward, 1 reverse, 2 random
    unsigned seed;
    int flush;  // 1: denormals count as zeros, as with -ftz=true (which affects only float32)
};

struct Launch {
    dim3 grid, block;
    size_t shared_bytes;
    Options options;
    char* error;        // 1024 bytes
    uint64_t* atomics;  // null, or the number that each warp makes: [block][32]
};

int run(const Launch& launch, void (*body)(void*), void* argument);

// Type of a kernel parameter as NumPy spells it; pointers get a '*' in front, pointers to const a '&'; "&v" points to any type.
template <class T>
constexpr char kind() {
    if (std::is_floating_point_v<T>) return 'f';
    return std::is_signed_v<T> ? 'i' : 'u';
}
template <class T>
void describe(char*& out) {
    using Pointed = std::remove_pointer_t<T>;
    if (std::is_pointer_v<T>) *out++ = std::is_const_v<Pointed> ? '&' : '*';
    if constexpr (std::is_void_v<Pointed>) {
        *out++ = 'v';
    } else {
        *out++ = kind<std::remove_const_t<Pointed>>();
        *out++ = static_cast<char>('0' + sizeof(Pointed));
    }
    *out++ = ' ';
}
template <class... A>
void signature(void (*)(A...), char* out) {
    (describe<A>(out), ...);
    *out = 0;
}

template <class... A>
struct Call {
    void (*kernel)(A...);
    void** arguments;
    template <size_t... I>
    void invoke(std::index_sequence<I...>) const {
        kernel(*static_cast<std::remove_const_t<A>*>(arguments[I])...);
    }
    static void go(void* self) { static_cast<Call*>(self)->invoke(std::index_sequence_for<A...>{}); }
};
template <class... A>
int launch(void (*kernel)(A...), void** arguments, const Launch& how) {
    Call<A...> call{kernel, arguments};
    return run(how, &Call<A...>::go, &call);
}

template <class T>
uint64_t to_bits(T value) {
    static_assert(sizeof(T) <= 8);
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
}
template <class T>
T from_bits(uint64_t bits) {
    T value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

// The value that lane `source` of the caller's warp hands in; the caller's own if there is no such lane.
template <class T>
T shuffle(unsigned mask, T value, int source, Site site) {
    const uint64_t* lanes = meet_warp(mask, to_bits(value), site);
    if (source < 0 || source > 31) source = current->number % 32;
    // Reading a lane outside the mask is undefined on the device: garbage here, so that it shows.
    return from_bits<T>(mask >> source & 1 ? lanes[source] : 0x7ff4dead7fa4deadull);
}
inline int lane() { return current->number % 32; }
inline unsigned ballot(unsigned mask, bool vote, Site site) {
    const uint64_t* lanes = meet_warp(mask, vote, site);
    unsigned votes = 0;
    for (int lane = 0; lane < 32; ++lane)
        if (mask >> lane & 1 && lanes[lane]) votes |= 1u << lane;
    return votes;
}

}  // namespace emulation

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
#define DYNAMIC_SHARED(name) unsigned char* name = static_cast<unsigned char*>(::emulation::shared_memory())
#define threadIdx (::emulation::current->thread)
#define blockIdx (::emulation::current->block)
#define blockDim (::emulation::current->block_size)
#define gridDim (::emulation::current->grid_size)
#define EMULATION_SITE(what) (::emulation::Site{what, __FILE__, __LINE__})
#define __syncthreads() ::emulation::meet_block(EMULATION_SITE("__syncthreads"))
#define __syncwarp(...) ::emulation::meet_warp(0xffffffffu __VA_OPT__(&(__VA_ARGS__)), 0, EMULATION_SITE("__syncwarp"))
#define EMULATION_SHUFFLE(what, mask, value, source) ::emulation::shuffle(mask, value, static_cast<int>(source), EMULATION_SITE(what))
#define __shfl_down_sync(mask, value, offset) EMULATION_SHUFFLE("__shfl_down_sync", mask, value, ::emulation::lane() + (offset))
#define __shfl_up_sync(mask, value, offset) \
    EMULATION_SHUFFLE("__shfl_up_sync", mask, value, ::emulation::lane() - static_cast<int>(offset))
#define __shfl_sync(mask, value, source) EMULATION_SHUFFLE("__shfl_sync", mask, value, (source) % 32)
#define __ballot_sync(mask, vote) ::emulation::ballot(mask, vote, EMULATION_SITE("__ballot_sync"))

template <class T>
T max(T a, T b) {
    return a < b ? b : a;
}
template <class T>
T min(T a, T b) {
    return b < a ? b : a;
}
inline int __clz(int value) { return value ? __builtin_clz(static_cast<unsigned>(value)) : 32; }
inline int __popc(unsigned value) { return __builtin_popcount(value); }
inline int __clzll(long long value) { return value ? __builtin_clzll(static_cast<unsigned long long>(value)) : 64; }
inline float __int_as_float(int bits) { return emulation::from_bits<float>(static_cast<unsigned>(bits)); }
inline double __fma_rn(double a, double b, double c) { return __builtin_fma(a, b, c); }
inline long long __double_as_longlong(double value) { return static_cast<long long>(emulation::to_bits(value)); }
inline double __longlong_as_double(long long bits) { return emulation::from_bits<double>(static_cast<uint64_t>(bits)); }

template <class T>
T atomicAnd(T* at, std::type_identity_t<T> value) {
    ::emulation::before_atomic();
    return __atomic_fetch_and(at, value, __ATOMIC_RELAXED);
}
