// Words of documents, one bit each; three-input logic on them.
using Word16 = uint64_t __attribute__((vector_size(16)));
#ifdef __AVX2__
using Word32 = uint64_t __attribute__((vector_size(32)));
#endif
#ifdef __AVX512F__
using Word64 = uint64_t __attribute__((vector_size(64)));
#endif

template <class Word> static inline Word or_and(Word a, Word b, Word c) { return a | (b & c); }
template <class Word> static inline Word select(Word m, Word a, Word b) { return (a & m) | (b & ~m); }
template <class Word> static inline Word xor3(Word a, Word b, Word c) { return a ^ b ^ c; }

#ifdef __AVX512F__
static inline Word64 or_and(Word64 a, Word64 b, Word64 c) { return (Word64)_mm512_ternarylogic_epi64((__m512i)a, (__m512i)b, (__m512i)c, 0xf8); }
static inline Word64 select(Word64 m, Word64 a, Word64 b) { return (Word64)_mm512_ternarylogic_epi64((__m512i)m, (__m512i)a, (__m512i)b, 0xca); }
static inline Word64 xor3(Word64 a, Word64 b, Word64 c) { return (Word64)_mm512_ternarylogic_epi64((__m512i)a, (__m512i)b, (__m512i)c, 0x96); }
#endif
