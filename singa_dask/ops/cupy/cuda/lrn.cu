// Normalisation over channels of images that are dense in memory in the order N, H, W, C. Each thread computes one
// value, and neighbouring threads compute neighbouring values.
// Value: type of the images. Index: type that can count all values.

typedef wide<Value>::type Sum;

#define THREADS 256
// Number of values before and after its own values that a block of lrn_grad keeps. For more neighbours, the block
// computes them again.
#define MARGIN 64

// sum^-beta. Usual exponents are computed by roots, because a power takes many times longer.
static __device__ Sum factor_of(Sum sum, Sum beta) {
    if (beta == (Sum)0.75) {
        Sum root = rsqrt(sum);
        return root * root * rsqrt(root);
    }
    if (beta == (Sum)1) return (Sum)1 / sum;
    if (beta == (Sum)0.5) return rsqrt(sum);
    return pow(sum, -beta);
}

// Describes the windows: number of channels and the factor to divide by it, channels of a window on each side, alpha /
// size, beta and knorm.
#define WINDOWS int channels, unsigned long long by_channels, int reach, Sum share, Sum beta, Sum knorm

template <bool KEEP>
static __device__ void divide(const Value* x, Value* y, Sum* work, Index total, WINDOWS) {
    for (Index i = THREAD; i < total; i += N_THREADS) {
        int channel = (int)(i - quotient(i, channels, by_channels) * channels);
        int before = channel < reach ? channel : reach;
        int after = channels - 1 - channel < reach ? channels - 1 - channel : reach;
        Sum sum = 0;
        for (int k = -before; k <= after; k++) {
            Sum value = x[i + k];
            sum += value * value;
        }
        sum = sum * share + knorm;
        y[i] = (Value)((Sum)x[i] * factor_of(sum, beta));
        if (KEEP) work[i] = sum;
    }
}

extern "C" __global__ void lrn(const Value* x, Value* y, Index total, WINDOWS) {
    divide<false>(x, y, nullptr, total, channels, by_channels, reach, share, beta, knorm);
}

extern "C" __global__ void lrn_keep(const Value* x, Value* y, Sum* work, Index total, WINDOWS) {
    divide<true>(x, y, work, total, channels, by_channels, reach, share, beta, knorm);
}

// Return gy x sum^(-beta - 1); write sum^-beta to `factor`.
static __device__ Sum inner_of(const Value* x, const Value* gy, const Sum* work, Index i, Sum beta, Sum& factor) {
    Sum sum = work[i];
    factor = factor_of(sum, beta);
    return (Sum)gy[i] * (Sum)x[i] * factor / sum;
}

extern "C" __global__ void lrn_grad(const Value* x, const Value* gy, const Sum* work, Value* gx, Index total, WINDOWS) {
    __shared__ Sum kept[THREADS + 2 * MARGIN];
    __shared__ Sum factors[THREADS + 2 * MARGIN];
    bool keeps = reach <= MARGIN;
    Index step = (Index)gridDim.x * THREADS;
    for (Index start = (Index)blockIdx.x * THREADS; start < total; start += step) {
        // all threads of a block run this loop equally often, as __syncthreads requires
        if (keeps) {
            for (int k = threadIdx.x; k < THREADS + 2 * reach; k += THREADS) {
                Index i = start + k - reach;
                if (i >= 0 && i < total) kept[k] = inner_of(x, gy, work, i, beta, factors[k]);
            }
        }
        __syncthreads();
        Index i = start + threadIdx.x;
        if (i < total) {
            int channel = (int)(i - quotient(i, channels, by_channels) * channels);
            int before = channel < reach ? channel : reach;
            int after = channels - 1 - channel < reach ? channels - 1 - channel : reach;
            Sum sum = 0, other;
            for (int k = -before; k <= after; k++) {
                sum += keeps ? kept[(int)threadIdx.x + reach + k] : inner_of(x, gy, work, i + k, beta, other);
            }
            Sum factor = keeps ? factors[threadIdx.x + reach] : factor_of(work[i], beta);
            gx[i] = (Value)((Sum)gy[i] * factor - 2 * beta * share * (Sum)x[i] * sum);
        }
        __syncthreads();
    }
}
