// The table of one instruction set; included last, inside its namespace.
static constexpr Kernels table(const char* isa) {
    return {isa,        load<float>, load<double>, add_values,   qs<float>,    qs<double>, Lanes::n, vqs<float>,
            vqs<double>, walk<float>, walk<double>, sizeof(Word), rank,         predicates, programs};
}
