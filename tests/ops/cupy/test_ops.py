"""CupyOps beyond the contract of the kernels: the ways to a device and back, what is compiled, what cannot be used."""

from __future__ import annotations

import inspect
import pickle
import sys
import threading
from typing import Any

import numpy as np
import pytest

from singa_dask.errors import ConfigError
from singa_dask.ops import OPS, NumpyOps, get_ops
from tests.backends import backend

Array = Any

# What stays in host memory, only cuts arrays, is an update like others, or calls functions that arrays of CuPy take.
NUMPYS = {"random_words", "pieces", "update_pieces", "shift", "clear", "inverse_root"}
# What a CPU has in place of CUDA graphs.
NUMPYS |= {"bound", "conditions"}


@pytest.fixture
def ops() -> Any:
    return backend("cuda:0")


def test_every_kernel_is_overridden(ops: Any) -> None:
    kernels = {name for name, _ in inspect.getmembers(NumpyOps, inspect.isfunction) if not name.startswith("_")}
    same = {name for name in kernels if getattr(type(ops), name) is getattr(NumpyOps, name)}
    assert same <= NUMPYS


def test_names_of_a_gpu(ops: Any) -> None:
    assert ops.device == "cuda:0" and ops.name == "cupy"
    first: Any = get_ops("cupy")
    again: Any = get_ops("cuda:0", "tf32")
    assert type(first) is type(again) is type(ops)
    assert first.device == "cuda:0" and again.precision == again.for_thread().precision == "tf32"
    assert ops.gpu is ops.for_thread().gpu is first.gpu


def test_tf32_is_float32_on_a_cpu() -> None:
    assert type(get_ops("numpy", "tf32")) is NumpyOps


@pytest.mark.parametrize("name", ["cuda", "cuda:", "cuda:x", "cuda:-1", "cuda0"])
def test_what_is_no_name_of_a_gpu(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^unknown device '{name}'\. GPUs are cuda:0, cuda:1, and so on\.$"):
        get_ops(name)


def test_a_number_that_no_gpu_has(ops: Any) -> None:
    here = r"^cuda:99: there (is one GPU|are \d+ GPUs) here, cuda:0.* CUDA_VISIBLE_DEVICES"
    with pytest.raises(ConfigError, match=here):
        get_ops("cuda:99")


def test_no_driver(ops: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from cupy.cuda import runtime

    def fail() -> int:
        raise runtime.CUDARuntimeError(35)

    monkeypatch.setattr(runtime, "getDeviceCount", fail)
    with pytest.raises(ConfigError, match=r"^cuda:98: no GPU can be used here: cudaErr.* Install NVIDIA's driver"):
        get_ops("cuda:98")
    monkeypatch.setattr(runtime, "getDeviceCount", lambda: 0)
    with pytest.raises(ConfigError, match=r"^cuda:98: no GPU is seen here\. CUDA_VISIBLE_DEVICES"):
        get_ops("cuda:98")


def test_no_cupy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OPS, "_classes", {name: cls for name, cls in OPS._classes.items() if name != "cupy"})
    for name in [name for name in sys.modules if name.startswith(("singa_dask.ops.cupy.", "cupy."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cupy", None)
    for name in ("cupy", "cuda:0"):
        with pytest.raises(
            ConfigError, match=r"device 'cupy' cannot be used here: .*pip install 'singa-dask\[cuda12\]'"
        ):
            get_ops(name)


def test_bfloat16_needs_products_of_it(ops: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ops.gpu, "capability", "75")
    with pytest.raises(ConfigError, match=r"precision: bf16 needs .* 8\.0 or later; cuda:0 has 7\.5\. Use float32"):
        get_ops("cuda:0", "bf16")


def test_it_does_not_travel(ops: Any) -> None:
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(ops)


def test_a_kernel_is_compiled_once_for_its_types(ops: Any) -> None:
    def found(dtype: Any) -> Any:
        return ops.gpu.function("sums", "squares", X=np.dtype(dtype), Y=np.dtype(dtype))

    assert found("f4") is found("f4") is not found("f8")


def test_batches_that_are_under_way_at_once(ops: Any) -> None:
    random = np.random.default_rng(3)
    batches = [random.integers(0, 256, (40, 3, 9, 9), dtype=np.uint8) for _ in range(7)]
    outs = [ops.features(batch.shape, np.float32) for batch in batches]
    given = np.empty_like(batches[0])
    for batch, out in zip(batches, outs, strict=True):
        given[...] = batch  # the last one has been read from it
        ops.normalize(given, 1.0, 2.0, out)
    for batch, out in zip(batches, outs, strict=True):
        np.testing.assert_array_equal(ops.to_host(out), (batch - np.float32(1)) / 2)


def test_batches_inside_of_others_and_of_several_layouts(ops: Any) -> None:
    random = np.random.default_rng(3)
    drawn = random.normal(size=(4, 5, 6, 7)).astype(np.float32)
    given: list[Any] = [drawn, drawn.transpose(0, 3, 1, 2), drawn[::2, :, ::-1], drawn[:0], np.float32(3).reshape(())]
    with ops.gpu.upload(given[0]) as a, ops.gpu.upload(given[1]) as b, ops.gpu.upload(given[2]) as c:
        with ops.gpu.upload(given[3]) as d, ops.gpu.upload(given[4]) as e:
            for there, here in zip((a, b, c, d, e), given, strict=True):
                assert there.shape == here.shape and there.dtype == here.dtype
                np.testing.assert_array_equal(ops.to_host(there), here)
            assert b.transpose(0, 2, 3, 1).flags.c_contiguous


def test_small_things_are_read_in_turn(ops: Any) -> None:
    # more than are on their way at once
    out, copies = ops.zeros((3,), np.int64), ops.zeros((600, 3), np.int64)
    given = np.zeros(3, np.int32)
    for k in range(len(copies)):
        given[...] = k
        ops.gpu.put(given, out)
        copies[k] = out
    np.testing.assert_array_equal(ops.to_host(copies), np.arange(len(copies))[:, None] + np.zeros((1, 3)))


def test_threads_share_a_device(ops: Any) -> None:
    wrong: list[Any] = []

    def work(seed: int) -> None:
        mine, random = ops.for_thread(), np.random.default_rng(seed)
        with mine.activate():
            out = mine.empty((64, 50), np.float32)
            for _ in range(10):
                pixels = random.integers(0, 256, out.shape, dtype=np.uint8)
                labels = random.integers(0, 50, len(out))
                mine.normalize(pixels, None, None, out)
                count = mine.count_in_top(out, mine.labels(labels), 3)
                wanted = NumpyOps().count_in_top(pixels.astype(np.float32), labels, 3)
                if float(mine.to_host(count)[0]) != wanted:
                    wrong.append((seed, wanted))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_two_devices_in_one_thread(ops: Any) -> None:
    if ops.count() < 2:
        pytest.skip("there is one GPU only")
    other: Any = get_ops("cuda:1")
    pixels = np.arange(60000, dtype=np.uint8).reshape(3, 20000)
    outs = []
    for kernels in (other, ops, other):
        with kernels.activate():
            out = kernels.empty(pixels.shape, np.float32)
            kernels.normalize(pixels, None, 2.0, out)
            kernels.multiply(out, kernels.from_host(np.full(pixels.shape, 2, "f")), out)
            outs.append((kernels, out))
    for kernels, out in outs:
        np.testing.assert_array_equal(kernels.to_host(out), pixels)


def test_labels_are_of_the_host_too(ops: Any) -> None:
    values = np.array([3, 1, 2])
    labels = ops.labels(values)
    assert labels.tolist() == [3, 1, 2] and labels.device.dtype == np.int64
    assert ops.integers("labels", labels) is labels.device
    part = ops.integers("labels", labels[1:])
    assert ops.to_host(part).tolist() == [1, 2]


def test_a_label_that_is_no_column_gives_no_number(ops: Any) -> None:
    p = ops.from_host(np.full((2, 3), 0.5, np.float32))
    for label in (3, -1):
        assert np.isnan(ops.to_host(ops.cross_entropy(p, np.array([0, label])))[0])


def test_no_memory_after_the_first_call(ops: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import cupy

    random = np.random.default_rng(1)
    x, w, b, y = (ops.from_host(random.random(shape).astype("f")) for shape in ((600, 33), (20, 33), (20,), (600, 20)))
    images = ops.features((60, 3, 4, 5), np.float32)
    mean, labels = ops.constant(np.ones((3, 4, 5), np.float32)), random.integers(0, 20, 600)
    sliced = y[::2, ::2]

    def calls() -> None:
        ops.normalize(np.zeros((60, 3, 4, 5), np.uint8), mean, 2.0, images)
        ops.linear(x, w, b, y)
        ops.linear_grad_input(y, w, x)
        ops.linear_grad_weight(x, y, w, accumulate=True)
        ops.linear_grad_bias(y, b, accumulate=True)
        ops.linear(x[::2], w[::2], None, sliced)
        ops.relu(images, images)
        ops.softmax(y, y)
        ops.cross_entropy(y, labels)
        ops.cross_entropy_grad(y, labels, 1.0, y)
        ops.count_in_top(y, labels, 2)
        ops.sum_squares(sliced)
        ops.dropout_mask((1,), 0.5, images)

    for _ in list(ops.gpu._batches):  # each takes its memory when it is first used
        calls()

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise AssertionError("memory of the device is taken again")

    for name in ("empty", "zeros"):
        monkeypatch.setattr(cupy, name, refuse)
    calls()


def test_kernels_can_be_captured_in_a_graph(ops: Any) -> None:
    random = np.random.default_rng(1)
    drawn = [random.normal(size=shape).astype("f") for shape in ((40, 33), (20, 33), (20,))]
    x, w, b = (ops.from_host(array) for array in drawn)
    y, gw, gx = (ops.empty(shape, np.float32) for shape in ((40, 20), w.shape, x.shape))
    labels, total = ops.labels(random.integers(0, 20, 40)), ops.accumulate(0.0, 0.0)

    def step() -> None:
        ops.linear(x, w, b, y)
        ops.relu(y, y)
        ops.softmax(y, y)
        ops.accumulate(ops.cross_entropy(y, labels), total)
        ops.accumulate(ops.count_in_top(y, labels, 2), total)
        ops.cross_entropy_grad(y, labels, 1.0, y)
        ops.linear_grad_weight(x, y, gw)
        ops.linear_grad_bias(y, b, accumulate=True)
        ops.linear_grad_input(y, w, gx)
        ops.accumulate(ops.sum_squares(gx), total)

    def values() -> list[Array]:
        return [ops.to_host(array) for array in (y, gw, b, gx, total)]

    step()  # compiles, and takes memory
    ops.copy(drawn[2], out=b)
    ops.copy(np.zeros(1), out=total)
    for _ in range(3):
        step()
    wanted = values()
    ops.copy(drawn[2], out=b)
    ops.copy(np.zeros(1), out=total)
    captured = ops.capture(step)
    for _ in range(3):
        captured.replay(lambda key: key)
    for one, other in zip(values(), wanted, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.gpu
def test_only_tf32_rounds_what_is_multiplied(ops: Any) -> None:
    a, b = np.random.default_rng(0).normal(size=(2, 512, 512)).astype("f")
    wanted = a.astype(np.float64) @ b
    errors = []
    for precision in ("float32", "tf32"):
        kernels, out = backend("cuda:0", precision), ops.empty(a.shape, np.float32)
        kernels.linear(ops.from_host(a), ops.from_host(b), None, out, transpose=True)
        errors.append(np.abs(ops.to_host(out) - wanted).max() / np.abs(wanted).max())
    assert errors[0] < 1e-6 < errors[1] < 1e-2
