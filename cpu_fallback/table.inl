// The table of one instruction set; included last, inside its namespace.
#if defined(__AVX512VL__)
static constexpr Encoding kEncoding = Encoding::evex;
#elif defined(__AVX2__)
static constexpr Encoding kEncoding = Encoding::vex;
#else
static constexpr Encoding kEncoding = Encoding::none;
#endif

template <class Word, int... n_bits> static constexpr BitsliceKernels width(std::integer_sequence<int, n_bits...>) {
    return {sizeof(Word), predicates<Word>, programs<Word>, kEncoding,
            {{spread_planes<Word, uint8_t, n_bits>...}, {spread_planes<Word, uint16_t, n_bits>...}}};
}
template <class Word> static constexpr BitsliceKernels width() { return width<Word>(std::make_integer_sequence<int, kPlanes + 1>()); }

static constexpr Kernels table(const char* isa) {
    Kernels t = {isa,
                 load<float>, load<double>, load_rows<float>, load_rows<double>,
                 add_values, table_word, sum_place,
                 qs<float>, qs<double>, Lanes::n, vqs<float>, vqs<double>,
                 walk<float>, walk<double>, rank_codes<float>, rank_codes<double>, rank_walk,
                 rank, 0, {}};
    t.widths[t.n_widths++] = width<Word16>();
#ifdef __AVX2__
    t.widths[t.n_widths++] = width<Word32>();
#endif
#ifdef __AVX512F__
    t.widths[t.n_widths++] = width<Word64>();
#endif
    return t;
}
