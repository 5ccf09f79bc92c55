#include "driver/links.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "driver/float_mode.hpp"
#include "driver/threads.hpp"

namespace gpuqs {
namespace {

constexpr int kBits = 11, kPowers = 1 << kBits;

// Of 2^(i / kPowers). Made as the module is loaded: what a function makes when it is first called, a child that was forked
// meanwhile would wait for, for ever.
const std::array<uint64_t, kPowers> kMantissas = [] {
    const DefaultFloatMode mode;
    mode.hold();
    std::array<uint64_t, kPowers> of{};
    for (int i = 0; i < kPowers; i++) {
        const double power = std::pow(2.0, static_cast<double>(i) / kPowers);
        std::memcpy(&of[i], &power, sizeof power);
        of[i] &= (uint64_t{1} << 52) - 1;
    }
    return of;
}();

// CatBoost's exponential: a table of powers of two, and a polynomial of the third degree. It looks four up at once, and takes what
// is too small for the smallest normal number there, where it takes others for 0.
class TableExp {
public:
    static double of(double x) { return x <= kLeast ? 0 : at(x); }
    static double of_four(double x) { return at(std::max(x, kLeast)); }

private:
    static constexpr double kLeast = -708.39641853226408, kMost = 709.78271289338397, kLn2 = 0x1.62e42fefa39efp-1;

    static double at(double x) {
        if (!(x < kMost)) return x > 0 ? std::numeric_limits<double>::infinity() : x;
        constexpr double round = 0x1.8p52;  // what is added to it is rounded to a whole number, in the lowest bits
        const double moved = x * (kPowers / kLn2) + round;
        uint64_t bits;
        std::memcpy(&bits, &moved, sizeof bits);
        const double t = (moved - round) * (kLn2 / kPowers) - x;
        const double sum = (3.0000000027955394 - t) * (t * t) * 0.16666666685227835 - t + 1;
        bits = ((bits + (uint64_t{1023} << kBits)) >> kBits) << 52 | kMantissas[bits & (kPowers - 1)];
        double power;
        std::memcpy(&power, &bits, sizeof power);
        return sum * power;
    }
};

constexpr int64_t kValuesOfPiece = 4096;  // a thread takes so many at a time: some ten microseconds

// The raw scores of one document.
template <class Real> struct Raw {
    const Real* sums;
    const double* last;
    Real divisor;
    int n;

    Real operator[](int k) const { return (last ? static_cast<Real>(sums[k] + last[k]) : sums[k]) / divisor; }
    // The first of the largest scores; the first NaN, where there is one.
    int largest() const {
        int best = 0;
        for (int k = 1; k < n && !std::isnan((*this)[best]); k++)
            if (!((*this)[k] <= (*this)[best])) best = k;
        return best;
    }
};

// A link that turns each score into a value: Each::of.
template <class Each> struct each {
    template <class Real> static void apply(const Raw<Real>& raw, Real scale, Real* out) {
        for (int k = 0; k < raw.n; k++) out[k] = Each::of(raw[k], scale);
    }
};

struct identity : each<identity> {
    template <class Real> static Real of(Real x, Real) { return x; }
};
struct sigmoid : each<sigmoid> {
    template <class Real> static Real of(Real x, Real scale) { return 1 / (1 + std::exp(-scale * x)); }
};
// XGBoost's: exponentials stay finite.
struct clamped_sigmoid : each<clamped_sigmoid> {
    template <class Real> static Real of(Real x, Real scale) { return 1 / (1 + std::exp(std::min(-scale * x, Real(88.7f)))); }
};
// onnxruntime's are of float32, whatever the scores. This one is of the magnitude, and mirrored.
struct mirrored_sigmoid : each<mirrored_sigmoid> {
    static float of(float x, float) {
        const float of_magnitude = 1 / (1 + std::exp(-std::fabs(x)));
        return x < 0 ? 1 - of_magnitude : of_magnitude;
    }
};
// onnxruntime's, of a score whose other class has 0: the softmax of both.
struct softmax_beside_zero : each<softmax_beside_zero> {
    static float of(float x, float) {
        const float top = x > 0 ? x : 0, other = std::exp(-top), mine = std::exp(x - top);
        return mine / (other + mine);
    }
};
struct exp : each<exp> {
    template <class Real> static Real of(Real x, Real) { return std::exp(x); }
};
// Of XGBoost's accelerated failure time: exp in double, whatever the type of the scores.
struct double_exp : each<double_exp> {
    template <class Real> static Real of(Real x, Real) { return static_cast<Real>(std::exp(static_cast<double>(x))); }
};
struct table_exp : each<table_exp> {
    template <class Real> static Real of(Real x, Real) { return static_cast<Real>(TableExp::of(x)); }
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

struct mean_variance {  // CatBoost's
    template <class Real> static void apply(const Raw<Real>& raw, Real, Real* out) {
        for (int k = 0; k < raw.n; k++) out[k] = raw[k];
        if (raw.n > 1) out[1] = static_cast<Real>(TableExp::of(2 * out[1]));
    }
};

// XGBoost's of several quantiles: sorted, so that they do not cross.
struct ascending {
    template <class Real> static void apply(const Raw<Real>& raw, Real, Real* out) {
        for (int k = 0; k < raw.n; k++) {
            const Real x = raw[k];
            int at = k;
            for (; at > 0 && out[at - 1] > x; at--) out[at] = out[at - 1];
            out[at] = x;
        }
    }
};

// XGBoost's of several expectiles: each score but the first says how far above the one before it an expectile lies.
struct expectiles {
    template <class Real> static void apply(const Raw<Real>& raw, Real, Real* out) {
        Real last = out[0] = raw[0];
        for (int k = 1; k < raw.n; k++) {
            const Real x = raw[k], softplus = x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
            out[k] = last += Real(1e-6f) + softplus;
        }
    }
};

// Of numbers of type Own, which Total adds up: most libraries have a double for that, whatever the type of the values.
template <class Own, class Total, class Real> void softmax_in(const Raw<Real>& raw, Real* out) {
    const Own top = static_cast<Own>(raw[raw.largest()]);
    Total total = 0;
    for (int k = 0; k < raw.n; k++) total += out[k] = std::exp(static_cast<Own>(raw[k]) - top);
    for (int k = 0; k < raw.n; k++) out[k] = static_cast<Own>(out[k]) / static_cast<Own>(total);
}
struct softmax {
    template <class Real> static void apply(const Raw<Real>& raw, Real, Real* out) { softmax_in<Real, double>(raw, out); }
};
// Treelite's: exponentials are rounded to float32, as is their sum.
struct rounded_softmax {
    template <class Real> static void apply(const Raw<Real>& raw, Real, Real* out) {
        const float top = static_cast<float>(raw[raw.largest()]);
        double total = 0;
        for (int k = 0; k < raw.n; k++) total += out[k] = static_cast<float>(std::exp(raw[k] - top));
        for (int k = 0; k < raw.n; k++) out[k] /= static_cast<float>(total);
    }
};
struct table_softmax {  // CatBoost's
    template <class Real> static void apply(const Raw<Real>& raw, Real, Real* out) {
        const Real top = raw[raw.largest()];
        double total = 0;
        for (int k = 0; k < raw.n; k++) {
            const bool one_of_four = k < raw.n / 4 * 4;
            const double x = raw[k] - top;
            total += out[k] = static_cast<Real>(one_of_four ? TableExp::of_four(x) : TableExp::of(x));
        }
        for (int k = 0; k < raw.n; k++) out[k] = static_cast<Real>(out[k] / total);
    }
};
struct narrow_softmax {  // onnxruntime's
    template <class Real> static void apply(const Raw<Real>& raw, Real, Real* out) { softmax_in<float, float>(raw, out); }
};

struct argmax {
    template <class Real> static void apply(const Raw<Real>& raw, Real, Real* out) { *out = static_cast<Real>(raw.largest()); }
};

template <class Kernel, class Real> void run(const Finish& of, const void* sums, int64_t first, int64_t end, int width, void* out) {
    const Real divisor = static_cast<Real>(of.divisor), scale = static_cast<Real>(of.scale);
    for (int64_t d = first; d < end; d++) {
        const Raw<Real> raw{static_cast<const Real*>(sums) + d * of.n_outputs, of.last, divisor, of.n_outputs};
        Kernel::apply(raw, scale, static_cast<Real*>(out) + d * width);
    }
}

template <class Real> void score(const Finish& of, const void* sums, int64_t first, int64_t end, void* out) {
    const int64_t* const fixed = static_cast<const int64_t*>(sums);
    Real* const to = static_cast<Real*>(out);
    const int n = of.n_outputs;
    const double step = of.step;  // not to be read again after each store
    for (int k = 0; k < n; k++) {
        const double base = of.base[k];
        for (int64_t i = first * n + k; i < end * n; i += n) to[i] = static_cast<Real>(static_cast<double>(fixed[i]) * step + base);
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
