// What CUDA C++ gives to the source of a kernel, for g++: put before the source, which includes nothing itself.
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <type_traits>
#include <utility>

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct uint3 {
    unsigned x, y, z;
};
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
static const int warpSize = 32;

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline
#define __launch_bounds__(...)

namespace simulated {

// What the Python side hands over for each launch.
struct Launch {
    unsigned grid[3], block[3];
    unsigned long long shared_bytes;
    char* shared;
    int reverse, fibers;
};

// The engine, a library of its own, has these; one launch at a time.
extern char fault[256];
extern char* dynamic_shared;
const char* run_grid(void (*kernel)(void**), void** args, const Launch& l, char* shared, size_t shared_bytes);
void garbage(char* at, unsigned long long n);
void wait_block(int line);
void wait_warp(unsigned mask);
// Where this lane puts what it shows to the others of its warp, and where the lane `from` did; null if it has not.
unsigned lane();
unsigned char* shown(bool full);
const unsigned char* seen(unsigned mask, unsigned from, bool full);

template <class... Args>
inline void fail(const char* text, Args... args) {
    if (fault[0] == 0) snprintf(fault, sizeof fault, text, args...);
}
inline void fail(const char* text) { fail("%s", text); }

// The sort of a parameter (pointer, floating point, whole number, other) and its size, for the check of the arguments.
template <class T>
int sort_of() {
    int sort = std::is_pointer<T>::value ? 1 : std::is_floating_point<T>::value ? 2 : std::is_integral<T>::value ? 3 : 4;
    return sort << 16 | (int)sizeof(T);
}
template <class... P>
int describe(void (*)(P...), int* out) {
    int n = 0;
    ((out[n++] = sort_of<P>()), ...);
    return n;
}
template <auto kernel, class... P, size_t... I>
void call(void (*)(P...), void** args, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_const_t<P>*>(args[I])...);
    (void)args;
}
template <auto kernel, class... P>
void call(void (*f)(P...), void** args) {
    call<kernel>(f, args, std::index_sequence_for<P...>());
}
template <auto kernel>
void call(void** args) {
    call<kernel>(kernel, args);
}

}  // namespace simulated

#define __syncthreads() simulated::wait_block(__LINE__)
