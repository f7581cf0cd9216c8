// Probabilities, losses, and columns of the highest scores. Most kernels have a block for each row of (N, D).
// An array is passed as its address and its strides along rows and columns, in values.
// X, Y and Z are the types of the arrays, in the order of the arguments.

// Softmax of the first columns of row r, up to first + r % n_queries. All other columns get 0.
extern "C" __global__ void softmax(
    const X* x, long long x_row, long long x_column, Y* y, long long y_row, long long y_column,
    int n_columns, int n_queries, int first
) {
    typedef wide<Y>::type W;
    x += blockIdx.x * x_row;
    y += blockIdx.x * y_row;
    const int own = first + (int)(blockIdx.x % n_queries), last = own < n_columns ? own : n_columns - 1;
    W best = (W)x[0];
    for (int c = threadIdx.x; c <= last; c += blockDim.x) {
        const W value = (W)x[c * x_column];
        best = value > best ? value : best;
    }
    best = block_max(best);
    W sum = 0;
    for (int c = threadIdx.x; c <= last; c += blockDim.x) sum += exp((W)x[c * x_column] - best);
    sum = block_sum(sum);
    // x may be y: all sums are complete, and the thread that reads a value also overwrites it
    for (int c = threadIdx.x; c < n_columns; c += blockDim.x)
        y[c * y_column] = c <= last ? exp((W)x[c * x_column] - best) / sum : (W)0;
}

extern "C" __global__ void softmax_grad(
    const X* y, long long y_row, long long y_column, const Y* gy, long long gy_row, long long gy_column,
    Z* gx, long long gx_row, long long gx_column, int n_columns
) {
    typedef wide<Z>::type W;
    y += blockIdx.x * y_row;
    gy += blockIdx.x * gy_row;
    gx += blockIdx.x * gx_row;
    W sum = 0;
    for (int c = threadIdx.x; c < n_columns; c += blockDim.x) sum += (W)y[c * y_column] * (W)gy[c * gy_column];
    sum = block_sum(sum);
    for (int c = threadIdx.x; c < n_columns; c += blockDim.x)
        gx[c * gx_column] = (W)y[c * y_column] * ((W)gy[c * gy_column] - sum);
}

// out[block] = a part of the mean; `total` adds the parts. A label that is not a column gives NaN.
extern "C" __global__ void cross_entropy(
    const X* p, long long p_row, long long p_column, const long long* labels, double* out,
    int n_rows, int n_columns, double least
) {
    typedef wide<X>::type W;
    const double zero = 0, not_known = zero / zero;
    double sum = 0;
    for (long long r = THREAD; r < n_rows; r += N_THREADS) {
        const long long label = labels[r];
        const bool known = label >= 0 && label < n_columns;
        W value = known ? (W)p[r * p_row + label * p_column] : (W)0;
        value = value < (W)least ? (W)least : value;
        sum -= known ? (double)log(value) : not_known;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[blockIdx.x] = sum / n_rows;
}

// losses[n] = share times the sum of (1 - e) loss[label] and e mean(loss), where loss is over the columns of row n.
extern "C" __global__ void smoothed_losses(
    const X* p, long long p_row, long long p_column, const long long* labels, double* losses,
    int n_columns, double least, double e, double share
) {
    typedef wide<X>::type W;
    const double zero = 0, not_known = zero / zero;
    const long long label = labels[blockIdx.x];
    p += blockIdx.x * p_row;
    double sum = 0;
    for (int c = threadIdx.x; c < n_columns; c += blockDim.x) {
        W value = (W)p[c * p_column];
        value = value < (W)least ? (W)least : value;
        sum -= (double)log(value) * (e / n_columns + (c == label ? 1 - e : 0));
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) losses[blockIdx.x] = label >= 0 && label < n_columns ? share * sum : not_known;
}

extern "C" __global__ void cross_entropy_grad(
    const X* p, long long p_row, long long p_column, const long long* labels,
    Y* out, long long out_row, long long out_column, int n_columns, double factor, double of_label, double of_others
) {
    typedef wide<Y>::type W;
    const long long label = labels[blockIdx.x];
    p += blockIdx.x * p_row;
    out += blockIdx.x * out_row;
    for (int c = threadIdx.x; c < n_columns; c += blockDim.x)
        out[c * out_column] = (W)factor * (W)p[c * p_column] - (c == label ? (W)of_label : (W)of_others);
}

// factors[0][n] *= (1 - q)^gamma, factors[1][n] *= (1 - q)^gamma - gamma q (1 - q)^(gamma - 1) log(q), q = p[n][label].
extern "C" __global__ void focal_factors(
    const X* p, long long p_row, long long p_column, const long long* labels, Y* factors,
    int n_rows, double gamma, double least
) {
    typedef wide<Y>::type W;
    for (long long r = THREAD; r < n_rows; r += N_THREADS) {
        const W lowest = (W)least, given = (W)p[r * p_row + labels[r] * p_column];
        const W q = given < lowest ? lowest : given, rest = 1 - q < lowest ? lowest : 1 - q;
        const W factor = pow(rest, (W)gamma);
        const W of_gradient = factor - (W)gamma * q * pow(rest, (W)gamma - 1) * log(q);
        factors[r] = (W)factors[r] * factor;
        factors[n_rows + r] = (W)factors[n_rows + r] * of_gradient;
    }
}

// Whether a score comes before another score: the higher score comes first; if scores are equal, the higher column; NaN
// comes last.
template <typename W> __device__ bool before(W one, int column, W other, int other_column) {
    const bool nan = one != one, other_nan = other != other;
    if (nan || other_nan) return nan == other_nan ? column > other_column : other_nan;
    return one > other || (one == other && column > other_column);
}

// Find the score that comes first among the scores of all threads of a block; all threads get it. Column -1 means that
// there is no score.
template <typename W> __device__ void first_of_block(W& value, int& column) {
    __shared__ W values[WARP];
    __shared__ int columns[WARP];
    for (int step = WARP / 2; step; step /= 2) {
        const W other = __shfl_xor_sync(0xffffffffu, value, step);
        const int other_column = __shfl_xor_sync(0xffffffffu, column, step);
        if (other_column >= 0 && (column < 0 || before(other, other_column, value, column))) {
            value = other;
            column = other_column;
        }
    }
    __syncthreads();
    if (threadIdx.x % WARP == 0) {
        values[threadIdx.x / WARP] = value;
        columns[threadIdx.x / WARP] = column;
    }
    __syncthreads();
    for (int k = 0; k < (int)blockDim.x / WARP; ++k)
        if (columns[k] >= 0 && (column < 0 || before(values[k], columns[k], value, column))) {
            value = values[k];
            column = columns[k];
        }
}

extern "C" __global__ void top(
    const X* scores, long long row, long long step, Y* out, long long out_row, long long out_column,
    int n_columns, int k
) {
    typedef wide<X>::type W;
    scores += blockIdx.x * row;
    out += blockIdx.x * out_row;
    W last = 0;
    int last_column = -1;
    for (int place = 0; place < k; ++place) {
        W value = 0;
        int column = -1;
        for (int c = threadIdx.x; c < n_columns; c += blockDim.x) {
            const W score = (W)scores[c * step];
            if (last_column >= 0 && !before(last, last_column, score, c)) continue;
            if (column < 0 || before(score, c, value, column)) {
                value = score;
                column = c;
            }
        }
        first_of_block(value, column);
        if (threadIdx.x == 0) out[place * out_column] = (Y)(float)column;
        last = value;
        last_column = column;
    }
}

// out[0] = the number of rows whose label is among the k highest scores, by the rule of `hits`. A thread counts whole
// rows.
extern "C" __global__ void count_hits(
    const X* scores, long long row, long long step, const long long* labels, double* out, int n_rows, int n_columns, int k
) {
    typedef wide<X>::type W;
    double sum = 0;
    for (int r = threadIdx.x; r < n_rows; r += blockDim.x) {
        const long long label = labels[r];
        if (label < 0 || label >= n_columns) continue;
        const X* of_row = scores + r * row;
        const W own = (W)of_row[label * step];
        int after = 0;
        for (int c = 0; c < n_columns; c++) {
            const W score = (W)of_row[c * step];
            after += score < own || (score == own && c <= label);
        }
        sum += after > n_columns - k;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) out[0] = sum;
}

// out[n] = whether the label of row n is among the k highest scores. The kernel counts scores that do not come before
// the label's score, so a row with NaN is a miss.
extern "C" __global__ void hits(
    const X* scores, long long row, long long step, const long long* labels, double* out, int n_columns, int k
) {
    typedef wide<X>::type W;
    const long long label = labels[blockIdx.x];
    if (label < 0 || label >= n_columns) {
        if (threadIdx.x == 0) out[blockIdx.x] = 0;
        return;
    }
    scores += blockIdx.x * row;
    const W own = (W)scores[label * step];
    int after = 0;
    for (int c = threadIdx.x; c < n_columns; c += blockDim.x) {
        const W score = (W)scores[c * step];
        after += score < own || (score == own && c <= label);
    }
    after = block_sum(after);
    if (threadIdx.x == 0) out[blockIdx.x] = after > n_columns - k;
}
