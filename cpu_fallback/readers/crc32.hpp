// CRC-32 (zlib's) at the speed of memory, on processors with carry-less multiplication.
#pragma once
#include <cstdint>

namespace gpuqs {

// Folds whole blocks of 64 bytes into 16 bytes that stand for them: their CRC-32, started from a register of zeros, equals that of
// all the folded bytes, started from the register `crc`. Returns how many bytes were folded: 0 if the processor cannot, or n is too
// small.
int64_t fold_crc32(const uint8_t* data, int64_t n, uint32_t crc, uint8_t* folded);

// Folds the parts [ends[p - 1], ends[p]) of the data, the first from 0 on, with several threads. The first part starts from the
// register `crc`, all others from a register of ones.
struct FoldedPart {
    int64_t done;
    uint8_t folded[16];
};
void fold_parts(const uint8_t* data, const int64_t* ends, int64_t n_parts, uint32_t crc, FoldedPart* parts, int n_threads);

// The CRC-32 of bytes whose CRC-32 is `first`, followed by n bytes whose CRC-32 is `second`.
uint32_t crc32_of_both(uint32_t first, uint32_t second, int64_t n);

}  // namespace gpuqs
