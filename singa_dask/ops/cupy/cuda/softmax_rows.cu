// Softmax of rows with few columns. A warp computes a row, and each of its threads keeps PACKS packs of WIDTH
// neighbouring columns in registers. The columns of a row are contiguous. X, Y and Z are the types of the arrays, in
// the order of the arguments.

#define LANE ((int)(threadIdx.x % WARP))
#define ROW ((long long)blockIdx.x * (blockDim.x / WARP) + threadIdx.x / WARP)
#define COLUMN(pack) (((pack) * WARP + LANE) * WIDTH)

template <typename T> struct alignas(sizeof(T) * WIDTH) Pack {
    T at[WIDTH];
};

template <typename T> __device__ Pack<T> load(const T* values) { return *(const Pack<T>*)values; }

template <typename W> __device__ W warp_sum(W value) {
    for (int step = WARP / 2; step; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
    return value;
}

// Softmax of the first columns of row r, up to first + r % n_queries. All other columns get 0.
extern "C" __global__ void softmax_rows(
    const X* x, long long x_row, Y* y, long long y_row, int n_rows, int n_columns, int n_queries, int first
) {
    typedef wide<Y>::type W;
    if (ROW >= n_rows) return;
    x += ROW * x_row;
    y += ROW * y_row;
    const int own = first + (int)(ROW % n_queries), last = own < n_columns ? own : n_columns - 1;
    W values[PACKS][WIDTH], best = (W)x[0], sum = 0;
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
        const int column = COLUMN(p);
        if (column > last) continue;
        const Pack<X> pack = load(x + column);
        for (int k = 0; k < WIDTH; ++k) {
            values[p][k] = (W)pack.at[k];
            if (column + k <= last && values[p][k] > best) best = values[p][k];
        }
    }
    for (int step = WARP / 2; step; step /= 2) {
        const W other = __shfl_xor_sync(0xffffffffu, best, step);
        best = other > best ? other : best;
    }
#pragma unroll
    for (int p = 0; p < PACKS; ++p)
        for (int k = 0; k < WIDTH; ++k) {
            values[p][k] = COLUMN(p) + k <= last ? exp(values[p][k] - best) : (W)0;
            sum += values[p][k];
        }
    sum = warp_sum(sum);
    // x may be y, because the whole row has been read
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
        if (COLUMN(p) >= n_columns) continue;
        Pack<Y> pack;
        for (int k = 0; k < WIDTH; ++k) pack.at[k] = (Y)(values[p][k] / sum);
        *(Pack<Y>*)(y + COLUMN(p)) = pack;
    }
}

extern "C" __global__ void softmax_grad_rows(
    const X* y, long long y_row, const Y* gy, long long gy_row, Z* gx, long long gx_row, int n_rows, int n_columns
) {
    typedef wide<Z>::type W;
    if (ROW >= n_rows) return;
    y += ROW * y_row;
    gy += ROW * gy_row;
    gx += ROW * gx_row;
    Pack<X> outputs[PACKS];
    Pack<Y> gradients[PACKS];
    W sum = 0;
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
        if (COLUMN(p) >= n_columns) continue;
        outputs[p] = load(y + COLUMN(p));
        gradients[p] = load(gy + COLUMN(p));
        for (int k = 0; k < WIDTH; ++k) sum += (W)outputs[p].at[k] * (W)gradients[p].at[k];
    }
    sum = warp_sum(sum);
#pragma unroll
    for (int p = 0; p < PACKS; ++p) {
        if (COLUMN(p) >= n_columns) continue;
        Pack<Z> pack;
        for (int k = 0; k < WIDTH; ++k)
            pack.at[k] = (Z)((W)outputs[p].at[k] * ((W)gradients[p].at[k] - sum));
        *(Pack<Z>*)(gx + COLUMN(p)) = pack;
    }
}
