// Batch normalisation of rows of channels that are dense in memory: (N, C), or images in the order N, H, W, C.
// Each block sums a part of the rows. The last block of some channels to end adds these partial sums, always in the
// same order and in float64. It writes `factors`, (3 or 4, C), for a pass over all values.
// Value: type of the values. Param: type of params and statistics of channels. Index: type that can count all values.

typedef wide<Value>::type Sum;

#define THREADS 512

struct alignas(sizeof(Value) * WIDTH) Values {
    Value at[WIDTH];
};

struct alignas(sizeof(Sum) * WIDTH) Factors {
    Sum at[WIDTH];
};

// Sum over the rows of a block. blockDim is (channels, rows); the number of rows must be a power of two.
static __device__ void add_rows(double* first, double* second, double& a, double& b) {
    int at = threadIdx.y * blockDim.x + threadIdx.x;
    first[at] = a;
    second[at] = b;
    __syncthreads();
    for (int rows = blockDim.y / 2; rows > 0; rows /= 2) {
        if ((int)threadIdx.y < rows) {
            first[at] += first[at + rows * blockDim.x];
            second[at] += second[at + rows * blockDim.x];
        }
        __syncthreads();
    }
    a = first[threadIdx.x];
    b = second[threadIdx.x];
}

// Call `add(row)` for the rows of this thread. Four calls in a row let four loads run at the same time.
template <class Add>
static __device__ void for_rows(Index start, Index stop, Add add) {
    Index row = start + threadIdx.y, step = blockDim.y;
    for (; row + 3 * step < stop; row += 4 * step) {
        add(row);
        add(row + step);
        add(row + 2 * step);
        add(row + 3 * step);
    }
    for (; row < stop; row += step) add(row);
}

// Call `add(row)` for the rows of this block that belong to this thread.
template <class Add>
static __device__ void for_own_rows(Index rows, Index rows_of_block, Add add) {
    Index start = blockIdx.y * rows_of_block;
    for_rows(start, start + rows_of_block < rows ? start + rows_of_block : rows, add);
}

// Add the sums of all blocks of these channels. Return true in threads that get the total of a channel in a and b: in
// the first line of threads of the last block to end.
static __device__ bool add_blocks(double* parts, unsigned* counters, int channels, double& a, double& b) {
    __shared__ double first[THREADS], second[THREADS];
    __shared__ bool is_last;
    int channel = blockIdx.x * blockDim.x + threadIdx.x;
    add_rows(first, second, a, b);
    if (gridDim.y > 1) {
        if (threadIdx.y == 0 && channel < channels) {
            double* part = parts + (Index)blockIdx.y * 2 * channels + channel;
            part[0] = a;
            part[channels] = b;
        }
        if (!is_last_block(counters + blockIdx.x, gridDim.y, is_last)) return false;
        a = b = 0;
        if (channel < channels) {
            for_rows(0, gridDim.y, [&](Index row) {
                const double* part = parts + row * 2 * channels + channel;
                a += __ldcg(part);
                b += __ldcg(part + channels);
            });
        }
        add_rows(first, second, a, b);
    }
    return threadIdx.y == 0 && channel < channels;
}

static __device__ void write_factors(Sum* factors, int channels, int channel, double mean, double factor,
                                     double shift) {
    factors[channel] = (Sum)mean;
    factors[channels + channel] = (Sum)factor;
    factors[2 * channels + channel] = (Sum)shift;
}

// Mean and variance, from the sums of x - x[0] and of its squares. x[0] is so near to the mean that the squares lose no
// precision.
extern "C" __global__ void moments(const Value* x, const Param* scale, const Param* shift, Param* mean, Param* variance,
                                   Sum* factors, double* parts, unsigned* counters, Index rows, Index rows_of_block,
                                   int channels, double epsilon) {
    int channel = blockIdx.x * blockDim.x + threadIdx.x;
    double a = 0, b = 0, origin = 0;
    if (channel < channels) {
        origin = (double)(Sum)x[channel];
        for_own_rows(rows, rows_of_block, [&](Index row) {
            double value = (double)(Sum)x[row * channels + channel] - origin;
            a += value;
            b += value * value;
        });
    }
    if (add_blocks(parts, counters, channels, a, b)) {
        a /= rows;
        b = b / rows - a * a;
        b = b < 0 ? 0 : b;
        Param middle = (Param)(origin + a);
        mean[channel] = middle;
        variance[channel] = (Param)b;
        write_factors(factors, channels, channel, middle, (double)scale[channel] / sqrt(b + epsilon), shift[channel]);
    }
}

extern "C" __global__ void known_moments(const Param* scale, const Param* shift, const Param* mean,
                                         const Param* variance, Sum* factors, int channels, double epsilon) {
    int channel = blockIdx.x * blockDim.x + threadIdx.x;
    if (channel < channels) {
        double factor = (double)scale[channel] / sqrt((double)variance[channel] + epsilon);
        write_factors(factors, channels, channel, mean[channel], factor, shift[channel]);
    }
}

// y = (x - mean) factor + shift, and 0 instead of negative values if `relu`. NaN stays NaN.
extern "C" __global__ void normal(const Values* x, const Factors* factors, Values* y, Index total, int packs,
                                  int relu) {
    for (Index i = THREAD; i < total; i += N_THREADS) {
        int pack = (int)(i % packs);
        Factors mean = factors[pack], factor = factors[packs + pack], shift = factors[2 * packs + pack];
        Values values = x[i];
        for (int k = 0; k < WIDTH; k++) {
            values.at[k] = (Value)(((Sum)values.at[k] - mean.at[k]) * factor.at[k] + shift.at[k]);
            if (relu && (Sum)values.at[k] <= 0) values.at[k] = (Value)(Sum)0;
        }
        y[i] = values;
    }
}

// The amount that the updater subtracts from a running statistic.
static __device__ Param step_to(Param batch, Param running, double rate) {
    typedef wide<Param>::type Wide;
    return (Param)((Wide)(Param)((Wide)running - (Wide)batch) * (Wide)rate);
}

// Sums of gy and of gy (x - mean). With `relu`, y is the output, and gy is 0 where the output is not positive.
extern "C" __global__ void grads(const Value* x, const Value* gy, const Value* y, const Param* scale, const Param* mean,
                                 const Param* variance, Param* grad_scale, Param* grad_shift, const Param* running_mean,
                                 const Param* running_var, Param* grad_mean, Param* grad_variance, Sum* factors,
                                 double* parts, unsigned* counters, Index rows, Index rows_of_block, int channels,
                                 double epsilon, int relu, int has_running, double rate) {
    int channel = blockIdx.x * blockDim.x + threadIdx.x;
    double a = 0, b = 0;
    if (channel < channels) {
        Sum middle = (Sum)mean[channel];
        for_own_rows(rows, rows_of_block, [&](Index row) {
            Index i = row * channels + channel;
            Sum g = gy[i], off = (Sum)x[i] - middle;  // start both loads before waiting for y
            if (relu && !((Sum)y[i] > 0)) g = 0;
            a += g;
            b += g * off;
        });
    }
    if (add_blocks(parts, counters, channels, a, b)) {
        double width = 1 / sqrt((double)variance[channel] + epsilon);
        b *= width;
        grad_shift[channel] = (Param)a;
        grad_scale[channel] = (Param)b;
        write_factors(factors, channels, channel, mean[channel], (double)scale[channel] * width, a / rows);
        factors[3 * channels + channel] = (Sum)(width * b / rows);
        if (has_running) {
            grad_mean[channel] = step_to(mean[channel], running_mean[channel], rate);
            grad_variance[channel] = step_to(variance[channel], running_var[channel], rate);
        }
    }
}

extern "C" __global__ void normal_grad(const Values* x, const Values* gy, const Values* y, const Factors* factors,
                                       Values* gx, Index total, int packs, int relu) {
    for (Index i = THREAD; i < total; i += N_THREADS) {
        int pack = (int)(i % packs);
        Factors mean = factors[pack], factor = factors[packs + pack];
        Factors shift = factors[2 * packs + pack], slope = factors[3 * packs + pack];
        Values values = x[i], g = gy[i], output = g;
        if (relu) output = y[i];
        for (int k = 0; k < WIDTH; k++) {
            Sum normal = ((Sum)values.at[k] - mean.at[k]) * slope.at[k];
            Sum gradient = !relu || (Sum)output.at[k] > 0 ? (Sum)g.at[k] : (Sum)0;
            values.at[k] = (Value)(factor.at[k] * (gradient - shift.at[k] - normal));
        }
        gx[i] = values;
    }
}
