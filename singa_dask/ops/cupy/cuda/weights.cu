// Weights of a step, copied to another type, and those of convolutions to the layout that cuDNN takes: from F, C, K to
// F, K, C, where K is a place in the window, one in other weights. In and Out are the types of values. A row of the
// table has the addresses that are read and written, the numbers of values, of C and of K, and how many chunks come
// before its own.

#define ROW 6
#define CHUNK 1024

// table[0] is the number of rows, table[1] that of all chunks
extern "C" __global__ void copy_weights(const long long* table) {
    const long long n_rows = table[0], n_chunks = table[1];
    for (long long chunk = blockIdx.x; chunk < n_chunks; chunk += gridDim.x) {
        // the last row that begins at this chunk or before it
        long long low = 0, high = n_rows - 1;
        while (low < high) {
            const long long middle = (low + high + 1) / 2;
            if (table[ROW * (middle + 1) + 5] <= chunk) low = middle;
            else high = middle - 1;
        }
        const long long* row = table + ROW * (low + 1);
        const In* from = (const In*)row[0];
        Out* to = (Out*)row[1];
        const long long n = row[2], channels = row[3], places = row[4], first = (chunk - row[5]) * CHUNK;
        for (long long i = first + threadIdx.x; i < n && i < first + CHUNK; i += blockDim.x) {
            long long source = i;
            if (places > 1) {  // divisions take longer than the copy
                const long long channel = i % channels, rest = i / channels, filter = rest / places;
                source = (filter * channels + channel) * places + rest % places;
            }
            to[i] = (Out)(wide<Out>::type)from[source];
        }
    }
}
