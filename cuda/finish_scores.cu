// add_tree_blocks: partial sums of the tree blocks -> sums; finish_scores: sums -> raw scores.
//
//   parallel_thread foreach (document, output):
//       sum <- start[output]
//       foreach tree block, in order: sum += partial[tree block][document][output]
//       sums[document][output] <- sum
//   parallel_thread foreach (document, output):
//       scores[document][output] <- sum * step + add_last[output]
#include "common.cuh"

// Launch: any number of threads, at least one for each of the n sums.
template <class Sum>
__global__ void add_tree_blocks(const Sum* partial, int n_blocks, i64 n, int n_outputs, const Sum* start, Sum* sums) {
    const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    Sum sum = start[i % n_outputs];
#pragma unroll 4
    for (int block = 0; block < n_blocks; ++block) sum += partial[block * n + i];
    sums[i] = sum;
}

// `Real` is the type that the scores are finished in: the sums' own, or double for fixed-point sums.
template <class Sum, class Real, class Score>
__global__ void finish_scores(const Sum* sums, i64 n, int n_outputs, double step, const double* add_last, Score* scores) {
    const i64 i = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const Real sum = static_cast<Real>(sums[i]) * static_cast<Real>(step);
    scores[i] = static_cast<Score>(sum + add_last[i % n_outputs]);
}
