// Sums -> raw scores or values: what follows from one document's sums alone; `cuda/apply_link.cu` does the same on GPUs.
//
//   foreach document (threads share them out):
//       foreach output of fixed-point sums: sums[document][output] <- step * sums[document][output] + base[output]
//       foreach output: raw[output] <- (sums[document][output] + last[output]) / divisor
//       out[document] <- link(raw)
//
// exp, exp2 and log1p are the C library's, bit for bit: the training libraries call these. Those of most links are made together
// (exponentials.hpp), others a number at a time.
#pragma once
#include <cstdint>

namespace gpuqs {

struct Link;

// The link of that name, of gpuqs.links.KERNELS; null: there is none.
const Link* find_link(const char* name);

// What becomes of a document's sums, which are floats or doubles, or, with a step, int64.
struct Finish {
    const Link* link;
    bool is_double;
    int32_t n_outputs;
    const double* last;  // [n_outputs], or null: added before all else, in double
    double divisor;    // the trees that sums are averaged over, or 1
    double scale;      // a factor on raw scores inside the link
    double step;       // of fixed-point sums; or 0
    const double* base;  // [n_outputs]: what is added to those
};

// Whether a link gives each document one value, whatever its outputs.
bool gives_one(const Link*);
// sums, out: [n][n_outputs]; out is [n][1] where the link gives one, else it may be where the sums lie if both take as many
// bytes. Fixed-point sums have no link that gives one.
void finish(const Finish&, const void* sums, int64_t n, void* out, int n_threads);

}  // namespace gpuqs
