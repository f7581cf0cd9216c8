// Pooling of images that are dense in memory in the order N, H, W, C. A thread computes WIDTH neighbouring channels of
// one pixel, so that a warp reads contiguous memory. `packs` is the number of such groups of channels in a pixel.
// Value: type of the images. Place: type of places in a window. Index: type that can count the packs of all images.

typedef wide<Value>::type Sum;

struct alignas(sizeof(Value) * WIDTH) Values {
    Value at[WIDTH];
};

struct alignas(sizeof(Place) * WIDTH) Places {
    Place at[WIDTH];
};

// Describes the windows: sizes of the larger images and of the smaller images, kernel, stride and padding. Then the
// factors to divide by the packs of a pixel, the pixels of a line and the lines of an image, for the images that are
// written.
#define WINDOWS \
    int packs, int height, int width, int n_down, int n_across, int kernel_y, int kernel_x, int stride_y, \
        int stride_x, int pad_y, int pad_x, unsigned long long by_packs, unsigned long long by_columns, \
        unsigned long long by_rows
#define THESE_WINDOWS \
    packs, height, width, n_down, n_across, kernel_y, kernel_x, stride_y, stride_x, pad_y, pad_x, by_packs, by_columns, \
        by_rows

// Number of neighbouring pixels of a window that are loaded at the same time.
#define AT_ONCE 3

struct Range {
    int first, stop;
};

static __device__ int up_to(int value, int most) {
    return value < most ? value : most;
}

// Return the pixels of the image that are in a window, along one axis.
static __device__ Range pixels_of(int window, int n_pixels, int kernel, int stride, int pad) {
    int start = window * stride - pad;
    return {start < 0 ? 0 : start, up_to(start + kernel, n_pixels)};
}

// Return n / stride. Most strides are 1 or 2, and all threads have the same stride.
static __device__ int steps_of(int n, int stride) {
    return stride == 1 ? n : stride == 2 ? n >> 1 : n / stride;
}

// Return the windows that contain a pixel of the image, along one axis.
static __device__ Range windows_of(int pixel, int n_windows, int kernel, int stride, int pad) {
    int end = pixel + pad;
    return {end < kernel ? 0 : steps_of(end - kernel, stride) + 1, up_to(steps_of(end, stride) + 1, n_windows)};
}

struct Spot {
    int pack, column, row;
    Index image;
};

static __device__ Spot spot_of(Index i, int packs, int n_columns, int n_rows, unsigned long long by_packs,
                               unsigned long long by_columns, unsigned long long by_rows) {
    Index pixel = quotient(i, packs, by_packs), line = quotient(pixel, n_columns, by_columns);
    Index image = quotient(line, n_rows, by_rows);
    return {(int)(i - pixel * packs), (int)(pixel - line * n_columns), (int)(line - image * n_rows), image};
}

template <bool KEEP>
static __device__ void take_largest(const Values* x, Values* y, Places* where, Index total, WINDOWS) {
    for (Index i = THREAD; i < total; i += N_THREADS) {
        Spot spot = spot_of(i, packs, n_across, n_down, by_packs, by_columns, by_rows);
        Range rows = pixels_of(spot.row, height, kernel_y, stride_y, pad_y);
        Range columns = pixels_of(spot.column, width, kernel_x, stride_x, pad_x);
        int top = spot.row * stride_y - pad_y, left = spot.column * stride_x - pad_x;
        Sum best[WIDTH];
        int place[WIDTH];
        bool fresh = true;
        for (int row = rows.first; row < rows.stop; row++) {
            const Values* line = x + ((spot.image * height + row) * width) * packs + spot.pack;
            for (int column = columns.first; column < columns.stop; column += AT_ONCE) {
                Values values[AT_ONCE];
                for (int n = 0; n < AT_ONCE; n++) values[n] = line[(Index)up_to(column + n, columns.stop - 1) * packs];
                for (int n = 0; n < AT_ONCE; n++) {
                    // the last pixel may be repeated; a repeated pixel does not replace itself
                    int here = (row - top) * kernel_x + up_to(column + n, columns.stop - 1) - left;
                    for (int k = 0; k < WIDTH; k++) {
                        Sum value = values[n].at[k];
                        // NaN replaces any value, so that it is visible in the result
                        if (fresh || value > best[k] || value != value) {
                            best[k] = value;
                            place[k] = here;
                        }
                    }
                    fresh = false;
                }
            }
        }
        Values largest;
        for (int k = 0; k < WIDTH; k++) largest.at[k] = (Value)best[k];
        y[i] = largest;
        if (KEEP) {
            Places places;
            for (int k = 0; k < WIDTH; k++) places.at[k] = (Place)place[k];
            where[i] = places;
        }
    }
}

extern "C" __global__ void max_pool(const Values* x, Values* y, Index total, WINDOWS) {
    take_largest<false>(x, y, nullptr, total, THESE_WINDOWS);
}

extern "C" __global__ void max_pool_places(const Values* x, Values* y, Places* where, Index total, WINDOWS) {
    take_largest<true>(x, y, where, total, THESE_WINDOWS);
}

// out = for each pixel, the sum over the windows that contain it. `add(sums, pixel, window, place)` adds the value of a
// window, always in the order of places. No two threads write to the same place, so results have the same bits in each
// run.
template <class Add>
static __device__ void gather(Values* out, Index total, WINDOWS, Add add, const Values* relu = nullptr) {
    for (Index i = THREAD; i < total; i += N_THREADS) {
        Spot spot = spot_of(i, packs, width, height, by_packs, by_columns, by_rows);
        Range down = windows_of(spot.row, n_down, kernel_y, stride_y, pad_y);
        Range across = windows_of(spot.column, n_across, kernel_x, stride_x, pad_x);
        Sum sums[WIDTH];
        for (int k = 0; k < WIDTH; k++) sums[k] = 0;
        for (int row = down.stop - 1; row >= down.first; row--) {
            Index line = (spot.image * n_down + row) * n_across;
            int above = spot.row + pad_y - row * stride_y;
            for (int column = across.stop - 1; column >= across.first; column--) {
                int place = above * kernel_x + spot.column + pad_x - column * stride_x;
                add(sums, i, (line + column) * packs + spot.pack, place, row, column);
            }
        }
        Values made;
        for (int k = 0; k < WIDTH; k++) made.at[k] = (Value)sums[k];
        if (relu) {
            Values kept = relu[i];
            for (int k = 0; k < WIDTH; k++)
                if (!((Sum)kept.at[k] > (Sum)0)) made.at[k] = (Value)(Sum)0;
        }
        out[i] = made;
    }
}

extern "C" __global__ void max_pool_grad(const Values* gy, const Places* where, Values* gx, Index total, WINDOWS) {
    gather(gx, total, THESE_WINDOWS, [=](Sum* sums, Index, Index window, int place, int, int) {
        Places won = where[window];
        Values g = gy[window];
        for (int k = 0; k < WIDTH; k++) sums[k] += won.at[k] == place ? (Sum)g.at[k] : (Sum)0;
    });
}

extern "C" __global__ void max_pool_grad_ties(const Values* x, const Values* y, const Values* gy, Values* gx,
                                              Index total, WINDOWS) {
    gather(gx, total, THESE_WINDOWS, [=](Sum* sums, Index pixel, Index window, int, int, int) {
        Values value = x[pixel], largest = y[window], g = gy[window];
        for (int k = 0; k < WIDTH; k++) sums[k] += (Sum)value.at[k] == (Sum)largest.at[k] ? (Sum)g.at[k] : (Sum)0;
    });
}

// Return 1 divided by the number of values that the mean of a window counts.
static __device__ Sum share_of(int row, int column, bool count_pad, WINDOWS) {
    if (count_pad) return (Sum)1 / (Sum)(kernel_y * kernel_x);
    Range rows = pixels_of(row, height, kernel_y, stride_y, pad_y);
    Range columns = pixels_of(column, width, kernel_x, stride_x, pad_x);
    return (Sum)1 / (Sum)((rows.stop - rows.first) * (columns.stop - columns.first));
}

extern "C" __global__ void avg_pool(const Values* x, Values* y, Index total, WINDOWS, bool count_pad) {
    for (Index i = THREAD; i < total; i += N_THREADS) {
        Spot spot = spot_of(i, packs, n_across, n_down, by_packs, by_columns, by_rows);
        Range rows = pixels_of(spot.row, height, kernel_y, stride_y, pad_y);
        Range columns = pixels_of(spot.column, width, kernel_x, stride_x, pad_x);
        Sum sums[WIDTH];
        for (int k = 0; k < WIDTH; k++) sums[k] = 0;
        for (int row = rows.first; row < rows.stop; row++) {
            const Values* line = x + ((spot.image * height + row) * width) * packs + spot.pack;
            for (int column = columns.first; column < columns.stop; column += AT_ONCE) {
                Values values[AT_ONCE];
                for (int n = 0; n < AT_ONCE; n++) values[n] = line[(Index)up_to(column + n, columns.stop - 1) * packs];
                for (int n = 0; n < AT_ONCE; n++) {
                    for (int k = 0; k < WIDTH; k++) {
                        sums[k] += column + n < columns.stop ? (Sum)values[n].at[k] : (Sum)0;
                    }
                }
            }
        }
        Sum share = share_of(spot.row, spot.column, count_pad, THESE_WINDOWS);
        Values mean;
        for (int k = 0; k < WIDTH; k++) mean.at[k] = (Value)(sums[k] * share);
        y[i] = mean;
    }
}

// With `of_relu`, the images are the output y of a ReLU, and the gradient is 0 where y is not positive.
extern "C" __global__ void avg_pool_grad(const Values* gy, const Values* y, Values* gx, Index total, WINDOWS,
                                         bool count_pad, bool of_relu) {
    gather(gx, total, THESE_WINDOWS, [=](Sum* sums, Index, Index window, int, int row, int column) {
        Sum share = share_of(row, column, count_pad, THESE_WINDOWS);
        Values g = gy[window];
        for (int k = 0; k < WIDTH; k++) sums[k] += (Sum)g.at[k] * share;
    }, of_relu ? y : nullptr);
}
