// Normalisation of each row of (N, C), which lies dense in memory. blockDim is (threads of a row, rows): some warps for one
// row, or a warp for each of several. A thread takes WIDTH neighbouring values at once; `packs` counts these of a row.
// Value: type of the values. Param: type of what is of columns, and of mean and var.

typedef wide<Value>::type Sum;

struct alignas(sizeof(Value) * WIDTH) Values {
    Value at[WIDTH];
};

struct alignas(sizeof(Param) * WIDTH) Params {
    Param at[WIDTH];
};

#define ROW ((long long)blockIdx.x * blockDim.y + threadIdx.y)

extern "C" __global__ void row_norm(
    const Values* x, const Params* scale, const Params* shift, Param* mean, Param* var, Values* y,
    long long rows, int packs, double eps
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
    const Sum spread = block_sum(squares) / (Sum)(packs * WIDTH), width = (Sum)1 / sqrt(spread + (Sum)eps);
    if (threadIdx.x == 0) {
        mean[row] = (Param)middle;
        var[row] = (Param)spread;
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

extern "C" __global__ void row_norm_grad(
    const Values* x, const Values* gy, const Params* scale, const Param* mean, const Param* var, Values* gx,
    long long rows, int packs, double eps
) {
    const long long row = ROW;
    if (row >= rows) return;
    x += row * packs;
    gy += row * packs;
    gx += row * packs;
    const Sum middle = (Sum)mean[row], width = (Sum)1 / sqrt((Sum)var[row] + (Sum)eps);
    Sum a = 0, b = 0;
    for (int i = threadIdx.x; i < packs; i += blockDim.x) {
        const Values values = x[i], gradients = gy[i];
        const Params factor = scale[i];
        for (int k = 0; k < WIDTH; ++k) {
            const Sum g = (Sum)gradients.at[k] * (Sum)factor.at[k];
            a += g;
            b += g * ((Sum)values.at[k] - middle) * width;
        }
    }
    a = block_sum(a) / (Sum)(packs * WIDTH);
    b = block_sum(b) / (Sum)(packs * WIDTH);
    for (int i = threadIdx.x; i < packs; i += blockDim.x) {
        Values values = x[i];
        const Values gradients = gy[i];
        const Params factor = scale[i];
        for (int k = 0; k < WIDTH; ++k) {
            const Sum normal = ((Sum)values.at[k] - middle) * width;
            values.at[k] = (Value)(((Sum)gradients.at[k] * (Sum)factor.at[k] - a - normal * b) * width);
        }
        gx[i] = values;
    }
}
