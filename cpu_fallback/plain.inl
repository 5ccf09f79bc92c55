// For instruction sets without wide shuffles: rows are taken one value at a time.
static constexpr int kTile = 1;

static inline void transpose_tile(const char* row, int64_t, float* x, int) { *x = *reinterpret_cast<const float*>(row); }
