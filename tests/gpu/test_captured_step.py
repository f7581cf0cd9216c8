"""Steps that a GPU replays from a capture: they compute the same as uncaptured ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import JobConf
from singa_dask.data.stores import STORES
from singa_dask.errors import DataError, NumericError
from singa_dask.layers import Layer, Speed
from singa_dask.layers.neuron import InnerProduct
from singa_dask.layers.softmax_loss import SoftmaxLoss
from singa_dask.ops import BFLOAT16, NumpyOps
from singa_dask.training import BP
from singa_dask.training.captured_step import CapturedStep
from tests.backends import backend
from tests.gpu.test_nets import MOMENTUM, NAMES, Run, agree, jobs
from tests.layers import test_recurrent
from tests.net.jobs import DATA, build, dense, job, layer, mlp
from tests.selection import mostly_long

__all__ = ["jobs"]


class Counted:
    """Counts how often kernels are captured."""

    def __init__(self, ops: Any, monkeypatch: Any) -> None:
        self.n, self._capture = 0, ops.capture
        monkeypatch.setattr(ops, "capture", self)

    def __call__(self, run: Any) -> Any:
        self.n += 1
        return self._capture(run)


def dropped() -> JobConf:
    """Return a job whose net has dropout, which takes a key in each step, and two layers that read one."""
    net = [
        DATA,
        dense("fc", "data", 12),
        layer("act", "ReLU", "fc"),
        layer("drop", "Dropout", "act", dropout_conf={"dropout_ratio": 0.4}),
        dense("left", "drop", 3),
        dense("right", "drop", 3),
        layer("loss", "SoftmaxLoss", "left", "data"),
        layer("other", "SoftmaxLoss", "right", "data"),
    ]
    return job(net, updater=MOMENTUM)


def mixed(directory: Path) -> JobConf:
    """Return a job whose records are mixed in pairs."""
    values, labels = np.random.default_rng(0).normal(size=(40, 5)), np.arange(40) % 3
    records = {"data": values.astype(np.float32), "label": labels.astype(np.int32)}
    STORES.find("arrow").write(str(directory / "records.arrow"), records)
    store_conf = {"path": str(directory / "records.arrow"), "shape": [5], "batchsize": 8, "augment": {"mixup": 0.5}}
    data = {"name": "data", "type": "RecordInput", "store_conf": store_conf}
    return job([data, dense("fc", "data", 3), layer("loss", "SoftmaxLoss", "fc", "data")], updater=MOMENTUM)


def both(given: JobConf, gpu: NumpyOps, n_steps: int) -> list[Run]:
    """Return the same training run on a GPU twice, the second one with captured steps; metrics taken between."""
    runs = [Run(given, gpu), Run(given, gpu.for_thread())]
    runs[1].algorithm.capture_steps()
    for run in runs:
        run.train(range(n_steps // 2))
        run.figures = run.found()
        run.train(range(n_steps // 2, n_steps))
    return runs


# what the tests below capture too is long
@pytest.mark.parametrize(
    "name",
    [pytest.param(each, marks=[] if each == "rbm" else [pytest.mark.long]) for each in NAMES] + ["dropped", "mixed"],
)
def test_captured_steps_are_those_of_a_gpu_that_runs_uncaptured(
    gpu: NumpyOps, jobs: dict[str, JobConf], tmp_path: Path, name: str
) -> None:
    runs = both({**jobs, "dropped": dropped(), "mixed": mixed(tmp_path)}[name], gpu, 6)
    agree(runs[1].figures, runs[0].figures, within=1e-12)
    agree(runs[1].found(), runs[0].found(), within=1e-12)


@pytest.mark.parametrize(
    ("precision", "name"),
    [
        ("float32", "residual"),
        ("tf32", "transformer"),
        ("bf16", "mlp"),
        *(pytest.param("bf16", each, marks=pytest.mark.long) for each in ("images", "residual", "transformer")),
        *(pytest.param("float32", each, marks=pytest.mark.long) for each in ("images", "transformer")),
        pytest.param("float32", "mlp", marks=pytest.mark.soak),
        *(pytest.param("tf32", each, marks=pytest.mark.soak) for each in ("mlp", "images", "residual")),
    ],
)
def test_captured_steps_are_uncaptured_ones_to_the_bit(jobs: dict[str, JobConf], name: str, precision: str) -> None:
    """In these types a real GPU computes convolutions by cuDNN, if that is installed."""
    dtype = BFLOAT16 if precision == "bf16" else np.float32
    gpu = backend("cuda:0", precision)
    runs = [Run(jobs[name], gpu, dtype), Run(jobs[name], gpu.for_thread(), dtype)]
    runs[1].algorithm.capture_steps()
    for run in runs:
        run.train(range(6))
    assert runs[1].algorithm.n_captures == 1
    agree(runs[1].found(), runs[0].found(), within=0.0)


# with the shorter text, of two windows a row, a step is captured at which the text begins anew
@pytest.mark.parametrize(
    ("kind", "length"),
    [
        ("GRU", 24),
        pytest.param("LSTM", 100, marks=pytest.mark.long),
        *(
            pytest.param(*each, marks=pytest.mark.soak)
            for each in (("GRU", 100), ("LSTM", 24), ("RNN", 24), ("RNN", 100))
        ),
    ],
)
def test_states_that_go_on_begin_anew_with_the_text(gpu: NumpyOps, tmp_path: Path, kind: str, length: int) -> None:
    (tmp_path / "text").write_text("".join(np.random.default_rng(0).choice(list("abcde"), length)))
    (tmp_path / "vocab").write_text("abcde")
    given = test_recurrent.job(tmp_path, [kind], 4, True, True)
    given = given.model_copy(update={"updater": job(mlp(), updater=MOMENTUM).updater})
    agree(*(run.found() for run in both(given, gpu, 12)), within=1e-12)


def test_what_is_captured_is_not_called_again(
    gpu: NumpyOps, jobs: dict[str, JobConf], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(gpu, monkeypatch)
    run = Run(jobs["mlp"], gpu)
    run.algorithm.capture_steps()
    run.train(range(3))
    assert counted.n == 1
    monkeypatch.setattr(InnerProduct, "forward", None)
    run.train(range(3, 6))
    assert counted.n == 1


@pytest.mark.parametrize("name", mostly_long(["transformer", "images"], 2))
def test_memory_that_grows_is_captured_anew(
    gpu: Any, jobs: dict[str, JobConf], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    counted = Counted(gpu, monkeypatch)
    run = Run(jobs[name], gpu)
    run.algorithm.capture_steps()
    run.train(range(4))
    # as a net with larger batches, which uses the same kernels, does in a test
    for what in gpu._scratch.keys() - {"counters"}:  # which are zeros
        gpu.scratch(what, (2 * gpu._scratch[what].size,), np.uint8)
    run.train(range(4, 7))
    assert counted.n == run.algorithm.n_captures == 2
    other = Run(jobs[name], gpu.for_thread())
    other.train(range(7))
    agree(run.found(), other.found(), within=1e-12)


def test_what_cannot_be_captured_runs_uncaptured(
    gpu: Any, jobs: dict[str, JobConf], monkeypatch: pytest.MonkeyPatch
) -> None:
    compute = SoftmaxLoss.compute_feature

    def wait(self: Any, phase: Any) -> None:
        compute(self, phase)
        self.ops.to_host(self.features[0].data)

    monkeypatch.setattr(SoftmaxLoss, "forward", wait)
    runs = both(jobs["mlp"], gpu, 8)
    agree(runs[1].figures, runs[0].figures, within=1e-12)
    agree(runs[1].found(), runs[0].found(), within=1e-12)


def test_what_a_driver_does_not_capture_runs_uncaptured(gpu: Any, jobs: dict[str, JobConf], monkeypatch: Any) -> None:
    cupy = pytest.importorskip("cupy")
    end = cupy.cuda.Stream.end_capture

    def refuse(self: Any) -> None:
        end(self)
        raise RuntimeError("the capture was invalidated by what was enqueued")

    with monkeypatch.context() as patch:
        patch.setattr(cupy.cuda.Stream, "end_capture", refuse)
        run = Run(jobs["images"], gpu)
        run.algorithm.capture_steps()
        run.train(range(4))
    assert gpu.draws is None
    assert run.algorithm.n_captures == 0
    other = Run(jobs["images"], gpu.for_thread())
    other.train(range(4))
    agree(run.found(), other.found(), within=1e-12)


def test_a_product_is_captured_which_cupy_refuses(gpu: Any) -> None:
    cublas = pytest.importorskip("cupy_backends.cuda.libs.cublas")
    get_cublas_handle = pytest.importorskip("cupy.cuda.device").get_cublas_handle
    rng = np.random.default_rng(0)
    a, b = (gpu.from_host(rng.normal(size=size)) for size in ((3, 4), (4, 5)))
    out = gpu.zeros((3, 5), np.float64)
    with pytest.raises(NotImplementedError, match="during stream capture"):
        gpu.capture(lambda: cublas.gemmEx(get_cublas_handle(), *[0] * 18))
    captured = gpu.capture(lambda: gpu.gemm(a, b, out))
    assert not gpu.to_host(out).any()
    captured.replay(lambda key: key)
    np.testing.assert_allclose(gpu.to_host(out), gpu.to_host(a) @ gpu.to_host(b), rtol=1e-12)


def test_batched_products_are_captured(gpu: Any) -> None:
    rng = np.random.default_rng(0)
    a, b = (gpu.from_host(rng.normal(size=size)) for size in ((2, 3, 4), (2, 5, 4)))
    out = gpu.zeros((2, 3, 5), np.float64)
    captured = gpu.capture(lambda: gpu.batch_matmul(a, b, out, transpose_b=True, scale=0.5))
    assert not gpu.to_host(out).any()
    captured.replay(lambda key: key)
    wanted = 0.5 * gpu.to_host(a) @ gpu.to_host(b).swapaxes(1, 2)
    np.testing.assert_allclose(gpu.to_host(out), wanted, rtol=1e-12)


@pytest.mark.parametrize("most", [1023, 1])
def test_captured_products_use_the_weights_of_each_replay(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Weights are rounded to bfloat16: whole, some rows, or columns with gaps; one by one where the table is full."""
    monkeypatch.setattr("singa_dask.ops.cupy.weights.MAX_WEIGHTS", most)
    random, ops = np.random.default_rng(0), backend("cuda:0", "bf16")
    weights, bias, more = (random.normal(size=size).astype(np.float32) for size in ((16, 16), (16,), (8, 16)))
    w, b = ops.from_host(weights), ops.from_host(bias)
    x, added = (ops.from_host(each.astype(BFLOAT16)) for each in (random.normal(size=(8, 16)), more))
    shapes = [(8, 16), (8, 16), (8, 16), (8, 16), (8, 4), (8, 8)]
    outs, uncaptured = ([ops.zeros(shape, BFLOAT16) for shape in shapes] for _ in range(2))

    def compute(y: list[Any]) -> None:
        ops.linear(x, w.T, None, y[0])
        ops.linear(x, w, b, y[1])
        ops.linear_add(x, w, b, added, y[2], transpose=True)
        ops.linear_grad_input(x, w, y[3])
        ops.linear(x, w[4:8], b[4:8], y[4])
        ops.linear(x[:, :8], w[:8, ::2], None, y[5])

    compute(outs)
    captured = ops.capture(lambda: compute(outs))
    for factor in (1.0, -2.0, 0.5):
        ops.copy(weights * np.float32(factor), out=w)
        ops.copy(bias * np.float32(factor), out=b)
        captured.replay(lambda key: key)
        compute(uncaptured)
        for made, expected in zip(outs, uncaptured, strict=True):
            assert ops.to_host(made).tobytes() == ops.to_host(expected).tobytes()
        rows, square = ops.to_host(x).astype(np.float64), factor * weights.astype(np.float64)
        forth, back, shift = rows @ square.T, rows @ square, factor * bias
        wanted = [back, forth + shift, back + shift + more, back]
        wanted += [wanted[1][:, 4:8], rows[:, :8] @ square[:8, ::2].T]
        for made, expected in zip(outs, wanted, strict=True):
            np.testing.assert_allclose(ops.to_host(made).astype(np.float64), expected, atol=0.02 * np.abs(back).max())


def test_a_layer_of_a_users_own_runs_uncaptured_unless_it_says_so() -> None:
    class Own(Layer):
        pass

    class Sure(Layer):
        speed = Speed(capturable=True)

    assert InnerProduct.speed.capturable
    assert not Own.speed.capturable
    assert Sure.speed.capturable


def test_a_loss_that_is_no_number_is_found(gpu: NumpyOps, jobs: dict[str, JobConf]) -> None:
    run = Run(jobs["mlp"], gpu)
    run.algorithm.capture_steps()
    run.train(range(4))
    run.net.owners[0].values[...] = np.nan
    with pytest.raises(NumericError, match="loss is not finite"):
        for step in range(4, 20):
            run.train([step])
            gpu.synchronize()


def test_labels_are_looked_at_in_each_step(gpu: NumpyOps, jobs: dict[str, JobConf]) -> None:
    run = Run(jobs["mlp"], gpu)
    run.algorithm.capture_steps()
    run.train(range(4))
    data = run.net.layers[0]
    compute = data.compute_feature

    def spoil(phase: Any) -> None:
        compute(phase)
        data.features[0].records.labels[0] = 99

    data.forward = spoil  # type: ignore[method-assign]
    with pytest.raises(DataError, match="label 99 is out of range"):
        run.train([4])


@pytest.mark.parametrize("name", mostly_long(["transformer", "characters", "padded"], 3))
def test_numbers_are_read_and_checked_before_what_is_replayed(
    gpu: NumpyOps, jobs: dict[str, JobConf], name: str
) -> None:
    run = Run(jobs[name], gpu)
    run.algorithm.capture_steps()
    run.train(range(6))
    assert run.algorithm.n_captures == 1
    data = run.net.layers[0]
    compute = data.compute_feature

    def spoil(phase: Any) -> None:
        compute(phase)
        data.features[0].data[0, 0] = 99

    data.forward = spoil  # type: ignore[method-assign]
    with pytest.raises(DataError, match="99 is out of range"):
        run.train([6])


@pytest.mark.parametrize("computed", [False, True])
def test_numbers_that_a_kernel_computes_are_not_read_before_it(gpu: NumpyOps, computed: bool) -> None:
    data = {**DATA, "user_conf": {"shape": [8, 1], "classes": 3}}
    rows = layer("rows", "Embedding", "act" if computed else "data", embedding_conf={"vocab_size": 9})
    loss = layer("loss", "SoftmaxLoss", "fc", "data")
    net = build([data, layer("act", "ReLU", "data"), rows, dense("fc", "rows", 3), loss], ops=gpu)
    step = CapturedStep(net)
    assert [step.should_replay() for _ in range(3)] == [False, False, not computed]


def test_memory_that_is_never_the_same_is_not_captured_for_ever(
    gpu: NumpyOps, jobs: dict[str, JobConf], monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = Counted(gpu, monkeypatch)
    run = Run(jobs["mlp"], gpu)
    run.algorithm.capture_steps()
    labels = gpu.labels
    kept = []

    def elsewhere(values: Any, before: Any = None) -> Any:
        kept.append(labels(values))
        return kept[-1]

    monkeypatch.setattr(gpu, "labels", elsewhere)
    run.train(range(20))
    assert counted.n == 8
    other = Run(jobs["mlp"], gpu.for_thread())
    other.train(range(20))
    agree(run.found(), other.found(), within=1e-12)


def test_passes_of_a_users_own_run_uncaptured(gpu: NumpyOps, jobs: dict[str, JobConf]) -> None:
    run, steps = Run(jobs["mlp"], gpu), []

    class Own(BP):
        def backward(self, step: int) -> None:
            steps.append(step)
            super().backward(step)

    run.algorithm = Own(run.net, update=run.update)
    run.algorithm.capture_steps()
    run.train(range(5))
    assert steps == [0, 1, 2, 3, 4]
