// Normalisation of groups of channels of an image (N, P, C), with P pixels, or of rows: one pixel and one group.
// Images lie dense in memory; mean and var are (N, G).
// Value: type of the values. Param: type of what is of channels, and of mean and var.

typedef wide<Value>::type Sum;

#define MAX_THREADS 512

// Call `use(i, channel)` for the values of the group of this block that are this thread's.
template <class Use>
static __device__ void for_group(long long pixels, int channels, int groups, Use use) {
    const int width = channels / groups, first = (int)(blockIdx.x % groups) * width;
    const long long start = blockIdx.x / groups * pixels * channels, values = pixels * width;
    for (long long k = threadIdx.x; k < values; k += blockDim.x) {
        const int channel = first + (int)(k % width);
        use(start + k / width * channels + channel, channel);
    }
}

extern "C" __global__ void group_norm(
    const Value* x, const Param* scale, const Param* shift, Param* mean, Param* var, Value* y,
    long long pixels, int channels, int groups, double eps
) {
    const Sum values = (Sum)(pixels * (channels / groups));
    Sum sum = 0, squares = 0;
    for_group(pixels, channels, groups, [&](long long i, int) { sum += (Sum)x[i]; });
    const Sum middle = block_sum(sum) / values;
    for_group(pixels, channels, groups, [&](long long i, int) {
        const Sum off = (Sum)x[i] - middle;
        squares += off * off;
    });
    const Sum spread = block_sum(squares) / values, width = (Sum)(1 / sqrt((double)spread + eps));
    if (threadIdx.x == 0) {
        mean[blockIdx.x] = (Param)middle;
        var[blockIdx.x] = (Param)spread;
    }
    for_group(pixels, channels, groups, [&](long long i, int c) {
        y[i] = (Value)(((Sum)x[i] - middle) * width * (Sum)scale[c] + (Sum)shift[c]);
    });
}

extern "C" __global__ void group_norm_grad(
    const Value* x, const Value* gy, const Param* scale, const Param* mean, const Param* var, Value* gx,
    long long pixels, int channels, int groups, double eps
) {
    const Sum values = (Sum)(pixels * (channels / groups)), middle = (Sum)mean[blockIdx.x];
    const Sum width = (Sum)(1 / sqrt((double)var[blockIdx.x] + eps));
    Sum a = 0, b = 0;
    for_group(pixels, channels, groups, [&](long long i, int c) {
        const Sum g = (Sum)gy[i] * (Sum)scale[c];
        a += g;
        b += g * ((Sum)x[i] - middle) * width;
    });
    a = block_sum(a) / values;
    b = block_sum(b) / values;
    for_group(pixels, channels, groups, [&](long long i, int c) {
        const Sum normal = ((Sum)x[i] - middle) * width;
        gx[i] = (Value)(((Sum)gy[i] * (Sum)scale[c] - a - normal * b) * width);
    });
}

// parts (2, gridDim.y, channels): sums of gy (x - mean) / sqrt(var + eps), and of gy, over every gridDim.y-th stretch of
// rows. A block is for 32 channels; its warps take rows in turn.
extern "C" __global__ void param_parts(
    const Value* x, const Value* gy, const Param* mean, const Param* var, double* parts,
    long long pixels, int channels, int groups, long long rows, double eps
) {
    __shared__ double firsts[MAX_THREADS], seconds[MAX_THREADS];
    const int c = blockIdx.x * WARP + threadIdx.x % WARP, n_warps = blockDim.x / WARP;
    double a = 0, b = 0;
    if (c < channels) {
        const int of_row = c / (channels / groups);
        long long r = (long long)blockIdx.y * n_warps + threadIdx.x / WARP;
        for (; r < rows; r += (long long)gridDim.y * n_warps) {
            const long long group = r / pixels * groups + of_row;
            const Sum g = (Sum)gy[r * channels + c], width = (Sum)(1 / sqrt((double)var[group] + eps));
            a += g * ((Sum)x[r * channels + c] - (Sum)mean[group]) * width;
            b += g;
        }
    }
    firsts[threadIdx.x] = a;
    seconds[threadIdx.x] = b;
    __syncthreads();
    if (threadIdx.x >= WARP || c >= channels) return;
    for (int k = 1; k < n_warps; ++k) {
        a += firsts[k * WARP + threadIdx.x];
        b += seconds[k * WARP + threadIdx.x];
    }
    parts[(long long)blockIdx.y * channels + c] = a;
    parts[((long long)gridDim.y + blockIdx.y) * channels + c] = b;
}
