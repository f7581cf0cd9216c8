// The functions of CUDA C++ that kernels call.

static inline void __syncwarp(unsigned mask = 0xffffffffu) { simulated::wait_warp(mask); }
static inline void __threadfence() {}
static inline void __threadfence_block() {}

namespace simulated {
// The value of lane `from` of this warp: a fault where there is no such lane, it has left, or it is not in the mask.
template <class T>
T exchange(unsigned mask, T value, unsigned from) {
    static_assert(sizeof(T) <= 8, "shuffles move 4 or 8 bytes");
    bool full = mask == 0xffffffffu;
    unsigned char* mine = shown(full);
    if (mine != nullptr) memcpy(mine, &value, sizeof(T));
    wait_warp(mask);
    if (mine == nullptr) return value;
    T got;
    const unsigned char* other = seen(mask, from, full);
    if (other != nullptr)
        memcpy(&got, other, sizeof(T));
    else {
        fail("a shuffle reads from a lane that has left, or is not in the mask");
        garbage((char*)&got, sizeof(T));
    }
    if (!full) wait_warp(mask);
    return got;
}

// One bit for each lane of this warp; 0 where there is no such lane, it has left, or it is not in the mask.
inline unsigned ballot(unsigned mask, unsigned bit) {
    bool full = mask == 0xffffffffu;
    unsigned char* mine = shown(full);
    if (mine != nullptr) memcpy(mine, &bit, sizeof bit);
    wait_warp(mask);
    unsigned all = 0, got;
    for (unsigned from = 0; mine != nullptr && from < 32; ++from) {
        const unsigned char* other = seen(mask, from, full);
        if (other == nullptr) continue;
        memcpy(&got, other, sizeof got);
        all |= got << from;
    }
    if (!full && mine != nullptr) wait_warp(mask);
    return all;
}
}  // namespace simulated

template <class T>
T __shfl_sync(unsigned mask, T v, int from, int width = 32) {
    unsigned lane = simulated::lane();
    return simulated::exchange(mask, v, (lane & ~(unsigned)(width - 1)) + ((unsigned)from & (width - 1)));
}
template <class T>
T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32) {
    unsigned lane = simulated::lane(), from = lane ^ (unsigned)bits;
    return simulated::exchange(mask, v, from >= (lane & ~(unsigned)(width - 1)) + width ? lane : from);
}
template <class T>
T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32) {
    unsigned lane = simulated::lane(), at = lane & (width - 1);
    return simulated::exchange(mask, v, at + by < (unsigned)width ? lane + by : lane);
}
template <class T>
T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32) {
    unsigned lane = simulated::lane(), at = lane & (width - 1);
    return simulated::exchange(mask, v, at >= by ? lane - by : lane);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate) { return simulated::ballot(mask, predicate != 0); }
static inline int __any_sync(unsigned mask, int predicate) { return __ballot_sync(mask, predicate) != 0; }
static inline int __all_sync(unsigned mask, int predicate) { return __ballot_sync(mask, !predicate) == 0; }

template <class T>
inline T __ldg(const T* p) {
    return *p;
}

// The overloads that CUDA has, and no more: a call that is ambiguous there is ambiguous here.
#define SIMULATED_MIN_MAX(A, B, R)                                                  \
    inline constexpr R min(const A a, const B b) { return (R)a < (R)b ? (R)a : (R)b; } \
    inline constexpr R max(const A a, const B b) { return (R)a < (R)b ? (R)b : (R)a; }
SIMULATED_MIN_MAX(int, int, int)
SIMULATED_MIN_MAX(unsigned, unsigned, unsigned)
SIMULATED_MIN_MAX(int, unsigned, unsigned)
SIMULATED_MIN_MAX(unsigned, int, unsigned)
SIMULATED_MIN_MAX(long, long, long)
SIMULATED_MIN_MAX(unsigned long, unsigned long, unsigned long)
SIMULATED_MIN_MAX(long, unsigned long, unsigned long)
SIMULATED_MIN_MAX(unsigned long, long, unsigned long)
SIMULATED_MIN_MAX(long long, long long, long long)
SIMULATED_MIN_MAX(unsigned long long, unsigned long long, unsigned long long)
SIMULATED_MIN_MAX(long long, unsigned long long, unsigned long long)
SIMULATED_MIN_MAX(unsigned long long, long long, unsigned long long)
#undef SIMULATED_MIN_MAX
#define SIMULATED_MIN_MAX(A, B, R)                                   \
    inline R min(const A a, const B b) { return fmin((R)a, (R)b); } \
    inline R max(const A a, const B b) { return fmax((R)a, (R)b); }
SIMULATED_MIN_MAX(float, float, float)
SIMULATED_MIN_MAX(double, double, double)
SIMULATED_MIN_MAX(float, double, double)
SIMULATED_MIN_MAX(double, float, double)
#undef SIMULATED_MIN_MAX

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline float rsqrt(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return fminf(fmaxf(x, 0.0f), 1.0f); }
inline float sinpif(float x) { return (float)sin(M_PI * (double)x); }
inline float cospif(float x) { return (float)cos(M_PI * (double)x); }
inline float sinpi(float x) { return sinpif(x); }
inline float cospi(float x) { return cospif(x); }
inline double sinpi(double x) { return sin(M_PI * x); }
inline double cospi(double x) { return cos(M_PI * x); }
inline void sincospif(float x, float* s, float* c) { *s = sinpif(x), *c = cospif(x); }
inline void sincospi(double x, double* s, double* c) { *s = sinpi(x), *c = cospi(x); }

// Each operation by itself, rounded: g++ is told not to fuse them.
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fsqrt_rn(float a) { return sqrtf(a); }
inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline double __dsqrt_rn(double a) { return sqrt(a); }
inline double __fma_rn(double a, double b, double c) { return fma(a, b, c); }

namespace simulated {
template <class To, class From>
inline To bits(From v) {
    static_assert(sizeof(To) == sizeof(From), "the same number of bits");
    To out;
    memcpy(&out, &v, sizeof v);
    return out;
}
}  // namespace simulated
inline int __float_as_int(float v) { return simulated::bits<int>(v); }
inline unsigned __float_as_uint(float v) { return simulated::bits<unsigned>(v); }
inline float __int_as_float(int v) { return simulated::bits<float>(v); }
inline float __uint_as_float(unsigned v) { return simulated::bits<float>(v); }
inline long long __double_as_longlong(double v) { return simulated::bits<long long>(v); }
inline double __longlong_as_double(long long v) { return simulated::bits<double>(v); }
inline int __float2int_rn(float v) { return (int)lrintf(v); }
inline int __float2int_rz(float v) { return (int)v; }
inline int __float2int_rd(float v) { return (int)floorf(v); }
inline float __int2float_rn(int v) { return (float)v; }
inline float __uint2float_rn(unsigned v) { return (float)v; }
inline float __double2float_rn(double v) { return (float)v; }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}
inline long long __mul64hi(long long a, long long b) { return (long long)(((__int128)a * b) >> 64); }
inline unsigned __umulhi(unsigned a, unsigned b) { return (unsigned)(((unsigned long long)a * b) >> 32); }
inline int __mulhi(int a, int b) { return (int)(((long long)a * b) >> 32); }
inline int __popc(unsigned v) { return __builtin_popcount(v); }
inline int __popcll(unsigned long long v) { return __builtin_popcountll(v); }
inline int __clz(int v) { return v ? __builtin_clz((unsigned)v) : 32; }
inline int __clzll(long long v) { return v ? __builtin_clzll((unsigned long long)v) : 64; }
inline int __ffs(int v) { return __builtin_ffs(v); }

// Whole numbers only: the order of sums of floats would differ from run to run.
#define SIMULATED_ATOMICS(T)                                                     \
    inline T atomicAdd(T* at, T v) { T old = *at; *at = (T)(old + v); return old; } \
    inline T atomicMax(T* at, T v) { T old = *at; *at = old < v ? v : old; return old; } \
    inline T atomicMin(T* at, T v) { T old = *at; *at = v < old ? v : old; return old; } \
    inline T atomicOr(T* at, T v) { T old = *at; *at = old | v; return old; }    \
    inline T atomicExch(T* at, T v) { T old = *at; *at = v; return old; }        \
    inline T atomicCAS(T* at, T is, T v) { T old = *at; if (old == is) *at = v; return old; }
SIMULATED_ATOMICS(int)
SIMULATED_ATOMICS(unsigned)
SIMULATED_ATOMICS(unsigned long long)
#undef SIMULATED_ATOMICS
inline unsigned atomicInc(unsigned* at, unsigned most) { unsigned old = *at; *at = old >= most ? 0 : old + 1; return old; }
template <class T>
T __ldcg(const T* at) { return *at; }

#define SIMULATED_VECTORS(T, N)                                             \
    struct alignas(2 * sizeof(T)) N##2 { T x, y; };                         \
    struct alignas(sizeof(T) < 8 ? 4 * sizeof(T) : 16) N##4 { T x, y, z, w; }; \
    inline N##2 make_##N##2(T x, T y) { return N##2{x, y}; }                \
    inline N##4 make_##N##4(T x, T y, T z, T w) { return N##4{x, y, z, w}; }
SIMULATED_VECTORS(float, float)
SIMULATED_VECTORS(double, double)
SIMULATED_VECTORS(int, int)
SIMULATED_VECTORS(unsigned, uint)
SIMULATED_VECTORS(unsigned char, uchar)
SIMULATED_VECTORS(unsigned short, ushort)
SIMULATED_VECTORS(long long, longlong)
#undef SIMULATED_VECTORS
