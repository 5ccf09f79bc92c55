// A file read into memory by several threads: what takes longest is that the system provides the memory, page by page.
#pragma once
#include <cstdint>

namespace gpuqs {

struct FileBytes {
    int64_t n;  // read from the start without a gap
    int error;  // errno; 0: none
};

// Reads up to n bytes of a seekable file, from `start` on; fewer if it ends before.
FileBytes read_file(int descriptor, int64_t start, void* to, int64_t n, int n_threads);

}  // namespace gpuqs
