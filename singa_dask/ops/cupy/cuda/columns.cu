// Sums of the columns of a matrix, in one launch. Values are always added in the same order.
// X: type of the values. Y: type of the sums. WIDTH: number of neighbouring columns that a thread sums.

typedef wide<X>::type W;

struct alignas(sizeof(X) * WIDTH) Values {
    X at[WIDTH];
};

#define MAX_THREADS 256

// Replace `sum` by the sum over all threads with the same threadIdx.x. blockDim.y must be a power of 2.
static __device__ void add_threads(W* sum, W* shared) {
    const int me = threadIdx.y * blockDim.x + threadIdx.x;
    for (int k = 0; k < WIDTH; ++k) shared[k * MAX_THREADS + me] = sum[k];
    __syncthreads();
    for (int half = blockDim.y / 2; half; half /= 2) {
        if (threadIdx.y < half)
            for (int k = 0; k < WIDTH; ++k) shared[k * MAX_THREADS + me] += shared[k * MAX_THREADS + me + half * blockDim.x];
        __syncthreads();
    }
    for (int k = 0; k < WIDTH; ++k) sum[k] = shared[k * MAX_THREADS + threadIdx.x];
}

// out[c] = the sum of column c of x, added to the earlier value if `accumulate`. A block sums blockDim.x packs of
// columns. The rows are divided among its blockDim.y lines of threads, and among the gridDim.y blocks of the same
// columns. The last of these blocks to end adds the partial sums of all of them, in order. `done` counts the blocks
// that have ended; it is 0 before and after the launch.
extern "C" __global__ void columns(
    const X* x, long long row, long long column, volatile W* parts, unsigned int* done, Y* out, long long n_rows,
    int n_columns, int accumulate
) {
    __shared__ W shared[MAX_THREADS * WIDTH];
    __shared__ bool is_last;
    const int first = (blockIdx.x * blockDim.x + threadIdx.x) * WIDTH;
    const long long step = (long long)gridDim.y * blockDim.y;
    W sum[WIDTH];
    for (int k = 0; k < WIDTH; ++k) sum[k] = 0;
    if (first < n_columns) {
        const X* start = x + first * column;
        #pragma unroll 4
        for (long long r = (long long)blockIdx.y * blockDim.y + threadIdx.y; r < n_rows; r += step) {
            const Values values = *reinterpret_cast<const Values*>(start + r * row);
            for (int k = 0; k < WIDTH; ++k) sum[k] += (W)values.at[k];
        }
    }
    add_threads(sum, shared);
    if (gridDim.y > 1) {
        if (threadIdx.y == 0 && first < n_columns)
            for (int k = 0; k < WIDTH; ++k) parts[(long long)blockIdx.y * n_columns + first + k] = sum[k];
        if (!is_last_block(done + blockIdx.x, gridDim.y, is_last)) return;
        for (int k = 0; k < WIDTH; ++k) sum[k] = 0;
        if (first < n_columns)
            for (long long part = threadIdx.y; part < gridDim.y; part += blockDim.y)
                for (int k = 0; k < WIDTH; ++k) sum[k] += parts[part * n_columns + first + k];
        add_threads(sum, shared);
    }
    if (threadIdx.y > 0 || first >= n_columns) return;
    for (int k = 0; k < WIDTH; ++k) out[first + k] = accumulate ? (Y)(sum[k] + (W)out[first + k]) : (Y)sum[k];
}
