// Words, with one bit per document, and three-input logic on them. Instruction sets add wider words: see their registers.inl.
#pragma once
#include <cstdint>

namespace gpuqs {
namespace {

using Word16 = uint64_t __attribute__((vector_size(16)));

template <class Word> inline Word or_and(Word a, Word b, Word c) { return a | (b & c); }
template <class Word> inline Word select(Word m, Word a, Word b) { return (a & m) | (b & ~m); }
template <class Word> inline Word xor3(Word a, Word b, Word c) { return a ^ b ^ c; }

}  // namespace
}  // namespace gpuqs
