// Sums: of all values, of what a scalar is counted from, of pixels. Always added in the same order.

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
