// Work shared out among threads that are kept between calls.
//
//   the caller posts its job for helpers, then runs piece after piece, as does each helper that joins
//   when no piece is left, the caller waits for the pieces that helpers have begun
//   a helper without a job spins for the next one for a moment, then sleeps
//
// Nobody waits for a helper that has begun nothing: one that sleeps, is busy or cannot be started leaves its pieces to
// others, to the caller at worst. A forked child has no helpers and starts its own; that is why this is not OpenMP, whose
// runtime waits in a child for its parent's threads.
#pragma once
#include <cstdint>
#include <type_traits>

// Upper limit of the threads of one call, and of one caller with all helpers: four times the processors. threadpoolctl finds the
// library by this symbol.
extern "C" __attribute__((visibility("default"))) int gpuqs_most_threads();

namespace gpuqs {

// Runs piece(work, thread, p) for p = 0 ... n - 1 in any order; threads are numbered below `n_threads`, and each number runs
// one piece at a time. Rethrows what a piece throws; pieces that no thread has begun by then are skipped.
using Piece = void (*)(void* work, int thread, int64_t p);
void share_out(int64_t n, int n_threads, Piece piece, void* work);

// Each Python module that links this would have threads of its own. A module that is given the address of another module's
// `share_out` uses that module's threads instead.
void* address_of_share_out();
void share_out_by(void* other);

template <class Work> void share_out(int64_t n, int n_threads, Work&& work) {
    using Called = std::remove_reference_t<Work>;
    share_out(n, n_threads, [](void* called, int thread, int64_t p) { (*static_cast<Called*>(called))(thread, p); }, &work);
}

}  // namespace gpuqs
