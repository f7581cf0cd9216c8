// Random numbers by address, with the same bits as `singa_dask.ops.philox.uniform`: Philox 4x64 with ten rounds, after
// Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011), with NumPy's counter.
//
// `words` has the two 64-bit words of a key, the two words of a second key, and the number of the first row.
// T is the type of the array that is written. An array is (N, A, B, C), with strides in values.

typedef unsigned long long u64;

#define VALUES 8

// Products and sums that are rounded separately, as in NumPy.
#ifdef __CUDA_ARCH__
__device__ float times(float a, float b) { return __fmul_rn(a, b); }
__device__ float plus(float a, float b) { return __fadd_rn(a, b); }
__device__ double plus(double a, double b) { return __dadd_rn(a, b); }
#else
__device__ float times(float a, float b) { return a * b; }
__device__ float plus(float a, float b) { return a + b; }
__device__ double plus(double a, double b) { return a + b; }
#endif

// Draw the eight values in [0, 1) of one step of the counter.
__device__ void draw(u64 key0, u64 key1, u64 counter, float* values) {
    const u64 m0 = 0xD2E7470EE14C6C93ull, m1 = 0xCA5A826395121157ull;
    u64 c[4] = {counter, 0, 0, 0};
    for (int round = 0; round < 10; ++round) {
        const u64 high0 = __umul64hi(m0, c[0]), low0 = m0 * c[0], high1 = __umul64hi(m1, c[2]), low1 = m1 * c[2];
        c[0] = high1 ^ c[1] ^ key0;
        c[1] = low1;
        c[2] = high0 ^ c[3] ^ key1;
        c[3] = low0;
        key0 += 0x9E3779B97F4A7C15ull;
        key1 += 0xBB67AE8584CAA73Bull;
    }
    for (int k = 0; k < VALUES; ++k)
        values[k] = (float)((unsigned int)(c[k / 2] >> (k % 2 * 32)) >> 8) * (1.0f / 16777216.0f);
}

struct Images {
    long long n_rows, a, b, c, row, step_a, step_b, step_c;

    // Return the position of value i of a row. Indices are converted to 32 bits, which every image fits in, because
    // dividing 64-bit integers takes longer than drawing.
    __device__ long long at(long long i) const {
        if ((b == 1 || step_b == c * step_c) && (a == 1 || step_a == b * c * step_c)) return i * step_c;
        const unsigned int value = (unsigned int)i, line = value / (unsigned int)c, plane = line / (unsigned int)b;
        return plane * step_a + (line - plane * b) * step_b + (value - line * c) * step_c;
    }
};

#define SHAPE long long n_rows, long long a, long long b, long long c
#define STEPS(x) long long x##_row, long long x##_a, long long x##_b, long long x##_c
#define IMAGES(x) Images{n_rows, a, b, c, x##_row, x##_a, x##_b, x##_c}

// Loop over all values; a thread draws eight values of a row at a time. If channels are contiguous and divisible into
// groups of eight, neighbouring threads draw neighbouring channels, so that a warp writes contiguous memory.
#define EACH_COUNT                                                                                    \
    const long long size = a * b * c, counts = (size + VALUES - 1) / VALUES;                          \
    const long long planes = to.step_a == 1 && b * c % VALUES == 0 ? a : 1;                           \
    for (long long count = THREAD; count < n_rows * counts; count += N_THREADS)
#define COUNT_OF_ROW                                                                                  \
    const long long n = count / counts;                                                               \
    const unsigned int turn = (unsigned int)(count - n * counts), place = turn / (unsigned int)planes; \
    const long long part = (turn - place * planes) * (counts / planes) + place, first = part * VALUES; \
    const int n_here = size - first < VALUES ? (int)(size - first) : VALUES;                          \
    /* NumPy increments its counter before it draws */                                                \
    const u64 counter = (words[4] + n) * counts + part + 1;                                           \
    float u[VALUES];                                                                                  \
    draw(words[0], words[1], counter, u)
// The number of iterations is fixed, so that the values stay in registers.
#define EACH_HERE                                                                                     \
    for (int k = 0; k < VALUES; ++k)                                                                  \
        if (k < n_here)

extern "C" __global__ void uniform(
    const u64* words, T* out, SHAPE, STEPS(out), double low, double width
) {
    typedef wide<T>::type W;
    const Images to = IMAGES(out);
    EACH_COUNT {
        COUNT_OF_ROW;
        EACH_HERE
            out[n * to.row + to.at(first + k)] = (T)plus((W)times(u[k], (float)width), (W)low);
    }
}

extern "C" __global__ void dropout_mask(
    const u64* words, T* out, SHAPE, STEPS(out), double keep
) {
    typedef wide<T>::type W;
    const Images to = IMAGES(out);
    const W kept = (W)(1 / keep);
    EACH_COUNT {
        COUNT_OF_ROW;
        EACH_HERE
            out[n * to.row + to.at(first + k)] = (T)(u[k] < (float)keep ? kept : (W)0);
    }
}

// out may be p, because the thread that reads a value also overwrites it.
extern "C" __global__ void bernoulli(
    const u64* words, const P* p, T* out, SHAPE, STEPS(p), STEPS(out)
) {
    typedef wide<P>::type V;
    typedef wide<T>::type W;
    const Images from = IMAGES(p), to = IMAGES(out);
    EACH_COUNT {
        COUNT_OF_ROW;
        EACH_HERE {
            const V chance = (V)p[n * from.row + from.at(first + k)];
            out[n * to.row + to.at(first + k)] = (T)((V)u[k] < chance ? (W)1 : (W)0);
        }
    }
}

// The Box-Muller transform of draws with two keys, one for the angle and one for the radius.
extern "C" __global__ void gaussian(
    const u64* words, T* out, SHAPE, STEPS(out), double mean, double std
) {
    typedef wide<T>::type W;
    const Images to = IMAGES(out);
    EACH_COUNT {
        COUNT_OF_ROW;
        float v[VALUES];
        draw(words[2], words[3], counter, v);
        EACH_HERE {
            const float angle = times(u[k], 6.2831855f), radius = sqrtf(-2 * log1pf(-v[k]));
            out[n * to.row + to.at(first + k)] = (T)plus((W)times(cosf(angle) * radius, (float)std), (W)mean);
        }
    }
}
