// apply_link: sums -> raw scores, values, or class numbers: all that can be computed from one document's sums.
//
//   parallel_thread foreach document:
//       foreach output: raw[output] <- sums[document][output] / divisor
//       out[document] <- link(raw)
#include "elementary.cuh"

// The raw scores of one document.
template <class Real>
struct Raw {
    const Real* sums;
    Real divisor;  // the trees that sums are averaged over, or 1
    int n;
    __device__ Real operator[](int output) const { return sums[output] / divisor; }
    // Index of the largest score, the first of them on ties; of the first NaN, if there is one.
    __device__ int largest() const {
        int best = 0;
        for (int k = 1; k < n && (*this)[best] == (*this)[best]; ++k)
            if (!((*this)[k] <= (*this)[best])) best = k;
        return best;
    }
};

// The links of gpuqs.links.KERNELS, by name, with the same operations as cpu_fallback/driver/links.cpp. `out` may alias the sums,
// unless it has fewer columns.
namespace links {

// A link that turns each score into a value: Link::of.
template <class Link>
struct each {
    template <class Real, class Out>
    static __device__ void apply(const Raw<Real>& raw, Real scale, Out* out) {
        for (int k = 0; k < raw.n; ++k) out[k] = static_cast<Out>(Link::of(raw[k], scale));
    }
};

struct identity : each<identity> {
    template <class Real>
    static __device__ Real of(Real x, Real) {
        return x;
    }
};
struct sigmoid : each<sigmoid> {
    template <class Real>
    static __device__ Real of(Real x, Real scale) {
        return 1 / (1 + exp_of(-scale * x));
    }
};
using ova_sigmoid = sigmoid;
// XGBoost's: exponentials stay finite.
struct clamped_sigmoid : each<clamped_sigmoid> {
    template <class Real>
    static __device__ Real of(Real x, Real scale) {
        const Real most = Real(88.7f), exponent = -scale * x;
        return 1 / (1 + exp_of(most < exponent ? most : exponent));
    }
};
// onnxruntime's links compute in float32, whatever the type of the scores. This one takes the sigmoid of |x|, mirrored for x < 0.
struct mirrored_sigmoid : each<mirrored_sigmoid> {
    static __device__ float of(float x, float) {
        const float of_magnitude = 1 / (1 + exp_of(x < 0 ? x : -x));
        return x < 0 ? 1 - of_magnitude : of_magnitude;
    }
};
// onnxruntime's for two classes, of which the other one has score 0: x's softmax over both.
struct softmax_beside_zero : each<softmax_beside_zero> {
    static __device__ float of(float x, float) {
        const float top = x > 0 ? x : 0, other = exp_of(-top), mine = exp_of(x - top);
        return mine / (other + mine);
    }
};
struct exp : each<exp> {
    template <class Real>
    static __device__ Real of(Real x, Real) {
        return exp_of(x);
    }
};
struct double_exp : each<double_exp> {
    template <class Real>
    static __device__ Real of(Real x, Real) {
        return static_cast<Real>(exp_of(static_cast<double>(x)));
    }
};
struct table_exp : each<table_exp> {
    template <class Real>
    static __device__ Real of(Real x, Real) {
        return static_cast<Real>(table_exp_of(static_cast<double>(x), false));
    }
};
struct exp2 : each<exp2> {
    template <class Real>
    static __device__ Real of(Real x, Real scale) {
        return exp2_of(scale * x);
    }
};
struct isolation : each<isolation> {
    template <class Real>
    static __device__ Real of(Real x, Real scale) {
        return -exp2_of(-scale * x);
    }
};
struct log1p_exp : each<log1p_exp> {
    template <class Real>
    static __device__ Real of(Real x, Real) {
        return log1p_of(exp_of(x));
    }
};
struct sqrt_signed : each<sqrt_signed> {
    template <class Real>
    static __device__ Real of(Real x, Real) {
        const Real sign = x > 0 ? Real(1) : x < 0 ? Real(-1) : x == 0 ? Real(0) : x;
        return sign * x * x;
    }
};
struct hinge : each<hinge> {
    template <class Real>
    static __device__ Real of(Real x, Real) {
        return x > 0 ? Real(1) : Real(0);
    }
};

struct mean_variance {
    template <class Real>
    static __device__ void apply(const Raw<Real>& raw, Real, Real* out) {
        for (int k = 0; k < raw.n; ++k) out[k] = raw[k];
        if (raw.n > 1) out[1] = static_cast<Real>(table_exp_of(static_cast<double>(2 * out[1]), false));
    }
};

// XGBoost's for several quantiles: sorted, so that they do not cross.
struct ascending {
    template <class Real>
    static __device__ void apply(const Raw<Real>& raw, Real, Real* out) {
        for (int k = 0; k < raw.n; ++k) {
            const Real x = raw[k];
            int at = k;
            for (; at > 0 && out[at - 1] > x; --at) out[at] = out[at - 1];
            out[at] = x;
        }
    }
};

// XGBoost's for several expectiles: each score after the first gives how far its expectile lies above the previous one.
struct expectiles {
    template <class Real>
    static __device__ void apply(const Raw<Real>& raw, Real, Real* out) {
        Real last = out[0] = raw[0];
        for (int k = 1; k < raw.n; ++k) {
            const Real x = raw[k], softplus = x > 0 ? x + log1p_of(exp_of(-x)) : log1p_of(exp_of(x));
            out[k] = last += Real(1e-6f) + softplus;
        }
    }
};

// Softmax in type Own, summed in type Total: most libraries sum in double, whatever the type of the values.
template <class Own, class Total, class Real>
__device__ void softmax_in(const Raw<Real>& raw, Real* out) {
    const Own top = static_cast<Own>(raw[raw.largest()]);
    Total total = 0;
    for (int k = 0; k < raw.n; ++k) {
        out[k] = exp_of(static_cast<Own>(raw[k]) - top);
        total += out[k];
    }
    for (int k = 0; k < raw.n; ++k) out[k] = static_cast<Own>(out[k]) / static_cast<Own>(total);
}
struct softmax {
    template <class Real>
    static __device__ void apply(const Raw<Real>& raw, Real, Real* out) {
        softmax_in<Real, double>(raw, out);
    }
};
// Treelite's: exponentials are rounded to float32, as is their sum.
struct rounded_softmax {
    template <class Real>
    static __device__ void apply(const Raw<Real>& raw, Real, Real* out) {
        const float top = static_cast<float>(raw[raw.largest()]);
        double total = 0;
        for (int k = 0; k < raw.n; ++k) {
            out[k] = static_cast<float>(exp_of(raw[k] - top));
            total += out[k];
        }
        for (int k = 0; k < raw.n; ++k) out[k] /= static_cast<float>(total);
    }
};
// onnxruntime's.
struct narrow_softmax {
    template <class Real>
    static __device__ void apply(const Raw<Real>& raw, Real, Real* out) {
        softmax_in<float, float>(raw, out);
    }
};

// CatBoost's.
struct table_softmax {
    template <class Real>
    static __device__ void apply(const Raw<Real>& raw, Real, Real* out) {
        const Real top = raw[raw.largest()];
        double total = 0;
        for (int k = 0; k < raw.n; ++k) {
            out[k] = static_cast<Real>(table_exp_of(static_cast<double>(raw[k] - top), k < raw.n / 4 * 4));
            total += out[k];
        }
        for (int k = 0; k < raw.n; ++k) out[k] = static_cast<Real>(out[k] / total);
    }
};

struct argmax {
    template <class Real, class Out>
    static __device__ void apply(const Raw<Real>& raw, Real, Out* out) {
        *out = static_cast<Out>(raw.largest());
    }
};

}  // namespace links

// How gpuqs.outputs.class_numbers decides between two classes.
namespace classes {

using above_zero = links::hinge;
struct from_zero : links::each<from_zero> {
    template <class Real>
    static __device__ Real of(Real x, Real) {
        return x >= 0 ? Real(1) : Real(0);
    }
};
struct above_half : links::each<above_half> {
    template <class Real>
    static __device__ Real of(Real x, Real) {
        return x > Real(0.5) ? Real(1) : Real(0);
    }
};
using argmax = links::argmax;

}  // namespace classes

// Launch: at least one thread per document; writes `width` values per document.
template <class Real, class Out, class Link>
__global__ void apply_link(const Real* sums, i64 n_documents, int n_outputs, Real divisor, Real scale, int width, Out* out) {
    const i64 document = static_cast<i64>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (document >= n_documents) return;
    Link::apply(Raw<Real>{sums + document * n_outputs, divisor, n_outputs}, scale, out + document * width);
}
