// Rows of tables. In is the type of values that are read, Out the type of values that are written, Index the type of
// row numbers of a table.
// Blocks are along a row; blockIdx.y is the row. Steps are the distances of rows and of columns, in values.

typedef wide<Out>::type Sum;

#define COLUMN ((long long)blockIdx.x * blockDim.x + threadIdx.x)
#define N_COLUMNS ((long long)gridDim.x * blockDim.x)

// out[row] = table[index[row]], or zeros if the index is negative
extern "C" __global__ void take_rows(
    const In* table, const Index* index, Out* out, long long n, long long d,
    long long table_step, long long table_column, long long out_step, long long out_column
) {
    for (long long row = blockIdx.y; row < n; row += gridDim.y) {
        const Index place = index[row];
        for (long long column = COLUMN; column < d; column += N_COLUMNS)
            out[row * out_step + column * out_column] =
                place < 0 ? Out(0) : Out(Sum(table[place * table_step + column * table_column]));
    }
}

// out[row] = 1 at index[row], else 0
extern "C" __global__ void one_hot(
    const Index* index, Out* out, long long n, long long d, long long out_step, long long out_column
) {
    for (long long row = blockIdx.y; row < n; row += gridDim.y)
        for (long long column = COLUMN; column < d; column += N_COLUMNS)
            out[row * out_step + column * out_column] = index[row] == column ? Out(1) : Out(0);
}

#define LANES 32
#define GROUPS 16

// out[places[i]] = sum of gy[order[k]] for k from bounds[i] to bounds[i + 1], added to out if `more`. The first
// negative place ends the list. A block sums LANES columns of a place. Each of its groups sums every GROUPS-th row;
// then the first group adds the sums of all groups, always in the same order.
extern "C" __global__ void add_rows(
    const In* gy, const int* order, const int* bounds, const int* places, Out* out, long long n, long long d,
    long long gy_step, long long gy_column, long long out_step, long long out_column, bool more
) {
    __shared__ Sum sums[GROUPS][LANES];
    const int lane = threadIdx.x % LANES, group = threadIdx.x / LANES;
    const long long column = (long long)blockIdx.x * LANES + lane;
    for (long long i = blockIdx.y; i < n; i += gridDim.y) {
        const int first = bounds[i], end = bounds[i + 1], place = places[i];
        if (place < 0) break;
        Out* to = out + place * out_step + column * out_column;
        if (first == end) {
            if (group == 0 && column < d && !more) *to = Out(0);
            continue;
        }
        Sum sum = 0;
        if (column < d) {
#pragma unroll 4
            for (int k = first + group; k < end; k += GROUPS)
                sum += Sum(gy[order[k] * gy_step + column * gy_column]);
        }
        sums[group][lane] = sum;
        __syncthreads();
        if (group == 0 && column < d) {
            for (int other = 1; other < GROUPS; other++) sum += sums[other][lane];
            *to = Out(more ? Sum(*to) + sum : sum);
        }
        __syncthreads();
    }
}
