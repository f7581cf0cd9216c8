// Crop, mirror and normalise images: from records with any strides to images that are dense in memory in the order N,
// H, W, C.
// Record: type of the records. Value: type of the images. Index: type that can count all values.

typedef wide<Value>::type Sum;

// places: (3, N): top row and left column of each crop, and whether it is mirrored.
// mean, std: (C, H, W) if `means` or `stds` is set. Otherwise they are not read, and one_mean or one_std is used.
extern "C" __global__ void crop_mirror_normalize(
    const Record* x, const int* places, const Sum* mean, const Sum* std, Value* out, Index total, int n_images,
    int channels, int height, int width, int part_height, int part_width, long long image_step, long long channel_step,
    long long row_step, long long column_step, bool means, bool stds, Sum one_mean, Sum one_std, Sum scale) {
    for (Index i = THREAD; i < total; i += N_THREADS) {
        Index pixel = i / channels, line = pixel / part_width;
        int channel = (int)(i - pixel * channels), column = (int)(pixel - line * part_width);
        int image = (int)(line / part_height), row = (int)(line - (Index)image * part_height);
        row += places[image];
        column = places[n_images + image] + (places[2 * n_images + image] ? part_width - 1 - column : column);
        Sum value = (Sum)x[image * image_step + channel * channel_step + row * row_step + column * column_step];
        int at = (channel * height + row) * width + column;
        value -= means ? mean[at] : one_mean;
        value /= stds ? std[at] : one_std;
        out[i] = (Value)(value * scale);
    }
}
