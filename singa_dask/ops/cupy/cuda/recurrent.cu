// Time steps of gated recurrent units and of long short-term memory, and their gradients. Value is the type of the
// arrays.
// Blocks are along a row of d units; blockIdx.y is the row. A thread computes one unit of a row. It reads everything
// that it needs before it writes, so inputs may be in the memory of gates. Steps are the distances of rows, in values.

#define FOR_UNITS(row, unit)                                    \
    for (long long row = blockIdx.y; row < n; row += gridDim.y) \
        for (int unit = blockIdx.x * blockDim.x + threadIdx.x; unit < d; unit += gridDim.x * blockDim.x)

typedef wide<Value>::type Wide;

static __device__ Wide logistic(Wide x) { return Wide(1) / (Wide(1) + exp(-x)); }

// h' = z h + (1 - z) c. xw has c, z, r side by side; hu has z, r, c. Afterwards gates has c, z, r, hu_c.
extern "C" __global__ void gru_step(
    const Value* xw, const Value* hu, const Value* h, Value* out, Value* gates, long long n, int d,
    long long xw_step, long long hu_step, long long h_step, long long out_step, long long gates_step
) {
    FOR_UNITS(row, unit) {
        const Value* x = xw + row * xw_step + unit;
        const Value* u = hu + row * hu_step + unit;
        Value* kept = gates + row * gates_step + unit;
        const Wide z = logistic(x[d] + u[0]);
        const Wide r = logistic(x[2 * d] + u[d]);
        const Wide product = u[2 * d];
        const Wide c = tanh(x[0] + r * product);
        const Wide before = h[row * h_step + unit];
        out[row * out_step + unit] = z * (before - c) + c;
        kept[0] = c;
        kept[d] = z;
        kept[2 * d] = r;
        kept[3 * d] = product;
    }
}

// gates: gets the gradient of xw in its first 3 d columns, and the gradient of hu in its last 3 d columns. gh: gets the
// gradient of h, except through hu.
extern "C" __global__ void gru_step_grad(
    Value* gates, const Value* h, const Value* gy, Value* gh, long long n, int d,
    long long gates_step, long long h_step, long long gy_step, long long gh_step
) {
    FOR_UNITS(row, unit) {
        Value* kept = gates + row * gates_step + unit;
        Value* back = gh + row * gh_step + unit;
        const Wide c = kept[0], z = kept[d], r = kept[2 * d], product = kept[3 * d];
        const Wide g = *back + gy[row * gy_step + unit], before = h[row * h_step + unit];
        const Wide by_c = (Wide(1) - z) * g;
        const Wide grad_c = (Wide(1) - c * c) * by_c;
        *back = g * z;
        kept[0] = grad_c;
        kept[d] = (before - c) * by_c * z;
        kept[2 * d] = grad_c * product * r * (Wide(1) - r);
        kept[3 * d] = grad_c * r;
    }
}

// c' = f c + i g, h' = o tanh(c'). xw, hu and gates have i, f, o, g side by side.
extern "C" __global__ void lstm_step(
    const Value* xw, const Value* hu, const Value* c, Value* out, Value* out_c, Value* gates, long long n, int d,
    long long xw_step, long long hu_step, long long c_step, long long out_step, long long out_c_step,
    long long gates_step
) {
    FOR_UNITS(row, unit) {
        const Value* x = xw + row * xw_step + unit;
        const Value* u = hu + row * hu_step + unit;
        Value* kept = gates + row * gates_step + unit;
        const Wide i = logistic(x[0] + u[0]);
        const Wide f = logistic(x[d] + u[d]);
        const Wide o = logistic(x[2 * d] + u[2 * d]);
        const Wide g = tanh(x[3 * d] + u[3 * d]);
        const Wide cell = f * c[row * c_step + unit] + i * g;
        out_c[row * out_c_step + unit] = cell;
        out[row * out_step + unit] = o * tanh(cell);
        kept[0] = i;
        kept[d] = f;
        kept[2 * d] = o;
        kept[3 * d] = g;
    }
}

// gates: gets the gradients of xw and hu, which are equal. gc: the gradient of c' before, the gradient of c afterwards.
extern "C" __global__ void lstm_step_grad(
    Value* gates, const Value* c, const Value* out_c, const Value* gy, const Value* gh, Value* gc, long long n, int d,
    long long gates_step, long long c_step, long long out_c_step, long long gy_step, long long gh_step,
    long long gc_step
) {
    FOR_UNITS(row, unit) {
        Value* kept = gates + row * gates_step + unit;
        Value* cell = gc + row * gc_step + unit;
        const Wide i = kept[0], f = kept[d], o = kept[2 * d], g = kept[3 * d];
        const Wide back = gh[row * gh_step + unit] + gy[row * gy_step + unit], before = c[row * c_step + unit];
        const Wide y = tanh(out_c[row * out_c_step + unit]);
        const Wide grad = *cell + (Wide(1) - y * y) * back * o;
        *cell = grad * f;
        kept[0] = grad * g * i * (Wide(1) - i);
        kept[d] = grad * before * f * (Wide(1) - f);
        kept[2 * d] = back * y * o * (Wide(1) - o);
        kept[3 * d] = grad * i * (Wide(1) - g * g);
    }
}
