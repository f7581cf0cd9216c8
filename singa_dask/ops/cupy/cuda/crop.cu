// A part of each image, mirrored or not, normalised: from records of any strides to images that lie dense in memory as
// N, H, W, C. Record: type of the records. Value: that of the images. Index: counts all values.

typedef wide<Value>::type Sum;

// places: (3, N): top and left of each part, and whether it is mirrored.
// mean, std: (C, H, W) where `means`, `stds`; else not looked at, and one number for all.
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
