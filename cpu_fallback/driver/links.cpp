#include "driver/links.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "driver/exponentials.hpp"
#include "driver/threads.hpp"

namespace gpuqs {
namespace {

constexpr int64_t kValuesOfPiece = 4096;  // taken by a thread at a time: about ten microseconds

// The raw scores of one document.
template <class Real> struct Raw {
    const Real* sums;
    const double* last;
    Real divisor;
    int n;

    Real operator[](int k) const {
        const Real sum = last ? static_cast<Real>(sums[k] + last[k]) : sums[k];
        return divisor == 1 ? sum : sum / divisor;
    }
    // The index of the largest score (the first, if several are equal), or of the first NaN if there is one.
    int largest() const {
        int best = 0;
        for (int k = 1; k < n && !std::isnan((*this)[best]); k++)
            if (!((*this)[k] <= (*this)[best])) best = k;
        return best;
    }
};

// A link that turns each score into a value independently: Each::of.
template <class Each> struct each {
    static constexpr bool is_of_each = true, takes_powers = false;
    template <class Real> static void apply(const Raw<Real>& raw, Real scale, Real* out) {
        for (int k = 0; k < raw.n; k++) out[k] = Each::of(raw[k], scale);
    }
};

// Links with exponentials compute the exponents, and later the values from the powers, in place, so that a piece's exponentials are
// computed together.
struct by_powers {
    static constexpr bool is_of_each = false, takes_powers = true;
    template <class Real> static void powers(int64_t n, Real* out) { exponentials(out, n, out); }
};
template <class Each> struct each_by_powers : by_powers {
    static constexpr bool is_of_each = true;
    template <class Real> static void exponents(int64_t n_documents, int n, Real scale, Real* out) {
        for (int64_t i = 0; i < n_documents * n; i++) out[i] = Each::exponent(out[i], scale);
    }
    template <class Real> static void finish(int64_t n_documents, int n, Real* out) {
        for (int64_t i = 0; i < n_documents * n; i++) out[i] = Each::of(out[i]);
    }
};
// Runs a step for all documents, four at a time: within a document, each maximum or sum waits for the one before.
template <class Step, class Real> void by_fours(int64_t n_documents, int n, Real* out) {
    int64_t d = 0;
    for (; d + 4 <= n_documents; d += 4) Step::template some<4>(n, out + d * n);
    for (; d < n_documents; d++) Step::template some<1>(n, out + d * n);
}
// If a document has a NaN, the total becomes NaN, and with it all values.
struct subtract_top {
    template <int documents, class Real> static void some(int n, Real* out) {
        Real top[documents];
        for (int d = 0; d < documents; d++) top[d] = out[d * n];
        for (int k = 1; k < n; k++)
            for (int d = 0; d < documents; d++) top[d] = out[d * n + k] > top[d] ? out[d * n + k] : top[d];
        for (int d = 0; d < documents; d++)
            for (int k = 0; k < n; k++) out[d * n + k] -= top[d];
    }
};
template <bool in_double> struct divide_by_total {
    template <int documents, class Real> static void some(int n, Real* out) {
        double total[documents] = {};
        for (int k = 0; k < n; k++)
            for (int d = 0; d < documents; d++) total[d] += out[d * n + k];
        for (int d = 0; d < documents; d++) {
            const auto divisor = static_cast<std::conditional_t<in_double, double, Real>>(total[d]);
            for (int k = 0; k < n; k++) out[d * n + k] = static_cast<Real>(out[d * n + k] / divisor);
        }
    }
};
// Divides in double, or in the values' own type. The total is summed in double, as in most libraries.
template <bool in_double> struct softmax_by_powers : by_powers {
    template <class Real> static void exponents(int64_t n_documents, int n, Real, Real* out) {
        by_fours<subtract_top>(n_documents, n, out);
    }
    template <class Real> static void finish(int64_t n_documents, int n, Real* out) {
        by_fours<divide_by_total<in_double>>(n_documents, n, out);
    }
};
// A link that needs all scores of a document.
struct at_once { static constexpr bool is_of_each = false, takes_powers = false; };

struct identity : each<identity> {
    template <class Real> static Real of(Real x, Real) { return x; }
};
struct sigmoid : each_by_powers<sigmoid> {
    template <class Real> static Real exponent(Real x, Real scale) { return -scale * x; }
    template <class Real> static Real of(Real power) { return 1 / (1 + power); }
};
// XGBoost's: the exponent is limited, so that exponentials stay finite.
struct clamped_sigmoid : each_by_powers<clamped_sigmoid> {
    template <class Real> static Real exponent(Real x, Real scale) { return std::min(-scale * x, Real(88.7f)); }
    template <class Real> static Real of(Real power) { return 1 / (1 + power); }
};
// onnxruntime's links compute in float32, whatever the scores' type. This one takes the magnitude, and is mirrored for negative scores.
struct mirrored_sigmoid : each<mirrored_sigmoid> {
    static float of(float x, float) {
        const float of_magnitude = 1 / (1 + std::exp(-std::fabs(x)));
        return x < 0 ? 1 - of_magnitude : of_magnitude;
    }
};
// onnxruntime's softmax of a score and another class's score of 0.
struct softmax_beside_zero : each<softmax_beside_zero> {
    static float of(float x, float) {
        const float top = x > 0 ? x : 0, other = std::exp(-top), mine = std::exp(x - top);
        return mine / (other + mine);
    }
};
struct exp : each_by_powers<exp> {
    template <class Real> static Real exponent(Real x, Real) { return x; }
    template <class Real> static Real of(Real power) { return power; }
};
// XGBoost's for accelerated failure time: exp in double, whatever the type of the scores.
struct double_exp : each<double_exp> {
    template <class Real> static Real of(Real x, Real) { return static_cast<Real>(std::exp(static_cast<double>(x))); }
};
// Exponents whose power is below the smallest normal number: CatBoost gives that number where it computes four at once, else 0.
template <class Real> Real above_least(Real x) { return x <= kMinTableExponent ? -std::numeric_limits<Real>::infinity() : x; }

struct table_exp : each_by_powers<table_exp> {
    template <class Real> static Real exponent(Real x, Real) { return above_least(x); }
    template <class Real> static void powers(int64_t n, Real* out) { table_exponentials(out, n, out); }
    template <class Real> static Real of(Real power) { return power; }
};
struct exp2 : each<exp2> {
    template <class Real> static Real of(Real x, Real scale) { return std::exp2(scale * x); }
};
struct isolation : each<isolation> {
    template <class Real> static Real of(Real x, Real scale) { return -std::exp2(-scale * x); }
};
struct log1p_exp : each<log1p_exp> {
    template <class Real> static Real of(Real x, Real) { return std::log1p(std::exp(x)); }
};
struct sqrt_signed : each<sqrt_signed> {
    template <class Real> static Real of(Real x, Real) {
        const Real sign = x > 0 ? Real(1) : x < 0 ? Real(-1) : x == 0 ? Real(0) : x;
        return sign * x * x;
    }
};
struct hinge : each<hinge> {
    template <class Real> static Real of(Real x, Real) { return x > 0 ? Real(1) : Real(0); }
};

struct mean_variance : at_once {  // CatBoost's
    template <class Real> static void apply(const Raw<Real>& raw, Real, Real* out) {
        for (int k = 0; k < raw.n; k++) out[k] = raw[k];
        if (raw.n <= 1) return;
        out[1] = above_least(2 * out[1]);
        table_exponentials(out + 1, 1, out + 1);
    }
};

// XGBoost's for several quantiles: sorted, so that they do not cross.
struct ascending : at_once {
    template <class Real> static void apply(const Raw<Real>& raw, Real, Real* out) {
        for (int k = 0; k < raw.n; k++) {
            const Real x = raw[k];
            int at = k;
            for (; at > 0 && out[at - 1] > x; at--) out[at] = out[at - 1];
            out[at] = x;
        }
    }
};

// XGBoost's for several expectiles: each score after the first says how far its expectile lies above the one before.
struct expectiles : at_once {
    template <class Real> static void apply(const Raw<Real>& raw, Real, Real* out) {
        Real last = out[0] = raw[0];
        for (int k = 1; k < raw.n; k++) {
            const Real x = raw[k], softplus = x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
            out[k] = last += Real(1e-6f) + softplus;
        }
    }
};

struct softmax : softmax_by_powers<false> {};
// Treelite's: exponentials are rounded to float32, as is their sum.
struct rounded_softmax : at_once {
    template <class Real> static void apply(const Raw<Real>& raw, Real, Real* out) {
        const float top = static_cast<float>(raw[raw.largest()]);
        double total = 0;
        for (int k = 0; k < raw.n; k++) total += out[k] = static_cast<float>(std::exp(raw[k] - top));
        for (int k = 0; k < raw.n; k++) out[k] /= static_cast<float>(total);
    }
};
struct table_softmax : softmax_by_powers<true> {  // CatBoost's
    template <class Real> static void exponents(int64_t n_documents, int n, Real scale, Real* out) {
        softmax_by_powers<true>::exponents(n_documents, n, scale, out);
        const int at_once = n / 4 * 4;
        for (Real* const end = out + n_documents * n; out < end; out += n) {
            for (int k = 0; k < at_once; k++) out[k] = std::max(out[k], static_cast<Real>(kMinTableExponent));
            for (int k = at_once; k < n; k++) out[k] = above_least(out[k]);
        }
    }
    template <class Real> static void powers(int64_t n, Real* out) { table_exponentials(out, n, out); }
};
struct narrow_softmax : at_once {  // onnxruntime's
    template <class Real> static void apply(const Raw<Real>& raw, Real, Real* out) {
        const float top = static_cast<float>(raw[raw.largest()]);
        float total = 0;
        for (int k = 0; k < raw.n; k++) total += out[k] = std::exp(static_cast<float>(raw[k]) - top);
        for (int k = 0; k < raw.n; k++) out[k] = static_cast<float>(out[k]) / total;
    }
};

struct argmax : at_once {
    template <class Real> static void apply(const Raw<Real>& raw, Real, Real* out) { *out = static_cast<Real>(raw.largest()); }
};

template <class Kernel, class Real> void run(const Finish& of, const void* sums, int64_t first, int64_t end, int width, void* out) {
    const Real divisor = static_cast<Real>(of.divisor), scale = static_cast<Real>(of.scale);
    // If the link treats scores independently, all are processed as one document's.
    const int n = Kernel::is_of_each && !of.last ? static_cast<int>((end - first) * of.n_outputs) : of.n_outputs;
    const int64_t n_documents = n == of.n_outputs ? end - first : 1;
    const Real* const from = static_cast<const Real*>(sums) + first * of.n_outputs;
    Real* const to = static_cast<Real*>(out) + first * width;
    const auto raw = [&](int64_t d) { return Raw<Real>{from + d * n, of.last, divisor, n}; };
    if constexpr (Kernel::takes_powers) {
        for (int64_t d = 0; d < n_documents; d++) identity::apply(raw(d), scale, to + d * n);
        Kernel::exponents(n_documents, n, scale, to);
        Kernel::powers(n_documents * n, to);
        Kernel::finish(n_documents, n, to);
    } else {
        for (int64_t d = 0; d < n_documents; d++) Kernel::apply(raw(d), scale, to + d * (width == of.n_outputs ? n : width));
    }
}

template <class Real> void score(const Finish& of, const void* sums, int64_t first, int64_t end, void* out) {
    const int n = of.n_outputs;
    const double step = of.step, *const base = of.base;
    const char* from = static_cast<const char*>(sums) + first * n * sizeof(int64_t);
    char* to = static_cast<char*>(out) + first * n * sizeof(Real);  // may be the same memory as from
    for (int64_t d = first; d < end; d++)
        for (int k = 0; k < n; k++, from += sizeof(int64_t), to += sizeof(Real)) {
            int64_t fixed;
            std::memcpy(&fixed, from, sizeof fixed);
            const Real score = static_cast<Real>(static_cast<double>(fixed) * step + base[k]);
            std::memcpy(to, &score, sizeof score);
        }
}

}  // namespace

struct Link {
    const char* name;
    void (*floats)(const Finish&, const void*, int64_t, int64_t, int, void*);
    void (*doubles)(const Finish&, const void*, int64_t, int64_t, int, void*);
};

#define LINK(name) {#name, run<name, float>, run<name, double>}
constexpr Link kLinks[] = {
    LINK(identity),        LINK(sigmoid),          {"ova_sigmoid", run<sigmoid, float>, run<sigmoid, double>},
    LINK(clamped_sigmoid), LINK(mirrored_sigmoid), LINK(softmax_beside_zero),
    LINK(softmax),         LINK(rounded_softmax),  LINK(narrow_softmax),
    LINK(table_softmax),   LINK(argmax),           LINK(exp),
    LINK(double_exp),      LINK(table_exp),        LINK(exp2),
    LINK(log1p_exp),       LINK(sqrt_signed),      LINK(hinge),
    LINK(mean_variance),   LINK(isolation),        LINK(ascending),
    LINK(expectiles),
};
#undef LINK

const Link* find_link(const char* name) {
    for (const Link& link : kLinks)
        if (!std::strcmp(link.name, name)) return &link;
    return nullptr;
}

bool gives_one(const Link* link) { return link->floats == &run<argmax, float>; }

void finish(const Finish& of, const void* sums, int64_t n, void* out, int n_threads) {
    const auto apply = of.is_double ? of.link->doubles : of.link->floats;
    const auto score_fixed = of.is_double ? score<double> : score<float>;
    const bool scores_alone = of.step != 0 && of.link->floats == &run<identity, float> && of.divisor == 1;
    const int width = gives_one(of.link) ? 1 : of.n_outputs;
    const auto finish_piece = [&](int64_t first, int64_t end) {
        if (of.step != 0) score_fixed(of, sums, first, end, out);
        if (!scores_alone) apply(of, of.step != 0 ? out : sums, first, end, width, out);
    };
    const int64_t size = std::max<int64_t>(kValuesOfPiece / std::max(of.n_outputs, 1), 1), pieces = (n + size - 1) / size;
    if (n_threads == 1 || pieces < 2) {
        for (int64_t p = 0; p < pieces; p++) finish_piece(p * size, std::min(n, (p + 1) * size));
    } else {
        share_out(pieces, n_threads, [&](int, int64_t p) { finish_piece(p * size, std::min(n, (p + 1) * size)); });
    }
}

}  // namespace gpuqs
