// Kernels with one bug each (and sound ones), to see that the emulation finds what it claims to find.
// Launch: 2 blocks of 64 threads, 64 ints of dynamic shared memory, 128 ints of output, n = 1.
#ifndef DYNAMIC_SHARED
#define DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
#endif

__device__ int* slot(int* out) { return out + blockIdx.x * blockDim.x + threadIdx.x; }

__global__ void sound_neighbour(int* out, int n) {
    DYNAMIC_SHARED(shared);
    int* s = reinterpret_cast<int*>(shared);
    s[threadIdx.x] = threadIdx.x * n;
    __syncthreads();
    *slot(out) = s[(threadIdx.x + 1) % blockDim.x];
}

__global__ void sound_masks(int* out, int n) {
    DYNAMIC_SHARED(shared);
    unsigned* s = reinterpret_cast<unsigned*>(shared);
    if (threadIdx.x < 2) s[threadIdx.x] = ~0u;
    __syncthreads();
    atomicAnd(s + threadIdx.x % 2, ~(n * 1u << threadIdx.x / 2));
    __syncthreads();
    *slot(out) = static_cast<int>(s[threadIdx.x % 2]);
}

__global__ void sound_sum(int* out, int n) {
    int v = threadIdx.x * n;
    for (int offset = 1; offset < 32; offset <<= 1) v += __shfl_down_sync(0xffffffffu, v, offset);
    if (threadIdx.x % 32 == 0) *slot(out) = v;
}

__global__ void missing_barrier(int* out, int n) {
    DYNAMIC_SHARED(shared);
    int* s = reinterpret_cast<int*>(shared);
    s[threadIdx.x] = threadIdx.x * n;
    *slot(out) = s[(threadIdx.x + 1) % blockDim.x];
}

__global__ void missing_second_barrier(int* out, int n) {
    DYNAMIC_SHARED(shared);
    int* s = reinterpret_cast<int*>(shared);
    int sum = 0;
    for (int k = 0; k < 3; ++k) {
        s[threadIdx.x] = k * n;
        __syncthreads();
        sum += s[(threadIdx.x + 33) % blockDim.x];
    }
    *slot(out) = sum;
}

__global__ void plain_and(int* out, int n) {
    DYNAMIC_SHARED(shared);
    unsigned* s = reinterpret_cast<unsigned*>(shared);
    if (threadIdx.x < 2) s[threadIdx.x] = ~0u;
    __syncthreads();
    s[threadIdx.x % 2] &= ~(n * 1u << threadIdx.x / 2);
    __syncthreads();
    *slot(out) = static_cast<int>(s[threadIdx.x % 2]);
}

__global__ void missing_warp_barrier(int* out, int n) {
    DYNAMIC_SHARED(shared);
    int* s = reinterpret_cast<int*>(shared);
    s[threadIdx.x] = n;
    *slot(out) = s[threadIdx.x ^ 1];
}

__global__ void blocks_share_a_word(int* out, int n) {
    if (threadIdx.x == 0) out[0] += n;
}

__global__ void divergent_barrier(int* out, int n) {
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        *slot(out) = n;
        __syncthreads();
    }
}

__global__ void barrier_after_exit(int* out, int n) {
    if (threadIdx.x >= 40) return;
    __syncthreads();
    *slot(out) = n;
}

__global__ void barrier_against_shuffle(int* out, int n) {
    if (threadIdx.x % 32 == 0)
        __syncthreads();
    else
        *slot(out) = __shfl_down_sync(0xffffffffu, n, 1);
}

__global__ void shuffle_names_exited_lanes(int* out, int n) {
    if (threadIdx.x >= 40) return;
    *slot(out) = __shfl_down_sync(0xffffffffu, n, 1);
}

__global__ void shuffle_outside_its_mask(int* out, int n) { *slot(out) = __shfl_down_sync(0x0000ffffu, n, 1); }

__global__ void uninitialised_shared(int* out, int n) {
    DYNAMIC_SHARED(shared);
    int* s = reinterpret_cast<int*>(shared);
    if (threadIdx.x & 1) s[threadIdx.x] = n;
    __syncthreads();
    *slot(out) = s[threadIdx.x];
}

__global__ void shared_write_out_of_bounds(int* out, int n) {
    DYNAMIC_SHARED(shared);
    int* s = reinterpret_cast<int*>(shared);
    s[threadIdx.x + n] = n;
    __syncthreads();
    *slot(out) = n;
}

__global__ void shared_read_out_of_bounds(int* out, int n) {
    DYNAMIC_SHARED(shared);
    int* s = reinterpret_cast<int*>(shared);
    s[threadIdx.x] = n;
    __syncthreads();
    *slot(out) = s[threadIdx.x + n];
}

__global__ void global_read_out_of_bounds(int* out, int n) {
    const int value = slot(out)[n];
    *slot(out) = value;
}

__global__ void misaligned(int* out, int n) {
    DYNAMIC_SHARED(shared);
    if (threadIdx.x == 0) *reinterpret_cast<long long*>(shared + 4 * n) = n;
    __syncthreads();
    *slot(out) = n;
}

__global__ void shift_too_far(int* out, int n) { *slot(out) = static_cast<int>(1u << (threadIdx.x + n)); }
