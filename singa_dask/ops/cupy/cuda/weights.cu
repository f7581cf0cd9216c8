// Weights of a step, copied to another layout: from F, C, K, I to F, K, C, I. CuDNN takes those of a convolution so, where
// K is a place in the window and I is 1; of attention K is a head and I the values of its rows. In and Out are the types
// of values. A row of the table has the addresses that are read and written, the numbers of values, of C, of K and of I,
// and how many chunks come before its own.

#define ROW 7
#define CHUNK 1024

// table[0] is the number of rows, table[1] that of all chunks
extern "C" __global__ void copy_weights(const long long* table) {
    const long long n_rows = table[0], n_chunks = table[1];
    for (long long chunk = blockIdx.x; chunk < n_chunks; chunk += gridDim.x) {
        // the last row that begins at this chunk or before it
        long long low = 0, high = n_rows - 1;
        while (low < high) {
            const long long middle = (low + high + 1) / 2;
            if (table[ROW * (middle + 1) + 6] <= chunk) low = middle;
            else high = middle - 1;
        }
        const long long* row = table + ROW * (low + 1);
        const In* from = (const In*)row[0];
        Out* to = (Out*)row[1];
        const long long n = row[2], channels = row[3], places = row[4], inner = row[5];
        const long long first = (chunk - row[6]) * CHUNK;
        for (long long i = first + threadIdx.x; i < n && i < first + CHUNK; i += blockDim.x) {
            const long long value = i % inner, column = i / inner, channel = column % channels, rest = column / channels;
            const long long place = rest % places, filter = rest / places;
            to[i] = (Out)(wide<Out>::type)from[((filter * channels + channel) * places + place) * inner + value];
        }
    }
}
