// CatBoost's exponentials: from a table of powers of two and a cubic polynomial.
//
//   x = (k / 2048) ln 2 - t, k an integer:  exp(x) = 2^(k / 2048) (1 - t + t^2 / 2 - t^3 / 6), the last two terms approximately
//
// Included twice, each in its own namespace: compiled for any processor, and for AVX2. Neither uses fused multiply-add, as CatBoost
// does not.
constexpr int kTableBits = 11, kTablePowers = 1 << kTableBits;

// mantissas: those of 2^(i / kTablePowers).
bool by_table(const uint64_t* mantissas, const double* x, int64_t n, double* __restrict out) {
    constexpr double ln2 = 0x1.62e42fefa39efp-1;
    constexpr double round = 0x1.8p52;  // adding it rounds a number to an integer, in the lowest bits
    int64_t n_fit = 0;
    for (int64_t i = 0; i < n; i++) {
        n_fit += (x[i] >= kMinTableExponent) & (x[i] < kMaxTableExponent);
        const double moved = x[i] * (kTablePowers / ln2) + round;
        uint64_t bits;
        std::memcpy(&bits, &moved, sizeof bits);
        const double t = (moved - round) * (ln2 / kTablePowers) - x[i];
        const double sum = (3.0000000027955394 - t) * (t * t) * 0.16666666685227835 - t + 1;
        bits = ((bits + (uint64_t{1023} << kTableBits)) >> kTableBits) << 52 | mantissas[bits & (kTablePowers - 1)];
        double power;
        std::memcpy(&power, &bits, sizeof power);
        out[i] = sum * power;
    }
    return n_fit == n;
}
