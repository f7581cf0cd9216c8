// Sums: of all values, of pixels, and sums from which metrics are computed. Values are always added in the same order.

// X is the type of the values, Y the type of the sums.

#define MAX_THREADS 256

// out[block] = a part of the sum of x[i]^2 for i < n; `total` adds the parts.
extern "C" __global__ void squares(const X* x, Y* out, long long n) {
    double sum = 0;
    for (long long i = THREAD; i < n; i += N_THREADS) sum += (double)x[i] * (double)x[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

// The same for the sum of x[i].
extern "C" __global__ void values(const X* x, Y* out, long long n) {
    double sum = 0;
    for (long long i = THREAD; i < n; i += N_THREADS) sum += (double)x[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

// The same for the number of x[i] that are infinite or NaN.
extern "C" __global__ void unusual(const X* x, Y* out, long long n) {
    double sum = 0;
    for (long long i = THREAD; i < n; i += N_THREADS) sum += (double)x[i] - (double)x[i] != 0;
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

// Add all parts, in one block.
extern "C" __global__ void total(const X* x, Y* out, int n) {
    double sum = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) sum += (double)x[i];
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[0] = sum;
}

// out (N, C) = the mean over the pixels of images that are dense in memory as (N, P, C). A block computes 32 channels
// of an image, and divides the pixels among its warps.
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
