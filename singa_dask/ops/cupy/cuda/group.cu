// Normalisation of groups of channels of images (N, P, C) with P pixels, or of rows, which have one pixel and one
// group.
// Images are dense in memory. mean and variance are (N, G).
// Value: type of the values. Param: type of mean and variance, and of params of channels.

typedef wide<Value>::type Sum;

#define MAX_THREADS 512

// Call `use(i, channel)` for each value of this block's group that this thread processes.
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
    const Value* x, const Param* scale, const Param* shift, Param* mean, Param* variance, Value* y,
    long long pixels, int channels, int groups, double epsilon
) {
    const Sum values = (Sum)(pixels * (channels / groups));
    Sum sum = 0, squares = 0;
    for_group(pixels, channels, groups, [&](long long i, int) { sum += (Sum)x[i]; });
    const Sum middle = block_sum(sum) / values;
    for_group(pixels, channels, groups, [&](long long i, int) {
        const Sum off = (Sum)x[i] - middle;
        squares += off * off;
    });
    const Sum spread = block_sum(squares) / values, width = (Sum)(1 / sqrt((double)spread + epsilon));
    if (threadIdx.x == 0) {
        mean[blockIdx.x] = (Param)middle;
        variance[blockIdx.x] = (Param)spread;
    }
    for_group(pixels, channels, groups, [&](long long i, int c) {
        y[i] = (Value)(((Sum)x[i] - middle) * width * (Sum)scale[c] + (Sum)shift[c]);
    });
}

extern "C" __global__ void group_norm_grad(
    const Value* x, const Value* gy, const Param* scale, const Param* mean, const Param* variance, Value* gx,
    long long pixels, int channels, int groups, double epsilon
) {
    const Sum values = (Sum)(pixels * (channels / groups)), middle = (Sum)mean[blockIdx.x];
    const Sum width = (Sum)(1 / sqrt((double)variance[blockIdx.x] + epsilon));
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

// Sum over the warps of a block, separately for each lane. The first warp gets the sums.
static __device__ void add_warps(double& a, double& b) {
    __shared__ double firsts[MAX_THREADS], seconds[MAX_THREADS];
    firsts[threadIdx.x] = a;
    seconds[threadIdx.x] = b;
    __syncthreads();
    for (int k = threadIdx.x + WARP; threadIdx.x < WARP && k < blockDim.x; k += WARP) {
        a += firsts[k];
        b += seconds[k];
    }
    __syncthreads();  // before the memory is written again
}

// Sums of gy (x - mean) / sqrt(variance + epsilon), and of gy, over all rows, added to the earlier values if
// `accumulate`. A block sums 32 channels over one of gridDim.y parts of the rows, which its warps divide among them.
// The last block of these channels to end adds the partial sums (2, gridDim.y, channels), always in the same order.
extern "C" __global__ void param_grads(
    const Value* x, const Value* gy, const Param* mean, const Param* variance, Param* grad_scale, Param* grad_shift,
    double* parts, unsigned* counters, long long pixels, int channels, int groups, long long rows, double epsilon,
    int accumulate
) {
    __shared__ bool is_last;
    const int c = blockIdx.x * WARP + threadIdx.x % WARP, n_warps = blockDim.x / WARP, warp = threadIdx.x / WARP;
    const int of_row = c / (channels / groups), n_parts = gridDim.y;
    const long long step = (long long)n_parts * n_warps;
    const auto add = [&](long long r, Sum& a, Sum& b) {
        const long long group = (pixels == 1 ? r : r / pixels) * groups + of_row;
        const Sum g = (Sum)gy[r * channels + c], width = (Sum)1 / sqrt((Sum)variance[group] + (Sum)epsilon);
        a += g * ((Sum)x[r * channels + c] - (Sum)mean[group]) * width;
        b += g;
    };
    double a = 0, b = 0;
    if (c < channels) {
        long long r = (long long)blockIdx.y * n_warps + warp;
        for (; r + 3 * step < rows; r += 4 * step) {
            Sum first = 0, second = 0;
            for (int k = 0; k < 4; ++k) add(r + k * step, first, second);
            a += first;
            b += second;
        }
        for (; r < rows; r += step) {
            Sum first = 0, second = 0;
            add(r, first, second);
            a += first;
            b += second;
        }
    }
    add_warps(a, b);
    if (n_parts > 1) {
        double* second_parts = parts + (long long)n_parts * channels;
        if (threadIdx.x < WARP && c < channels) {
            parts[(long long)blockIdx.y * channels + c] = a;
            second_parts[(long long)blockIdx.y * channels + c] = b;
        }
        if (!is_last_block(counters + blockIdx.x, n_parts, is_last)) return;
        a = b = 0;
        for (int k = warp; c < channels && k < n_parts; k += n_warps) {
            a += __ldcg(parts + (long long)k * channels + c);
            b += __ldcg(second_parts + (long long)k * channels + c);
        }
        add_warps(a, b);
    }
    if (threadIdx.x < WARP && c < channels) {
        grad_scale[c] = (Param)(accumulate ? a + (double)grad_scale[c] : a);
        grad_shift[c] = (Param)(accumulate ? b + (double)grad_shift[c] : b);
    }
}
