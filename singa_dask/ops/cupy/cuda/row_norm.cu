// Normalisation of each row of (N, C), dense in memory. blockDim is (threads of a row, rows): several warps for one
// row, or one warp for each of at most LINES rows. A thread reads WIDTH neighbouring values at once, a pack. `packs` is
// the number of packs in a row. PACKS, a power of two, is the maximum number of packs per thread.
// Value: type of the values. Param: type of mean and variance, and of params of columns.

typedef wide<Value>::type Sum;

struct alignas(sizeof(Value) * WIDTH) Values {
    Value at[WIDTH];
};

struct alignas(sizeof(Param) * WIDTH) Params {
    Param at[WIDTH];
};

#define LINES 8
#define ROW ((long long)blockIdx.x * blockDim.y + threadIdx.y)

extern "C" __global__ void row_norm(
    const Values* x, const Params* scale, const Params* shift, Param* mean, Param* variance, Values* y,
    long long rows, int packs, double epsilon
) {
    const long long row = ROW;
    if (row >= rows) return;
    x += row * packs;
    y += row * packs;
    Sum sum = 0, squares = 0;
    for (int i = threadIdx.x; i < packs; i += blockDim.x) {
        const Values values = x[i];
        for (int k = 0; k < WIDTH; ++k) sum += (Sum)values.at[k];
    }
    const Sum middle = block_sum(sum) / (Sum)(packs * WIDTH);
    for (int i = threadIdx.x; i < packs; i += blockDim.x) {
        const Values values = x[i];
        for (int k = 0; k < WIDTH; ++k) {
            const Sum off = (Sum)values.at[k] - middle;
            squares += off * off;
        }
    }
    const Sum spread = block_sum(squares) / (Sum)(packs * WIDTH), width = (Sum)1 / sqrt(spread + (Sum)epsilon);
    if (threadIdx.x == 0) {
        mean[row] = (Param)middle;
        variance[row] = (Param)spread;
    }
    for (int i = threadIdx.x; i < packs; i += blockDim.x) {
        Values values = x[i];
        const Params factor = scale[i], constant = shift[i];
        for (int k = 0; k < WIDTH; ++k) {
            const Sum normal = ((Sum)values.at[k] - middle) * width;
            values.at[k] = (Value)(normal * (Sum)factor.at[k] + (Sum)constant.at[k]);
        }
        y[i] = values;
    }
}

// Sum over all lines of threads of a block, in order. The first line gets the sums.
static __device__ void add_lines(double* sum) {
    __shared__ double shared[LINES * WARP * WIDTH];
    if (blockDim.y == 1) return;
    for (int k = 0; k < WIDTH; ++k) shared[(k * LINES + threadIdx.y) * WARP + threadIdx.x] = sum[k];
    __syncthreads();
    for (int line = 1; threadIdx.y == 0 && line < blockDim.y; ++line)
        for (int k = 0; k < WIDTH; ++k) sum[k] += shared[(k * LINES + line) * WARP + threadIdx.x];
    __syncthreads();  // before the memory is written again
}

// The gradient of x, unless it is not wanted, plus `more` if `adds`. Also the sums over all rows of gy (x - mean) /
// sqrt(variance + epsilon) and of gy, added to the earlier values if `accumulate`. The rows are divided among the
// blocks. The last block to end adds the partial sums (2, gridDim.x, columns), always in the same order.
extern "C" __global__ void row_norm_grad(
    const Values* x, const Values* gy, const Values* more, const Params* scale, const Param* mean,
    const Param* variance, Values* gx, Param* grad_scale, Param* grad_shift, double* parts, unsigned* counter,
    long long rows, int packs, double epsilon, int wanted, int adds, int accumulate
) {
    __shared__ bool is_last;
    Sum of_scale[PACKS][WIDTH], of_shift[PACKS][WIDTH];
#pragma unroll
    for (int p = 0; p < PACKS; ++p)
        for (int k = 0; k < WIDTH; ++k) of_scale[p][k] = of_shift[p][k] = 0;
    for (long long row = ROW; row < rows; row += (long long)gridDim.x * blockDim.y) {
        const Sum middle = (Sum)mean[row], width = (Sum)1 / sqrt((Sum)variance[row] + (Sum)epsilon);
        Sum a = 0, b = 0;
#pragma unroll
        for (int p = 0; p < PACKS; ++p) {
            const int i = p * blockDim.x + threadIdx.x;
            if (i >= packs) continue;
            const Values values = x[row * packs + i], gradients = gy[row * packs + i];
            const Params factor = scale[i];
            for (int k = 0; k < WIDTH; ++k) {
                const Sum g = (Sum)gradients.at[k], normal = ((Sum)values.at[k] - middle) * width;
                of_scale[p][k] += g * normal;
                of_shift[p][k] += g;
                a += g * (Sum)factor.at[k];
                b += g * (Sum)factor.at[k] * normal;
            }
        }
        if (!wanted) continue;
        a = block_sum(a) / (Sum)(packs * WIDTH);
        b = block_sum(b) / (Sum)(packs * WIDTH);
        for (int i = threadIdx.x; i < packs; i += blockDim.x) {
            Values values = x[row * packs + i], others;
            const Values gradients = gy[row * packs + i];
            const Params factor = scale[i];
            if (adds) others = more[row * packs + i];
            for (int k = 0; k < WIDTH; ++k) {
                const Sum normal = ((Sum)values.at[k] - middle) * width;
                const Sum own = ((Sum)gradients.at[k] * (Sum)factor.at[k] - a - normal * b) * width;
                values.at[k] = (Value)(adds ? own + (Sum)others.at[k] : own);
            }
            gx[row * packs + i] = values;
        }
    }
    const int columns = packs * WIDTH;
    double* shift_parts = parts + (long long)gridDim.x * columns;
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
        const int i = p * blockDim.x + threadIdx.x;
        double first[WIDTH], second[WIDTH];
        for (int k = 0; k < WIDTH; ++k) first[k] = of_scale[p][k], second[k] = of_shift[p][k];
        add_lines(first);
        add_lines(second);
        for (int k = 0; threadIdx.y == 0 && i < packs && k < WIDTH; ++k) {
            parts[(long long)blockIdx.x * columns + i * WIDTH + k] = first[k];
            shift_parts[(long long)blockIdx.x * columns + i * WIDTH + k] = second[k];
        }
    }
    if (!is_last_block(counter, gridDim.x, is_last)) return;
    for (int start = 0; start < packs; start += blockDim.x) {
        const int i = start + threadIdx.x;
        double first[WIDTH], second[WIDTH];
        for (int k = 0; k < WIDTH; ++k) first[k] = second[k] = 0;
#pragma unroll 4
        for (long long part = threadIdx.y; i < packs && part < gridDim.x; part += blockDim.y)
            for (int k = 0; k < WIDTH; ++k) {
                first[k] += __ldcg(parts + part * columns + i * WIDTH + k);
                second[k] += __ldcg(shift_parts + part * columns + i * WIDTH + k);
            }
        add_lines(first);
        add_lines(second);
        for (int k = 0; threadIdx.y == 0 && i < packs && k < WIDTH; ++k) {
            const int c = i * WIDTH + k;
            grad_scale[c] = (Param)(accumulate ? first[k] + (double)grad_scale[c] : first[k]);
            grad_shift[c] = (Param)(accumulate ? second[k] + (double)grad_shift[c] : second[k]);
        }
    }
}
