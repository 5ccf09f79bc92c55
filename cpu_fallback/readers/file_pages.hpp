// A file read into memory by several threads: what takes longest is to be given the memory, page by page.
#pragma once
#include <cstdint>

namespace gpuqs {

struct FileBytes {
    int64_t n;  // read in a row
    int error;  // errno; 0: none
};

// Reads up to n bytes of a file that can be sought, from `start` on; fewer where it ends before.
FileBytes read_file(int descriptor, int64_t start, void* to, int64_t n, int n_threads);

}  // namespace gpuqs
