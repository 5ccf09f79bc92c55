#include "readers/file_pages.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

#include "driver/threads.hpp"

namespace gpuqs {

constexpr int64_t kPiece = 1 << 20;  // about a hundred microseconds: a thread that is held up keeps others waiting no longer than that

FileBytes read_file(int descriptor, int64_t start, void* to, int64_t n, int n_threads) {
    std::atomic<int64_t> end{n};
    std::atomic<int> error{0};
    share_out((n + kPiece - 1) / kPiece, n_threads, [&](int, int64_t piece) {
        int64_t at = piece * kPiece;
        const int64_t last = std::min(at + kPiece, n);
        while (at < last) {
            const ssize_t read = pread(descriptor, static_cast<char*>(to) + at, last - at, start + at);
            if (read < 0 && errno == EINTR) continue;
            if (read < 0) error = errno;
            if (read <= 0) break;
            at += read;
        }
        int64_t so_far = end;
        while (at < last && at < so_far && !end.compare_exchange_weak(so_far, at)) {}
    });
    return {end, error};
}

}  // namespace gpuqs
