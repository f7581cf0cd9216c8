// Convolution by matrix products: unfold images into a matrix with a row for each window, and fold it back.
// Images are dense in memory in the order N, H, W, C. A row has kernel_y kernel_x channels values; channels vary
// fastest. The rows of all windows of the first image come first, then the rows of the next image. Neighbouring pixels
// of a window are `dilation` apart.
// Value: type of the images. Element: type of the matrix.

typedef wide<Value>::type Sum;

// Describes the windows: sizes of the images, numbers of windows, kernel, stride, padding and dilation.
#define WINDOWS                                                                                                     \
    int channels, int height, int width, int n_down, int n_across, int kernel_y, int kernel_x, int stride_y,        \
        int stride_x, int pad_y, int pad_x, int dilation_y, int dilation_x

// columns = the values of the windows, 0 outside of the images. `total` is the number of values in columns.
extern "C" __global__ void unfold(const Value* x, Element* columns, unsigned int total, WINDOWS) {
    for (long long value = THREAD; value < total; value += N_THREADS) {
        const unsigned int i = (unsigned int)value;
        const unsigned int place = i / channels, channel = i - place * channels;
        const unsigned int line = place / kernel_x, across = place - line * kernel_x;
        const unsigned int window = line / kernel_y, down = line - window * kernel_y;
        const unsigned int strip = window / n_across, column = window - strip * n_across;
        const unsigned int image = strip / n_down, row = strip - image * n_down;
        const int y = (int)(row * stride_y + down * dilation_y) - pad_y;
        const int left = (int)(column * stride_x + across * dilation_x) - pad_x;
        const bool inside = y >= 0 && y < height && left >= 0 && left < width;
        const long long pixel = ((long long)image * height + y) * width + left;
        columns[i] = inside ? (Element)(Sum)x[pixel * channels + channel] : (Element)0.0f;
    }
}

// x = for each pixel, the sum of its values in all rows, always added in the same order. `total` is the number of
// values in x.
extern "C" __global__ void fold(const Element* columns, Value* x, unsigned int total, WINDOWS) {
    for (long long value = THREAD; value < total; value += N_THREADS) {
        const unsigned int i = (unsigned int)value;
        const unsigned int pixel = i / channels, channel = i - pixel * channels;
        const unsigned int line = pixel / width, image = line / height;
        // position counted from the corner of the padding
        const int left = (int)(pixel - line * width) + pad_x, y = (int)(line - image * height) + pad_y;
        const int reach_y = (kernel_y - 1) * dilation_y + 1, reach_x = (kernel_x - 1) * dilation_x + 1;
        const int top = y < reach_y ? 0 : (y - reach_y) / stride_y + 1;
        const int first = left < reach_x ? 0 : (left - reach_x) / stride_x + 1;
        Sum sum = 0;
        for (int row = top; row < n_down && row * stride_y <= y; row++)
            for (int column = first; column < n_across && column * stride_x <= left; column++) {
                const int down = y - row * stride_y, across = left - column * stride_x;
                if (down % dilation_y || across % dilation_x)
                    continue;
                const long long window = ((long long)image * n_down + row) * n_across + column;
                const long long place = (window * kernel_y + down / dilation_y) * kernel_x + across / dilation_x;
                sum += (Sum)columns[place * channels + channel];
            }
        x[i] = (Value)sum;
    }
}
