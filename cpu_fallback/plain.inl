// For instruction sets without wide shuffles.
#include "no_tables.inl"

static constexpr int kTile = 1;

static inline void transpose_tile(const char* row, int64_t, float* x, int) { *x = *reinterpret_cast<const float*>(row); }
