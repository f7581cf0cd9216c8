// Sums: of all values, of what a scalar is counted from, of columns. Always added in the same order.

// X is the type of what is summed, Y that of the sums.

#define MAX_THREADS 256

// out[block] = a part of the sum of x[i]^2, i < n; `total` adds up the parts.
extern "C" __global__ void squares(const X* x, Y* out, long long n) {
    double sum = 0;
    for (long long i = THREAD; i < n; i += N_THREADS) sum += (double)x[i] * (double)x[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

// The same of x[i].
extern "C" __global__ void values(const X* x, Y* out, long long n) {
    double sum = 0;
    for (long long i = THREAD; i < n; i += N_THREADS) sum += (double)x[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

// The same of how many x[i] are infinite, or no numbers.
extern "C" __global__ void unusual(const X* x, Y* out, long long n) {
    double sum = 0;
    for (long long i = THREAD; i < n; i += N_THREADS) sum += (double)x[i] - (double)x[i] != 0;
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

// One block.
extern "C" __global__ void total(const X* x, Y* out, int n) {
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += (double)x[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[0] = sum;
}

// out[s, c] = the sum of column c of x over every n_splits-th stretch of rows; with one split, added to what is there
// if `accumulate`. A block is for 32 columns and a split; its warps take rows in turn.
extern "C" __global__ void columns(
    const X* x, long long row, long long column, Y* out, long long n_rows, int n_columns, int accumulate
) {
    typedef wide<X>::type W;
    __shared__ W sums[MAX_THREADS];
    const int c = blockIdx.x * WARP + threadIdx.x % WARP, n_warps = blockDim.x / WARP;
    const long long first = (long long)blockIdx.y * n_warps + threadIdx.x / WARP;
    W sum = 0;
    if (c < n_columns)
        for (long long r = first; r < n_rows; r += (long long)gridDim.y * n_warps) sum += (W)x[r * row + c * column];
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x >= WARP || c >= n_columns) return;
    for (int k = 1; k < n_warps; ++k) sum += sums[k * WARP + threadIdx.x];
    Y* target = out + (long long)blockIdx.y * n_columns + c;
    *target = accumulate ? (Y)(sum + (W)*target) : (Y)sum;
}

// out (N, C) = the mean over the pixels of images that lie dense as (N, P, C). A block is for 32 channels of an image;
// its warps take pixels in turn.
extern "C" __global__ void pixel_means(
    const X* x, Y* out, long long out_row, long long out_column, long long pixels, int channels
) {
    typedef wide<X>::type W;
    __shared__ W sums[MAX_THREADS];
    const int c = blockIdx.x * WARP + threadIdx.x % WARP, n_warps = blockDim.x / WARP;
    W sum = 0;
    if (c < channels)
        for (long long p = threadIdx.x / WARP; p < pixels; p += n_warps)
            sum += (W)x[(blockIdx.y * pixels + p) * channels + c];
    sums[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x >= WARP || c >= channels) return;
    for (int k = 1; k < n_warps; ++k) sum += sums[k * WARP + threadIdx.x];
    out[blockIdx.y * out_row + c * out_column] = (Y)(sum / (W)pixels);
}
