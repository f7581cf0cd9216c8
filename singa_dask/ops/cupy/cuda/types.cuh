// Inserted before each source: a 16-bit float, the type in which kernels compute, and functions of warps and blocks.
// Plain CUDA C++, without headers.

struct bfloat16 {
    unsigned short bits;

    __device__ bfloat16() {}
    __device__ bfloat16(float value) {
        union { float number; unsigned int word; } of;
        of.number = value;
        // round to nearest, ties to even; NaN stays NaN
        bits = value != value ? 0x7fc0 : (unsigned short)((of.word + 0x7fff + ((of.word >> 16) & 1)) >> 16);
    }
    __device__ operator float() const {
        union { unsigned int word; float number; } of;
        of.word = (unsigned int)bits << 16;
        return of.number;
    }
};

// wide<T>::type is the type in which kernels compute: double for double, else float.
template <typename T> struct wide { typedef float type; };
template <> struct wide<double> { typedef double type; };

// The index of a thread in a one-dimensional grid, and the number of threads.
#define THREAD ((long long)blockIdx.x * blockDim.x + threadIdx.x)
#define N_THREADS ((long long)gridDim.x * blockDim.x)
#define WARP 32

// n / d by a product and a shift, for `by` from `divisor` in launch.py and 0 <= n < 2^31. 64-bit integers are divided.
template <typename I> __device__ I quotient(I n, int d, unsigned long long by) {
    return sizeof(I) > 4 ? n / d : (I)((unsigned long long)(unsigned int)n * (by >> 8) >> (by & 255));
}

// The sum over the threads of a block, returned in all of them, always added in the same order. A block must be whole
// warps.
template <typename V> __device__ V block_sum(V value) {
    __shared__ V parts[WARP];
    for (int step = WARP / 2; step; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    const int n_warps = blockDim.x / WARP;
    if (n_warps == 1) return value;
    __syncthreads();  // wait until the previous sum has been read
    if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = value;
    __syncthreads();
    value = parts[0];
    for (int k = 1; k < n_warps; ++k) value += parts[k];
    return value;
}

// The largest value of the threads of a block, returned in all of them. NaN is ignored.
template <typename V> __device__ V block_max(V value) {
    __shared__ V parts[WARP];
    for (int step = WARP / 2; step; step /= 2) {
        const V other = __shfl_xor_sync(0xffffffffu, value, step);
        value = other > value || value != value ? other : value;
    }
    const int n_warps = blockDim.x / WARP;
    if (n_warps == 1) return value;
    __syncthreads();
    if (threadIdx.x % WARP == 0) parts[threadIdx.x / WARP] = value;
    __syncthreads();
    value = parts[0];
    for (int k = 1; k < n_warps; ++k) value = parts[k] > value || value != value ? parts[k] : value;
    return value;
}

// Whether this block is the last of n_blocks to arrive here; all of its threads return the same. It can then read what
// the other blocks have written, by __ldcg. The counter is 0 before and after the launch; is_last is in shared memory.
inline __device__ bool is_last_block(unsigned* counter, unsigned n_blocks, bool& is_last) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0) is_last = atomicInc(counter, n_blocks - 1) == n_blocks - 1;
    __syncthreads();
    __threadfence();
    return is_last;
}
