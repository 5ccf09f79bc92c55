// CRC-32 (zlib's) at the speed of memory, where processors multiply without carries.
#pragma once
#include <cstdint>

namespace gpuqs {

// Folds whole blocks of 64 bytes into 16 that stand for them: the CRC-32 of these, begun with a register of zeros, is that of
// all, begun with the register `crc`. Returns how many bytes were folded: 0 where the processor cannot, or n is too small.
int64_t fold_crc32(const uint8_t* data, int64_t n, uint32_t crc, uint8_t* folded);

// Folds the parts [ends[p - 1], ends[p]) of the data, from 0 on, by several threads, all but the first begun with a register of ones.
struct FoldedPart {
    int64_t done;
    uint8_t folded[16];
};
void fold_parts(const uint8_t* data, const int64_t* ends, int64_t n_parts, uint32_t crc, FoldedPart* parts, int n_threads);

// The CRC-32 of what has the first one, and behind it n bytes that have the second.
uint32_t crc32_of_both(uint32_t first, uint32_t second, int64_t n);

}  // namespace gpuqs
