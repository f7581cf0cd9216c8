// What CuPy gives to the source of an element-wise kernel: its arrays, its indexer, its bfloat16.

namespace simulated {
// An array as the Python side describes it; strides in bytes.
struct Array {
    char* data;
    ptrdiff_t size;
    ptrdiff_t ndim;
    ptrdiff_t contiguous;
    ptrdiff_t shape[16], strides[16];
};
struct Loop {
    ptrdiff_t size;
    ptrdiff_t ndim;
    ptrdiff_t reverse;
    ptrdiff_t shape[16];
};
}  // namespace simulated

struct CIndexer {
    const simulated::Loop& loop;
    ptrdiff_t index[16];
    explicit CIndexer(const simulated::Loop& l) : loop(l), index{} {}
    ptrdiff_t size() const { return loop.size; }
    const ptrdiff_t* get() const { return index; }
    void set(ptrdiff_t i) {
        for (ptrdiff_t d = loop.ndim - 1; d > 0; --d) {
            index[d] = i % loop.shape[d];
            i /= loop.shape[d];
        }
        index[0] = i;
    }
};

template <class T>
struct CArray {
    const simulated::Array& a;
    const char* name;
    explicit CArray(const void* described, const char* n) : a(*(const simulated::Array*)described), name(n) {}
    ptrdiff_t size() const { return a.size; }
    const ptrdiff_t* shape() const { return a.shape; }
    const ptrdiff_t* strides() const { return a.strides; }
    T& operator[](const ptrdiff_t* index) const {
        char* at = a.data;
        for (ptrdiff_t d = 0; d < a.ndim; ++d) at += index[d] * a.strides[d];
        return *(T*)at;
    }
    T& operator[](ptrdiff_t i) const {
        static std::remove_const_t<T> nowhere;
        if (i < 0 || i >= a.size) {
            simulated::fail("%s[%td] is out of an array of %td elements", name, i, a.size);
            return nowhere;
        }
        if (a.contiguous) return ((T*)a.data)[i];
        char* at = a.data;
        for (ptrdiff_t d = a.ndim - 1; d >= 0; --d) {
            at += i % a.shape[d] * a.strides[d];
            i /= a.shape[d];
        }
        return *(T*)at;
    }
};

#ifdef SIMULATED_BFLOAT16
class bfloat16 {
    unsigned short data_;

  public:
    bfloat16() : data_(0) {}
    bfloat16(float v) {
        unsigned u = __float_as_uint(v);
        data_ = v != v ? 0x7fff : (unsigned short)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
    }
    explicit bfloat16(bool v) : bfloat16(float(v)) {}
    explicit bfloat16(double v) : bfloat16(float(v)) {}
    explicit bfloat16(int v) : bfloat16(float(v)) {}
    explicit bfloat16(unsigned int v) : bfloat16(float(v)) {}
    explicit bfloat16(long long v) : bfloat16(float(v)) {}
    explicit bfloat16(unsigned long long v) : bfloat16(float(v)) {}
    operator float() const { return __uint_as_float((unsigned)data_ << 16); }
    bfloat16(const bfloat16&) = default;
    bfloat16& operator=(const bfloat16&) = default;
    template <typename T>
    bfloat16& operator=(const T& rhs) {
        *this = static_cast<bfloat16>(rhs);
        return *this;
    }
    unsigned short to_bits() const { return data_; }
    static bfloat16 from_bits(unsigned short v) {
        bfloat16 out;
        out.data_ = v;
        return out;
    }
    int iszero() const { return (data_ & 0x7fffu) == 0; }
    int isnan() const { return (data_ & 0x7fffu) > 0x7f80u; }
    int isinf() const { return (data_ & 0x7fffu) == 0x7f80u; }
    int isfinite() const { return (data_ & 0x7fffu) < 0x7f80u; }
};
inline bfloat16 min(bfloat16 x, bfloat16 y) { return bfloat16(min(float(x), float(y))); }
inline bfloat16 max(bfloat16 x, bfloat16 y) { return bfloat16(max(float(x), float(y))); }
inline bfloat16 fmin(bfloat16 x, bfloat16 y) { return bfloat16(fmin(float(x), float(y))); }
inline bfloat16 fmax(bfloat16 x, bfloat16 y) { return bfloat16(fmax(float(x), float(y))); }
inline int iszero(bfloat16 x) { return x.iszero(); }
inline int isnan(bfloat16 x) { return x.isnan(); }
inline int isinf(bfloat16 x) { return x.isinf(); }
inline int isfinite(bfloat16 x) { return x.isfinite(); }
inline int signbit(bfloat16 x) { return (x.to_bits() & 0x8000u) != 0; }
#endif
