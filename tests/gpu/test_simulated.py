"""The simulated GPU finds what it is there to find."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

cupy = pytest.importorskip("cupy")
if not hasattr(cupy, "__simulated__"):
    pytest.skip("CuPy has a real GPU here", allow_module_level=True)

CUDARuntimeError = cupy.cuda.runtime.CUDARuntimeError

SOURCE = """
extern "C" __global__ void twice(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
extern "C" __global__ void one_too_far(float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i <= n) y[i] = 1;
}
__device__ float sum_of_warp(float v) {
    for (int by = 16; by > 0; by /= 2) v += __shfl_xor_sync(0xffffffffu, v, by);
    return v;
}
extern "C" __global__ void __launch_bounds__(128) sum(const float* __restrict__ x, float* out, int n) {
    __shared__ float parts[4];
    float v = 0;
    for (int i = threadIdx.x; i < n; i += blockDim.x) v += x[i];
    v = sum_of_warp(v);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x == 0) out[0] = parts[0] + parts[1] + parts[2] + parts[3];
}
extern "C" __global__ void from_the_left(float* out) {
    extern __shared__ float line[];
    line[threadIdx.x] = threadIdx.x;
    SYNC
    out[threadIdx.x] = threadIdx.x ? line[threadIdx.x - 1] : -1.0f;
}
extern "C" __global__ void add_up(float* out) { out[0] = 10 * out[0] + blockIdx.x; }
extern "C" __global__ void vote(unsigned* out) { out[threadIdx.x] = __ballot_sync(0xffffffffu, threadIdx.x % 3 == 0); }
extern "C" __global__ void some_leave(float* out, int n) {
    if ((int)threadIdx.x >= n) return;
    out[threadIdx.x] = __shfl_down_sync(0xffffffffu, 1.0f, 1);
}
extern "C" __global__ void some_wait(float* out) {
    if (threadIdx.x < 7) __syncthreads();
    out[threadIdx.x] = 0;
}
"""


def kernel(name: str, sync: str = "__syncthreads();") -> Any:
    return cupy.RawModule(code=SOURCE, options=(f"-DSYNC={sync}",)).get_function(name)


@pytest.fixture(autouse=True)
def usual_order(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever the environment says and other tests have entered: late streams, and the default one for this thread."""
    monkeypatch.delenv("SIMULATED_ORDER", raising=False)
    with cupy.cuda.Stream.null:
        yield


@pytest.fixture
def stream() -> Iterator[Any]:
    with cupy.cuda.Stream(non_blocking=True) as stream:
        yield stream


@pytest.fixture
def reverse(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMULATED_ORDER", "reverse")


def floats(*shape: int) -> Any:
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)


def test_arrays_are_made_viewed_and_copied(stream: Any) -> None:
    host = floats(3, 4)
    x = cupy.asarray(host)
    np.testing.assert_array_equal(x.T[1:, ::2].get(), host.T[1:, ::2])
    np.testing.assert_array_equal((2 * x - x / 4).get(), 2 * host - host / 4)
    x[1:, :2] += cupy.asarray(host[1:, :2])
    x[0, ...] = 7
    assert float(x.sum()) == 28 + 2 * (5 + 6 + 9 + 10) + 7 + 8 + 11 + 12
    assert np.isnan(cupy.empty(5, np.float32).get()).all()
    out = np.exp(x, out=np.empty_like(x))
    np.testing.assert_array_equal(np.clip(out, 0, 1).get(), 1)


@pytest.mark.parametrize(
    "mix",
    [
        lambda x, host: np.asarray(x),
        lambda x, host: x + host,
        lambda x, host: host + x,
        lambda x, host: np.add(x, x, out=host),
        lambda x, host: cupy.ElementwiseKernel("T x", "T y", "y = x")(host, x),
        lambda x, host: kernel("twice")((1,), (32,), (x, host, np.int32(1))),
    ],
)
def test_a_host_array_does_not_mix_in(mix: Any) -> None:
    host = floats(4)
    with pytest.raises(TypeError):
        mix(cupy.asarray(host), host)


def test_kernels_with_and_without_barriers(stream: Any) -> None:
    x, y, total = cupy.asarray(floats(300)), cupy.empty(300, np.float32), cupy.empty(1, np.float32)
    kernel("twice")((3,), (128,), (x, y, np.int32(300)))
    kernel("sum")((1,), (128,), (y, total, np.int32(300)))
    assert float(total) == 300 * 301


@pytest.mark.parametrize(
    "args",
    [
        lambda x: (x, x, np.int64(4)),
        lambda x: (x, x, 4),
        lambda x: (x, x, np.float32(4)),
        lambda x: (x, np.int64(0), np.int32(4)),
        lambda x: (x, x),
    ],
)
def test_an_argument_of_the_wrong_size_or_sort_is_refused(args: Any) -> None:
    with pytest.raises(TypeError, match="twice"):
        kernel("twice")((1,), (32,), args(cupy.asarray(floats(4))))


@pytest.mark.parametrize(("grid", "block"), [((1,), (1025,)), ((1, 70000), (32,)), ((0,), (32,)), ((1,), (32, 64))])
def test_a_launch_beyond_the_limits_is_refused(grid: Any, block: Any) -> None:
    x = cupy.asarray(floats(4))
    with pytest.raises(cupy.cuda.driver.CUDADriverError, match="invalid argument"):
        kernel("twice")(grid, block, (x, x, np.int32(4)))


def test_too_much_shared_memory_is_refused() -> None:
    code = 'extern "C" __global__ void big(float* x) { __shared__ float all[13000]; all[0] = *x; *x = all[0]; }'
    with pytest.raises(cupy.cuda.compiler.CompileException, match="too much shared data"):
        cupy.RawModule(code=code).get_function("big")


def test_source_with_an_error_says_where() -> None:
    with pytest.raises(cupy.cuda.compiler.CompileException, match="kernel:2"):
        cupy.RawModule(code='\nextern "C" __global__ void bad(float* x) { x = y; }').get_function("bad")


def test_a_write_out_of_bounds_is_found_and_names_the_kernel(stream: Any) -> None:
    y = cupy.empty(50, np.float32)
    kernel("one_too_far")((1,), (64,), (y, np.int32(50)))
    with pytest.raises(CUDARuntimeError, match="one_too_far wrote after the 200 bytes"):
        stream.synchronize()


def test_a_raw_index_out_of_bounds_is_found() -> None:
    take = cupy.ElementwiseKernel("raw T x, int32 by", "T y", "y = x[i + by]", "take")
    x, y = cupy.asarray(floats(4)), cupy.empty(4, np.float32)
    with pytest.raises(CUDARuntimeError, match=r"x\[4\] is out of an array of 4 elements"):
        take(x, 1, y)


def test_a_missing_barrier_is_found_in_reverse(reverse: None) -> None:
    out = cupy.empty(64, np.float32)
    kernel("from_the_left", "")((1,), (64,), (out,), shared_mem=256)
    assert np.isnan(out.get()[1:]).all()
    kernel("from_the_left")((1,), (64,), (out,), shared_mem=256)
    np.testing.assert_array_equal(out.get(), np.arange(-1, 63))


def test_blocks_run_in_reverse(monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for order in ("", "reverse"):
        monkeypatch.setenv("SIMULATED_ORDER", order)
        x = cupy.zeros(1, np.float32)
        kernel("add_up")((4,), (1,), (x,))
        results.append(float(x))
    assert results == [123, 3210]


def test_a_barrier_that_only_some_reach_is_found() -> None:
    with pytest.raises(CUDARuntimeError, match="7 of the 32 threads"):
        kernel("some_wait")((1,), (32,), (cupy.empty(32, np.float32),))


def test_lanes_vote() -> None:
    out = cupy.empty(40, np.uint32)
    kernel("vote")((1,), (40,), (out,))
    np.testing.assert_array_equal(out.get(), [sum(1 << lane for lane in range(0, 32, 3))] * 32 + [0b10010010] * 8)


def test_a_shuffle_from_a_lane_that_has_left_is_found() -> None:
    kernel("some_leave")((1,), (32,), (cupy.empty(32, np.float32), np.int32(32)))
    with pytest.raises(CUDARuntimeError, match="a lane that has left"):
        kernel("some_leave")((1,), (32,), (cupy.empty(32, np.float32), np.int32(31)))


def test_elements_broadcast_and_letters_bind() -> None:
    add = cupy.ElementwiseKernel(
        "T x, raw T y, float32 s", "T z", "z = x * s + y[i % 3] + (i == _ind.size() - 1)", "add"
    )
    x, y = floats(4, 3), floats(3)
    want = x * 2.5 + y
    want[-1, -1] += 1
    np.testing.assert_array_equal(add(cupy.asarray(x), cupy.asarray(y), 2.5).get(), want)
    turned = cupy.empty((3, 4), np.float32).T
    assert add(cupy.asarray(x), cupy.asarray(y), np.float64(2.5), turned) is turned
    np.testing.assert_array_equal(turned.get(), want)
    with pytest.raises(TypeError, match="mismatched"):
        add(cupy.asarray(x), cupy.asarray(y.astype(np.float64)), 2.5)
    with pytest.raises(ValueError, match="Out shape is mismatched"):
        add(cupy.asarray(x), cupy.asarray(y), 2.5, cupy.empty((1, 3), np.float32))


def test_bfloat16_is_rounded_as_numpy_rounds_it() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    values = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    half = cupy.empty(1000, ml_dtypes.bfloat16)
    cupy.ElementwiseKernel("float32 x", "T y", "y = max(T(x), T(-1.0f)) * 3", "round_off")(cupy.asarray(values), half)
    want = (np.maximum(values.astype(ml_dtypes.bfloat16), -1).astype(np.float32) * 3).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(half.get().view(np.uint16), want.view(np.uint16))


def test_work_waits_until_somebody_asks(stream: Any) -> None:
    buffer = np.frombuffer(cupy.cuda.alloc_pinned_memory(16), np.float32, 4)
    x = cupy.zeros(4, np.float32)
    buffer[:] = 1
    x.set(buffer)
    buffer[:] = 2
    np.testing.assert_array_equal(x.get(), 2)
    x.set(np.full(4, 3, np.float32))
    x.get(out=buffer, blocking=False)
    assert buffer[0] == 2
    stream.synchronize()
    assert buffer[0] == 3


@pytest.mark.parametrize("order", ["", "reverse"])
@pytest.mark.parametrize("waits", [True, False])
def test_a_missing_event_is_found(monkeypatch: pytest.MonkeyPatch, order: str, waits: bool) -> None:
    monkeypatch.setenv("SIMULATED_ORDER", order)
    first, second = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    # Work of the reader runs at once in reverse order, and late otherwise; here it is the writer that runs late.
    if second._queue.early != (order == "reverse"):
        first, second = second, first
    with first:
        x, y = cupy.zeros(3, np.float32), cupy.zeros(3, np.float32)
    cupy.cuda.Device().synchronize()
    with first:
        x += 1
    if waits:
        second.wait_event(first.record())
    with second:
        y[...] = x
        assert (y.get()[0] == 1) == waits


def test_memory_let_go_too_early_is_found() -> None:
    first, second = cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True)
    with first:
        x, y = cupy.zeros(3, np.float32), cupy.zeros(3, np.float32)
    with second:
        y[...] = x
    del x
    first.synchronize()
    with pytest.raises(CUDARuntimeError, match="let go"):
        second.synchronize()


def test_streams_of_several_threads_are_one_line(stream: Any) -> None:
    x = cupy.zeros(1, np.float64)

    def work() -> None:
        with stream:
            for _ in range(500):
                x.__iadd__(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert float(x) == 2000


def test_capture_records_and_launch_runs(stream: Any) -> None:
    x = cupy.asarray(floats(3))
    stream.begin_capture()
    assert stream.is_capturing()
    x *= 2
    with pytest.raises(CUDARuntimeError, match="cudaErrorStreamCaptureUnsupported"):
        stream.synchronize()
    with pytest.raises(CUDARuntimeError, match="cudaErrorStreamCaptureUnsupported"):
        float(x[0])
    with pytest.raises(CUDARuntimeError, match="cudaErrorStreamCaptureUnsupported"):
        cupy.empty(3)
    graph = stream.end_capture()
    assert not stream.is_capturing()
    np.testing.assert_array_equal(x.get(), floats(3))
    graph.launch()
    graph.launch(stream=stream)
    np.testing.assert_array_equal(x.get(), 4 * floats(3))


def test_another_stream_joins_a_capture_by_events(stream: Any) -> None:
    other = cupy.cuda.Stream(non_blocking=True)
    x = cupy.asarray(floats(3))
    stream.begin_capture()
    other.wait_event(stream.record())
    with other:
        x *= 3
    stream.wait_event(other.record())
    stream.end_capture().launch()
    np.testing.assert_array_equal(x.get(), 3 * floats(3))
    before = other.record()
    stream.begin_capture()
    with pytest.raises(CUDARuntimeError, match="cudaErrorStreamCaptureIsolation"):
        stream.wait_event(before)
    stream.end_capture()


def test_two_devices_have_memories_of_their_own() -> None:
    assert cupy.cuda.runtime.getDeviceCount() == 2
    with cupy.cuda.Device(1):
        x = cupy.zeros(3)
        stream = cupy.cuda.Stream(non_blocking=True)
    assert x.device == cupy.cuda.Device(1)
    with pytest.raises(ValueError, match="array device = 1 while current = 0"):
        x + 1
    y = cupy.zeros(3)
    with pytest.raises(CUDARuntimeError, match="cudaErrorInvalidResourceHandle"):
        cupy.ElementwiseKernel("T x", "T y", "y = x")(y, y, stream=stream)
    with pytest.raises(CUDARuntimeError, match="invalid device ordinal"):
        cupy.cuda.Device(2).use()


@pytest.mark.parametrize(("seen", "count"), [("1", 1), ("1,0", 2), ("0,7,1", 1)])
def test_visible_devices(monkeypatch: pytest.MonkeyPatch, seen: str, count: int) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", seen)
    assert cupy.cuda.runtime.getDeviceCount() == count


def test_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMULATED_DEVICES", "0")
    for ask in (cupy.cuda.runtime.getDeviceCount, cupy.cuda.Stream, lambda: cupy.zeros(3)):
        with pytest.raises(CUDARuntimeError, match="cudaErrorNoDevice: no CUDA-capable device is detected"):
            ask()


def test_memory_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    free, _ = cupy.cuda.Device(0).mem_info
    held = cupy.empty(1000, np.float32)
    assert cupy.cuda.Device(0).mem_info[0] == free - 4096
    monkeypatch.setenv("SIMULATED_MEMORY", str(1 << 20))
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError, match=r"Out of memory allocating 2,000,384 bytes \(alloc"):
        cupy.empty(500_000, np.float32)
    pool = cupy.get_default_memory_pool()
    pool.set_limit(size=pool.used_bytes() + 600)
    try:
        with pytest.raises(MemoryError, match="limit set to"):
            cupy.empty(1000)
    finally:
        pool.set_limit(size=0)
    del held


@pytest.mark.parametrize("transposed", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_gemm_counts_columns_first(stream: Any, transposed: tuple[int, int]) -> None:
    from cupy_backends.cuda.libs import cublas

    m, n, k = 3, 4, 5
    rng = np.random.default_rng(1)
    a, b, c = (rng.normal(size=size) for size in ((2, k, m), (2, n, k), (2, n, m)))
    want = 2 * np.matmul(b, a) - c
    if transposed[0]:
        a = np.ascontiguousarray(a.transpose(0, 2, 1))
    if transposed[1]:
        b = np.ascontiguousarray(b.transpose(0, 2, 1))
    x, y, z = cupy.asarray(a), cupy.asarray(b), cupy.asarray(c)
    alpha, beta = ctypes.c_double(2), ctypes.c_double(-1)
    first = (ctypes.addressof(alpha), x.data.ptr, 1, a.shape[2], m * k)
    second = (y.data.ptr, 1, b.shape[2], n * k)
    third = (ctypes.addressof(beta), z.data.ptr, 1, m, m * n)
    kind = (2, cublas.CUBLAS_COMPUTE_64F, cublas.CUBLAS_GEMM_DEFAULT)
    handle = cupy.cuda.device.get_cublas_handle()
    cublas.gemmStridedBatchedEx(handle, *transposed, m, n, k, *first, *second, *third, *kind)
    np.testing.assert_allclose(z.get(), want, rtol=1e-12)
    with pytest.raises(cublas.CUBLASError, match="INVALID_VALUE"):
        cublas.gemmEx(handle, 0, 0, m, n, k, *first[:3], m - 1, *second[:3], *third[:4], *kind[1:])
    with pytest.raises(CUDARuntimeError, match="gemm"):
        cublas.gemmEx(handle, 0, 0, m, n, 99, *first[:3], m, *second[:2], 99, *third[:4], *kind[1:])
