// The x86-64 instructions that tree programs are made of, as bytes: logic on words in vector registers and in memory.
//
// A word is as wide as a vector register of 16, 32 or 64 bytes. EVEX (AVX-512) has 32 registers and three-input logic,
// VEX (AVX2) has 16 and makes it of two instructions, through a register that no caller uses.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "jit/encoding.hpp"

namespace gpuqs {

// The arrays that operands lie in, as the register that holds their address: callee-saved, encoded without a further byte.
enum class Base : uint8_t { predicates = 3 /* rbx */, planes = 5 /* rbp */ };

struct Operand {
    Base base;
    uint32_t word;
};

class Assembler {
public:
    Assembler(Encoding encoding, int word_bytes) : evex_(encoding == Encoding::evex), word_bytes_(word_bytes) {}

    // Registers 0 ... n_registers() - 1 are the caller's.
    int n_registers() const { return evex_ ? 32 : kScratch; }

    void load(int to, Operand from) { memory(kMap, kLoad, to, 0, from); }
    void store(Operand to, int from) { memory(kMap, kStore, from, 0, to); }
    void move(int to, int from) { registers(kMap, kLoad, to, 0, from); }
    void and_with(int to, int a, Operand b) { memory(kMap, kAnd, to, a, b); }
    void or_with(int to, int a, Operand b) { memory(kMap, kOr, to, a, b); }
    void exclusive_or(int to, int a, int b) { registers(kMap, kXor, to, a, b); }
    void exclusive_or_with(Operand to, int a) {
        memory(kMap, kXor, kScratch, a, to);
        store(to, kScratch);
    }

    // to = a | (b & c); any of the registers may be the same.
    void or_and(int to, int a, int b, Operand c) {
        if (!evex_) {
            memory(kMap, kAnd, kScratch, b, c);
            registers(kMap, kOr, to, kScratch, a);
        } else if (to == b) {
            memory(kTernaryMap, kTernary, b, a, c);
            byte(kSecondOrFirstAndThird);
        } else {
            if (to != a) move(to, a);
            memory(kTernaryMap, kTernary, to, b, c);
            byte(kFirstOrSecondAndThird);
        }
    }
    // to ^= a ^ b
    void exclusive_or3(int to, int a, int b) {
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
        while (code_.size() % 64) byte(0xcc);
        const size_t start = code_.size();
        bytes({0xf3, 0x0f, 0x1e, 0xfa});                          // endbr64
        bytes({0x53, 0x55, 0x41, 0x56, 0x41, 0x57, 0x50});        // push rbx, rbp, r14, r15, rax (to align the stack)
        bytes({0x48, 0x89, 0xfb, 0x48, 0x89, 0xf5});              // mov rbx, rdi; mov rbp, rsi
        bytes({0x49, 0x89, 0xd6, 0x49, 0x89, 0xcf});              // mov r14, rdx; mov r15, rcx
        return start;
    }
    void end_function() { bytes({0x58, 0x41, 0x5f, 0x41, 0x5e, 0x5d, 0x5b, 0xc3}); }  // pop rax ... rbx; ret
    // functions[number](planes, leaves); leaves += leaf_bytes
    void call_with_leaves(int number, int32_t leaf_bytes) {
        bytes({0x48, 0x89, 0xef, 0x4c, 0x89, 0xf6});  // mov rdi, rbp; mov rsi, r14
        bytes({0x49, 0x81, 0xc6});                    // add r14, leaf_bytes
        word32(leaf_bytes);
        bytes({0x41, 0xff, 0x57, static_cast<uint8_t>(8 * number)});  // call [r15 + 8 * number]
    }

    const std::vector<uint8_t>& code() const { return code_; }

private:
    static constexpr int kScratch = 15;
    static constexpr int kMap = 1, kTernaryMap = 3;
    // Truth tables of kTernary: bit 4 first + 2 second + third is the result.
    static constexpr uint8_t kFirstOrSecondAndThird = 0xf8, kSecondOrFirstAndThird = 0xec, kXorOfAll = 0x96;
    static constexpr uint8_t kLoad = 0x6f, kStore = 0x7f, kAnd = 0xdb, kOr = 0xeb, kXor = 0xef, kTernary = 0x25;

    void byte(uint8_t b) { code_.push_back(b); }
    void bytes(std::initializer_list<uint8_t> all) { code_.insert(code_.end(), all); }
    void word32(int32_t word) {
        for (int i = 0; i < 4; i++) byte(static_cast<uint8_t>(word >> 8 * i));
    }

    // Prefix and opcode: `to` and `a` are the register operands, `b` the one that may be memory instead (then 0).
    void open(int map, uint8_t opcode, int to, int a, int b) {
        const auto absent = [](int reg, int bit, int at) { return static_cast<uint8_t>((~reg >> bit & 1) << at); };
        const uint8_t length = static_cast<uint8_t>(word_bytes_ / 32);  // 0: 16 bytes, 1: 32, 2: 64
        const uint8_t a_low = static_cast<uint8_t>((~a & 15) << 3);
        if (evex_) {
            byte(0x62);
            byte(absent(to, 3, 7) | absent(b, 4, 6) | absent(b, 3, 5) | absent(to, 4, 4) | static_cast<uint8_t>(map));
            byte(0x80 | a_low | 5);
            byte(static_cast<uint8_t>(length << 5) | absent(a, 4, 3));
        } else if (b < 8) {
            byte(0xc5);
            byte(absent(to, 3, 7) | a_low | static_cast<uint8_t>(length << 2) | 1);
        } else {
            byte(0xc4);
            byte(absent(to, 3, 7) | 0x40 | absent(b, 3, 5) | static_cast<uint8_t>(map));
            byte(a_low | static_cast<uint8_t>(length << 2) | 1);
        }
        byte(opcode);
    }
    void registers(int map, uint8_t opcode, int to, int a, int b) {
        open(map, opcode, to, a, b);
        byte(static_cast<uint8_t>(0xc0 | (to & 7) << 3 | (b & 7)));
    }
    void memory(int map, uint8_t opcode, int to, int a, Operand b) {
        open(map, opcode, to, a, 0);
        byte(static_cast<uint8_t>(0x80 | (to & 7) << 3 | static_cast<int>(b.base)));
        word32(static_cast<int32_t>(b.word) * word_bytes_);
    }

    const bool evex_;
    const int word_bytes_;
    std::vector<uint8_t> code_;
};

}  // namespace gpuqs
