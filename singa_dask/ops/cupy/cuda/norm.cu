// Normalisation over the batch, of rows of channels that lie dense in memory: (N, C), or images as N, H, W, C.
// First each block sums a stretch of rows, then one block for some channels adds these partial sums, always in the same
// order and in float64; `factors` (3 or 4, C) is what one pass over all values then takes.
// Value: type of the values. Param: type of what is of channels. Index: counts all values.

typedef wide<Value>::type Sum;

#define THREADS 512

struct alignas(sizeof(Value) * WIDTH) Values {
    Value at[WIDTH];
};

struct alignas(sizeof(Sum) * WIDTH) Factors {
    Sum at[WIDTH];
};

// The sums over the rows of a block; blockDim is (channels, rows), the number of rows a power of two.
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

// Call `add(row)` for the rows of this thread, four at a time, so that four loads are on their way at once.
template <class Add>
static __device__ void for_rows(Index rows, Index rows_of_block, Add add) {
    Index start = blockIdx.y * rows_of_block, stop = start + rows_of_block < rows ? start + rows_of_block : rows;
    Index row = start + threadIdx.y, step = blockDim.y;
    for (; row + 3 * step < stop; row += 4 * step) {
        add(row);
        add(row + step);
        add(row + 2 * step);
        add(row + 3 * step);
    }
    for (; row < stop; row += step) add(row);
}

static __device__ void write_part(double* parts, int channels, double a, double b) {
    __shared__ double first[THREADS], second[THREADS];
    add_rows(first, second, a, b);
    int channel = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.y == 0 && channel < channels) {
        double* part = parts + (Index)blockIdx.y * 2 * channels + channel;
        part[0] = a;
        part[channels] = b;
    }
}

static __device__ void add_parts(const double* parts, int n_parts, int channels, double& a, double& b) {
    __shared__ double first[THREADS], second[THREADS];
    int channel = blockIdx.x * blockDim.x + threadIdx.x;
    a = b = 0;
    if (channel < channels) {
        for_rows(n_parts, n_parts, [&](Index row) {
            const double* part = parts + row * 2 * channels + channel;
            a += part[0];
            b += part[channels];
        });
    }
    add_rows(first, second, a, b);
}

// Sums of x - x[0] and of their squares: so near to the mean that the squares lose nothing.
extern "C" __global__ void moment_parts(const Value* x, double* parts, Index rows, Index rows_of_block, int channels) {
    int channel = blockIdx.x * blockDim.x + threadIdx.x;
    double a = 0, b = 0;
    if (channel < channels) {
        double origin = (double)(Sum)x[channel];
        for_rows(rows, rows_of_block, [&](Index row) {
            double value = (double)(Sum)x[row * channels + channel] - origin;
            a += value;
            b += value * value;
        });
    }
    write_part(parts, channels, a, b);
}

static __device__ void write_factors(Sum* factors, int channels, int channel, double mean, double factor,
                                     double shift) {
    factors[channel] = (Sum)mean;
    factors[channels + channel] = (Sum)factor;
    factors[2 * channels + channel] = (Sum)shift;
}

extern "C" __global__ void moments(const double* parts, int n_parts, const Value* x, const Param* scale,
                                   const Param* shift, Param* mean, Param* var, Sum* factors, Index rows, int channels,
                                   double eps) {
    double a, b;
    add_parts(parts, n_parts, channels, a, b);
    int channel = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.y == 0 && channel < channels) {
        a /= rows;
        b = b / rows - a * a;
        b = b < 0 ? 0 : b;
        Param middle = (Param)((double)(Sum)x[channel] + a);
        mean[channel] = middle;
        var[channel] = (Param)b;
        write_factors(factors, channels, channel, middle, (double)scale[channel] / sqrt(b + eps), shift[channel]);
    }
}

extern "C" __global__ void known_moments(const Param* scale, const Param* shift, const Param* mean, const Param* var,
                                         Sum* factors, int channels, double eps) {
    int channel = blockIdx.x * blockDim.x + threadIdx.x;
    if (channel < channels) {
        double factor = (double)scale[channel] / sqrt((double)var[channel] + eps);
        write_factors(factors, channels, channel, mean[channel], factor, shift[channel]);
    }
}

extern "C" __global__ void normal(const Values* x, const Factors* factors, Values* y, Index total, int packs) {
    for (Index i = THREAD; i < total; i += N_THREADS) {
        int pack = (int)(i % packs);
        Factors mean = factors[pack], factor = factors[packs + pack], shift = factors[2 * packs + pack];
        Values values = x[i];
        for (int k = 0; k < WIDTH; k++) {
            values.at[k] = (Value)(((Sum)values.at[k] - mean.at[k]) * factor.at[k] + shift.at[k]);
        }
        y[i] = values;
    }
}

// Sums of gy and of gy (x - mean).
extern "C" __global__ void grad_parts(const Value* x, const Value* gy, const Param* mean, double* parts, Index rows,
                                      Index rows_of_block, int channels) {
    int channel = blockIdx.x * blockDim.x + threadIdx.x;
    double a = 0, b = 0;
    if (channel < channels) {
        Sum middle = (Sum)mean[channel];
        for_rows(rows, rows_of_block, [&](Index row) {
            Index i = row * channels + channel;
            Sum g = gy[i];
            a += g;
            b += g * ((Sum)x[i] - middle);
        });
    }
    write_part(parts, channels, a, b);
}

extern "C" __global__ void grads(const double* parts, int n_parts, const Param* scale, const Param* mean,
                                 const Param* var, Param* grad_scale, Param* grad_shift, Sum* factors, Index rows,
                                 int channels, double eps) {
    double a, b;
    add_parts(parts, n_parts, channels, a, b);
    int channel = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.y == 0 && channel < channels) {
        double width = 1 / sqrt((double)var[channel] + eps);
        b *= width;
        grad_shift[channel] = (Param)a;
        grad_scale[channel] = (Param)b;
        write_factors(factors, channels, channel, mean[channel], (double)scale[channel] * width, a / rows);
        factors[3 * channels + channel] = (Sum)(width * b / rows);
    }
}

extern "C" __global__ void normal_grad(const Values* x, const Values* gy, const Factors* factors, Values* gx,
                                       Index total, int packs) {
    for (Index i = THREAD; i < total; i += N_THREADS) {
        int pack = (int)(i % packs);
        Factors mean = factors[pack], factor = factors[packs + pack];
        Factors shift = factors[2 * packs + pack], slope = factors[3 * packs + pack];
        Values values = x[i], g = gy[i];
        for (int k = 0; k < WIDTH; k++) {
            Sum normal = ((Sum)values.at[k] - mean.at[k]) * slope.at[k];
            values.at[k] = (Value)(factor.at[k] * ((Sum)g.at[k] - shift.at[k] - normal));
        }
        gx[i] = values;
    }
}
