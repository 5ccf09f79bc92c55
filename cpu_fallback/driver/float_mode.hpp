// The floating-point mode in which results equal the training libraries' bit for bit: round to nearest, keep denormals, no traps.
//
// A caller's thread may be in another mode: a library built with -ffast-math makes each thread that loads it flush denormals.
#pragma once
#include <cfenv>

#ifdef GPUQS_X86
#include <immintrin.h>
#endif
#ifdef GPUQS_AARCH64
#include <cstdint>
#endif

namespace gpuqs {

// Sets the mode for as long as this lives, in the thread that made it.
class DefaultFloatMode {
public:
    DefaultFloatMode() : changed_(!is_on()) {
        if (!changed_) return;
        std::fegetenv(&before_);
        std::fesetenv(FE_DFL_ENV);
#ifdef GPUQS_X86
        _mm_setcsr(kDefault);  // some C libraries do not reset the denormal mode
#endif
    }
    ~DefaultFloatMode() {
        if (changed_) std::fesetenv(&before_);
    }
    void hold() const {}  // called in Cython only, which drops variables that are not used, even if they have destructors
    DefaultFloatMode(const DefaultFloatMode&) = delete;
    DefaultFloatMode& operator=(const DefaultFloatMode&) = delete;

private:
#ifdef GPUQS_X86
    static constexpr unsigned kDefault = 0x1f80, kFlags = 0x3f;  // flags record what happened, the other bits are the mode
    static bool is_on() { return (_mm_getcsr() & ~kFlags) == kDefault; }
#elif defined(GPUQS_AARCH64)
    static bool is_on() {
        uint64_t mode;
        asm volatile("mrs %0, fpcr" : "=r"(mode));
        return mode == 0;
    }
#else
    static bool is_on() { return std::fegetround() == FE_TONEAREST; }
#endif

    const bool changed_;
    std::fenv_t before_;
};

}  // namespace gpuqs
