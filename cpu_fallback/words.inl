// Words of 128 or 256 bits, and searches of eight documents, for instruction sets without better.
static inline Word or_and(Word a, Word b, Word c) { return a | (b & c); }
static inline Word select(Word m, Word a, Word b) { return (a & m) | (b & ~m); }
static inline Word xor3(Word a, Word b, Word c) { return a ^ b ^ c; }
