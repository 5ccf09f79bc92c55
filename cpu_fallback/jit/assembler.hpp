// The x86-64 instructions that tree programs are made of, as bytes: logic on words in vector registers and in memory.
//
// A word is as wide as a vector register of 16, 32 or 64 bytes. EVEX (AVX-512) has 32 registers and three-input logic; VEX (AVX2)
// has 16 registers and needs two instructions for that. The last register is the assembler's own scratch. Programs are bound by
// fetching code. So instructions that VEX can encode, mostly in fewer bytes, are encoded in VEX, and a displacement takes one byte
// if it fits.
//
// A number that an instruction's field cannot hold is an error (std::logic_error), never another instruction.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <utility>

#include "jit/code_ahead.hpp"
#include "jit/code_bytes.hpp"
#include "jit/encoding.hpp"

namespace gpuqs {

// Operands in memory lie in one of two arrays. The number is that of the register with the array's address: callee-saved, and
// encoded without an extra byte.
enum class Base : uint8_t { predicates = 3 /* rbx */, planes = 5 /* rbp */ };

struct Operand {
    Base base;
    uint32_t word;
};

class Assembler {
public:
    Assembler(Encoding encoding, int word_bytes, CodeAhead ahead)
        : evex_(encoding == Encoding::evex), prefetches_(ahead == CodeAhead::prefetched), word_bytes_(word_bytes),
          scratch_(evex_ ? 31 : 15) {
        require(encoding != Encoding::none, "no encoding", 0);
        require(word_bytes == 16 || word_bytes == 32 || (evex_ && word_bytes == 64), "no register holds a word of bytes:", word_bytes);
    }

    // Registers 0 ... n_registers() - 1 are the caller's.
    int n_registers() const { return scratch_; }

    void load(int to, Operand from) {
        callers(to);
        memory(kMap, kLoad, to, 0, from);
    }
    void store(Operand to, int from) {
        callers(from);
        memory(kMap, kStore, from, 0, to);
    }
    void move(int to, int from) {
        callers(to, from);
        registers(kMap, kLoad, to, 0, from);
    }
    void and_with(int to, int a, Operand b) {
        callers(to, a);
        memory(kMap, kAnd, to, a, b);
    }
    void or_with(int to, int a, Operand b) {
        callers(to, a);
        memory(kMap, kOr, to, a, b);
    }
    void exclusive_or(int to, int a, int b) {
        callers(to, a, b);
        registers(kMap, kXor, to, a, b);
    }
    void exclusive_or_with(Operand to, int a) {
        callers(a);
        memory(kMap, kXor, scratch_, a, to);
        memory(kMap, kStore, scratch_, 0, to);
    }

    // to = a | (b & c); any of the registers may be the same.
    void or_and(int to, int a, int b, Operand c) {
        callers(to, a, b);
        if (!evex_) {
            memory(kMap, kAnd, scratch_, b, c);
            registers(kMap, kOr, to, scratch_, a);
        } else if (to == b) {
            memory(kTernaryMap, kTernary, b, a, c);
            byte(kSecondOrFirstAndThird);
        } else if (to != a && fits_vex(kMap, to, a, b)) {  // shorter than copying a
            memory(kMap, kAnd, to, b, c);
            registers(kMap, kOr, to, to, a);
        } else {
            if (to != a) move(to, a);
            memory(kTernaryMap, kTernary, to, b, c);
            byte(kFirstOrSecondAndThird);
        }
    }
    // to ^= a ^ b; to is neither.
    void exclusive_or3(int to, int a, int b) {
        callers(to, a, b);
        require(to != a && to != b, "the exclusive or of three is taken into one of them:", to);
        if (evex_) {
            registers(kTernaryMap, kTernary, to, a, b);
            byte(kXorOfAll);
        } else {
            exclusive_or(to, to, a);
            exclusive_or(to, to, b);
        }
    }

    // Begins a function of (words of predicates, words of planes, leaves, functions) with System V's calling convention;
    // returns its offset in the code.
    size_t begin_function() {
        fill_line();
        const size_t start = code_.size();
        bytes({0xf3, 0x0f, 0x1e, 0xfa});                          // endbr64
        bytes({0x53, 0x55, 0x41, 0x56, 0x41, 0x57, 0x50});        // push rbx, rbp, r14, r15, rax (to align the stack)
        bytes({0x48, 0x89, 0xfb, 0x48, 0x89, 0xf5});              // mov rbx, rdi; mov rbp, rsi
        bytes({0x49, 0x89, 0xd6, 0x49, 0x89, 0xcf});              // mov r14, rdx; mov r15, rcx
        return start;
    }
    void end_function() { bytes({0x58, 0x41, 0x5f, 0x41, 0x5e, 0x5d, 0x5b, 0xc3}); }  // pop rax ... rbx; ret
    // Fills the cache line with traps, so that other code may follow.
    void fill_line() {
        while (code_.size() % kLine) byte(0xcc);
    }
    // functions[number](planes, leaves, code, lines); leaves += leaf_bytes. The function prefetches `lines` cache lines of `code`: about
    // as many as were written since the last call, kAhead bytes further on. (Prefetches in the code itself would make it longer.)
    void call_with_leaves(int number, int64_t leaf_bytes) {
        require(number >= 0 && number <= INT8_MAX / 8, "the call's displacement does not hold function", number);
        require(leaf_bytes == static_cast<int32_t>(leaf_bytes), "an immediate does not hold", leaf_bytes);
        bytes({0x48, 0x89, 0xef, 0x4c, 0x89, 0xf6});  // mov rdi, rbp; mov rsi, r14
        bytes({0x49, 0x81, 0xc6});                    // add r14, leaf_bytes
        immediate(static_cast<int32_t>(leaf_bytes));
        if (const int lines = lines_due() / kLinesTogether * kLinesTogether) {
            bytes({0x48, 0x8d, 0x15});  // lea rdx, [rip + the distance from the instruction's end]
            immediate(distance_to_prefetched());
            byte(0xb9);  // mov ecx, lines
            immediate(lines);
            prefetched_ += lines * kLine;
        } else {
            bytes({0x31, 0xc9});  // xor ecx, ecx
        }
        bytes({0x41, 0xff, 0x57, static_cast<uint8_t>(8 * number)});  // call [r15 + 8 * number]
    }

    // Prefetches what is due before the next call.
    void prefetch_ahead() {
        for (; lines_due(); prefetched_ += kLine) {
            bytes({0x0f, 0x18, 0x15});  // prefetcht1 [rip + the distance from the instruction's end]
            immediate(distance_to_prefetched());
        }
    }

    void reserve(size_t bytes) { code_.reserve(bytes); }
    CodeBytes take_code() { return std::move(code_); }

private:
    static constexpr int kMap = 1, kTernaryMap = 3;
    // Truth tables of kTernary: bit 4 first + 2 second + third is the result.
    static constexpr uint8_t kFirstOrSecondAndThird = 0xf8, kSecondOrFirstAndThird = 0xec, kXorOfAll = 0x96;
    static constexpr uint8_t kLoad = 0x6f, kStore = 0x7f, kAnd = 0xdb, kOr = 0xeb, kXor = 0xef, kTernary = 0x25;

    [[noreturn, gnu::cold, gnu::noinline]] static void refuse(const char* what, int64_t number) {
        throw std::logic_error(std::string("a tree program's machine code: ") + what + " " + std::to_string(number));
    }
    static void require(bool holds, const char* what, int64_t number) {
        if (__builtin_expect(!holds, 0)) refuse(what, number);
    }
    template <class... Registers> void callers(Registers... all) const {
        (require(all >= 0 && all < scratch_, "no register", all), ...);
    }

    static constexpr size_t kLongest = 16;  // at least the bytes of an instruction, and those that are written along with it
    // A few trees of 64 leaves: far enough ahead to hide memory latency, near enough for every L2 cache.
    static constexpr size_t kAhead = 8192, kLine = 64;

    // Cache lines that begin within the next kAhead bytes and have not been prefetched.
    int lines_due() const { return prefetches_ ? static_cast<int>((code_.size() + kAhead + kLine - 1 - prefetched_) / kLine) : 0; }
    // From the end of a 32-bit displacement.
    int32_t distance_to_prefetched() const {
        return static_cast<int32_t>(static_cast<int64_t>(prefetched_) - static_cast<int64_t>(code_.size() + sizeof(int32_t)));
    }

    void byte(uint8_t b) {
        *code_.room(1) = b;
        code_.grow(1);
    }
    void bytes(std::initializer_list<uint8_t> all) {
        std::copy(all.begin(), all.end(), code_.room(all.size()));
        code_.grow(all.size());
    }
    void immediate(int32_t number) {
        put(code_.room(4), static_cast<uint32_t>(number));
        code_.grow(4);
    }
    // Machine code is little-endian, as are the processors that write it.
    template <class Number> static void put(uint8_t* to, Number number) { std::memcpy(to, &number, sizeof number); }

    // Whether VEX has the instruction: logic of two inputs, 16 registers, of up to 32 bytes.
    bool fits_vex(int map, int to, int a, int b) const {
        return !evex_ || (word_bytes_ < 64 && map == kMap && to < 16 && a < 16 && b < 16);
    }

    // The first bytes of an instruction, the first one lowest: prefix, opcode and ModRM.
    struct Opening {
        uint64_t bytes;
        int n;
    };
    // What each register adds to EVEX's six bytes as the instruction's operand `to`, `a` or `b`. The prefix has some of a number's
    // bits inverted.
    struct RegisterBits { uint64_t to[32], a[32], b[32]; };
    static constexpr uint64_t absent(int reg, int bit, int place) { return static_cast<uint64_t>(~reg >> bit & 1) << place; }
    static constexpr RegisterBits register_bits() {
        RegisterBits bits{};
        for (int r = 0; r < 32; r++) {
            bits.to[r] = absent(r, 3, 8 + 7) | absent(r, 4, 8 + 4) | static_cast<uint64_t>(r & 7) << (40 + 3);
            bits.a[r] = static_cast<uint64_t>(~r & 15) << (16 + 3) | absent(r, 4, 24 + 3);
            bits.b[r] = absent(r, 4, 8 + 6) | absent(r, 3, 8 + 5) | static_cast<uint64_t>(r & 7) << 40;
        }
        return bits;
    }

    // `to` and `a` are the register operands, `b` the one that may be memory instead (then 0); mode: ModRM's highest bits.
    Opening open(int map, uint8_t opcode, int to, int a, int b, int mode) const {
        static constexpr RegisterBits kBits = register_bits();
        const uint64_t last = opcode | static_cast<uint64_t>(mode) << 8;
        const uint64_t evex = kBits.to[to] | kBits.a[a] | kBits.b[b] | last << 32;
        const auto length = static_cast<uint64_t>(word_bytes_ / 32);  // 0: 16 bytes, 1: 32, 2: 64
        if (!fits_vex(map, to, a, b)) return {evex | length << (24 + 5) | 0x850062 | static_cast<uint64_t>(map) << 8, 6};
        // VEX: the same, but with the length elsewhere, and without what only 32 registers need.
        const uint64_t middle = (evex >> 16 & 0x78) | length << 2 | 1, after = evex >> 32;
        if (b < 8) return {0xc5 | ((evex >> 8 & 0x80) | middle) << 8 | after << 16, 4};
        return {0xc4 | ((evex >> 8 & 0xa0) | 0x40 | static_cast<uint64_t>(map)) << 8 | middle << 16 | after << 24, 5};
    }
    void registers(int map, uint8_t opcode, int to, int a, int b) {
        if (map == kMap && opcode != kLoad && a < 8 && b >= 8) std::swap(a, b);  // VEX needs an extra byte for such a b
        const Opening opening = open(map, opcode, to, a, b, 0xc0);
        put(code_.room(kLongest), opening.bytes);
        code_.grow(opening.n);
    }
    void memory(int map, uint8_t opcode, int to, int a, Operand b) {
        const int64_t displacement = static_cast<int64_t>(b.word) * word_bytes_;
        require(displacement <= INT32_MAX, "a displacement does not hold word", b.word);
        // A displacement of one byte counts bytes in VEX, words in EVEX.
        const int64_t short_displacement = fits_vex(map, to, a, 0) ? displacement : b.word;
        const bool is_short = short_displacement <= INT8_MAX;
        const Opening opening = open(map, opcode, to, a, 0, (is_short ? 0x40 : 0x80) | static_cast<int>(b.base));
        uint8_t* const start = code_.room(kLongest);
        put(start, opening.bytes);
        put(start + opening.n, static_cast<uint32_t>(is_short ? short_displacement : displacement));
        code_.grow(opening.n + (is_short ? 1 : 4));
    }

    const bool evex_, prefetches_;
    const int word_bytes_;
    const int scratch_;
    size_t prefetched_ = kAhead;  // code is prefetched up to this offset
    CodeBytes code_;
};

}  // namespace gpuqs
