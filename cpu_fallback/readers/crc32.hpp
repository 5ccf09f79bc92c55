// CRC-32 (zlib's) at the speed of memory, where processors multiply without carries.
#pragma once
#include <cstdint>

namespace gpuqs {

// Folds whole blocks of 64 bytes into 16 that stand for them: the CRC-32 of these, begun with a register of zeros, is that of
// all, begun with the register `crc`. Returns how many bytes were folded: 0 where the processor cannot, or n is too small.
int64_t fold_crc32(const uint8_t* data, int64_t n, uint32_t crc, uint8_t* folded);

}  // namespace gpuqs
