// Copy the weights of a step to another type. Weights of convolutions are also copied to the layout that cuDNN takes:
// from F, C, K to F, K, C, where K is a place in the window. Other weights have one place. In and Out are the types of
// the values. A row of the table has the addresses to read and to write, the number of values, C, K, and the number of
// chunks before the chunks of this row.

#define ROW 6
#define CHUNK 1024

// table[0] is the number of rows, table[1] the number of all chunks
extern "C" __global__ void copy_weights(const long long* table) {
    const long long n_rows = table[0], n_chunks = table[1];
    for (long long chunk = blockIdx.x; chunk < n_chunks; chunk += gridDim.x) {
        // find the last row whose first chunk is this chunk or an earlier one
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
            if (places > 1) {  // only if necessary, because divisions take longer than the copy
                const long long channel = i % channels, rest = i / channels, filter = rest / places;
                source = (filter * channels + channel) * places + rest % places;
            }
            to[i] = (Out)(wide<Out>::type)from[source];
        }
    }
}
