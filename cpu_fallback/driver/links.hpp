// Sums -> raw scores or values: each document by itself; `cuda/apply_link.cu` does the same on GPUs.
//
//   foreach document (threads share them out):
//       foreach output of fixed-point sums: sums[document][output] <- step * sums[document][output] + base[output]
//       foreach output: raw[output] <- (sums[document][output] + last[output]) / divisor
//       out[document] <- link(raw)
//
// exp, exp2 and log1p are the C library's, bit for bit: the training libraries call these. Most links compute many
// exponentials at once (exponentials.hpp), the others one at a time.
#pragma once
#include <cstdint>

namespace gpuqs {

struct Link;

// The link of that name, one of gpuqs.links.KERNELS; null if there is none.
const Link* find_link(const char* name);

// How a document's sums become its scores or values. Sums are floats or doubles or, if there is a step, int64.
struct Finish {
    const Link* link;
    bool is_double;
    int32_t n_outputs;
    const double* last;  // [n_outputs], or null: added before all else, in double
    double divisor;    // the trees that sums are averaged over, or 1
    double scale;      // a factor on raw scores inside the link
    double step;       // value of 1 in fixed-point sums; 0: sums are not fixed-point
    const double* base;  // [n_outputs]: added to fixed-point sums after scaling
};

// Whether a link gives each document one value, however many outputs there are.
bool gives_one(const Link*);
// sums, out: [n][n_outputs]; out is [n][1] if the link gives one value. Otherwise it may be the same memory as sums, if both have
// the same size in bytes. Links that give one value do not take fixed-point sums.
void finish(const Finish&, const void* sums, int64_t n, void* out, int n_threads);

}  // namespace gpuqs
