"""Whole nets on a GPU: they learn as on a CPU, wait for nothing within a step, and say late what went wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.conf import JobConf, Phase
from singa_dask.errors import NumericError
from singa_dask.inputs import InputContext
from singa_dask.layers import Param
from singa_dask.layers.feature import on_host
from singa_dask.net import make_net
from singa_dask.ops import BFLOAT16, NumpyOps, get_ops
from singa_dask.training import ALGORITHMS, UPDATERS, Algorithm, initial_values
from tests.backends import backend
from tests.layers import test_recurrent
from tests.net import test_partition
from tests.net.group import Group
from tests.net.jobs import DATA, TEST, UNIFORM, dense, job, layer, mlp
from tests.net.test_images import images
from tests.selection import mostly_long
from tests.training.test_cd import rbm

ROOT = Path(__file__).parents[2]
CPU = get_ops("numpy")
NAMES = ["mlp", "images", "residual", "characters", "transformer", "padded", "rbm"]
MOMENTUM = {"type": "SGD", "momentum": 0.9, "learning_rate": {"type": "Fixed", "base_lr": 0.02}}


def residual() -> list[dict[str, Any]]:
    """Return a residual net of the layers that such nets are made of."""
    weights = {"param": [{"init": UNIFORM}, {"init": UNIFORM}]}
    conv = {"convolution_conf": {"num_filters": 4, "kernel": 3, "pad": 1}, **weights}
    return [
        {**DATA, "user_conf": {"shape": [8, 4, 6, 5], "classes": 3}},
        layer("conv1", "Convolution", "data", **conv),
        layer("norm1", "GroupNorm", "conv1", groupnorm_conf={"num_groups": 2}, **weights),
        layer("act1", "SiLU", "norm1"),
        layer("conv2", "Convolution", "act1", **conv),
        layer("norm2", "BatchNorm", "conv2", **weights),
        layer("act2", "ReLU", "norm2"),
        layer("gate", "LeakyReLU", "conv1"),
        layer("gated", "Multiply", "gate", "act2"),
        layer("sum", "Add", "gated", "conv1"),
        layer("act3", "ReLU", "sum"),
        layer("pool", "GlobalPooling", "act3"),
        layer("most", "GlobalPooling", "act3", globalpooling_conf={"pool": "MAX"}),
        layer("both", "Add", "pool", "most"),
        dense("fc", "both", 3),
        layer("loss", "SoftmaxLoss", "fc", "data", softmaxloss_conf={"label_smoothing": 0.1}),
    ]


def transformer(folder: Path) -> list[dict[str, Any]]:
    """Return a transformer of one block, of characters."""
    data = {"path": str(folder / "text"), "vocab_path": str(folder / "vocab"), "batchsize": 3, "unroll_len": 4}
    init = {"init": UNIFORM}
    return [
        layer("data", "CharRNN", char_rnn_conf=data, unroll_len=1),
        layer("label", "RNNLabel", "data"),
        layer("in", "Embedding", "data", embedding_conf={"vocab_size": 5, "feature_dim": 6}, param=[init]),
        layer("place", "PositionalEmbedding", "in", positionalembedding_conf={"max_length": 4}, param=[init]),
        layer("norm", "LayerNorm", "place", param=[init, init]),
        layer("read", "MultiHeadAttention", "norm", multiheadattention_conf={"num_heads": 2, "causal": True},
              param=[init] * 4),
        layer("sum", "Add", "read", "place"),
        dense("up", "sum", 8),
        layer("act", "GELU", "up"),
        dense("out", "act", 5),
        layer("loss", "SoftmaxLoss", "out", "label"),
    ]  # fmt: skip


def padded(folder: Path) -> list[dict[str, Any]]:
    """Return a net of padded sequences, read both ways, then by a decoder and by a mean and a maximum."""
    data = {"path": str(folder / "text"), "vocab_path": str(folder / "vocab"), "batchsize": 3, "unroll_len": 4}
    init, whole = {"init": UNIFORM}, {"unroll_len": 1}
    return [
        layer("data", "CharRNN", char_rnn_conf=data, unroll_len=1),
        layer("label", "RNNLabel", "data"),
        layer("first", "RNNLabel", "data", **whole),
        layer("mask", "PaddingMask", "data", paddingmask_conf={"padding": 0}),
        layer("in", "Embedding", "data", embedding_conf={"vocab_size": 5, "feature_dim": 6}, param=[init]),
        layer("forth", "GRU", "in", "mask", gru_conf={"dim_hidden": 3}, param=[init] * 9),
        layer("back", "LSTM", "in", "mask", lstm_conf={"dim_hidden": 3, "reverse": True}, param=[init] * 12),
        layer("both", "Concate", "forth", "back", concate_conf={"concate_dim": 1}),
        layer("norm", "RMSNorm", "in", param=[init]),
        layer("read", "MultiHeadAttention", "norm", "both", "mask", multiheadattention_conf={"num_heads": 2},
              param=[init] * 4),
        layer("turned", "MultiHeadAttention", "read", multiheadattention_conf={"num_heads": 3, "rotary_base": 9.0},
              param=[init] * 4),
        dense("out", "turned", 5),
        layer("loss", "SoftmaxLoss", "out", "label"),
        layer("mean", "TimePooling", "both", "mask", **whole),
        layer("most", "TimePooling", "turned", "mask", timepooling_conf={"pool": "MAX"}, **whole),
        layer("sum", "Add", "mean", "most", **whole),
        dense("score", "sum", 5, **whole),
        layer("more", "SoftmaxLoss", "score", "first", **whole),
    ]  # fmt: skip


@pytest.fixture
def jobs(tmp_path: Path) -> dict[str, JobConf]:
    """Give a job of each kind of net: plain, of images, of characters, and a stack of RBMs on a net that is fixed."""
    (tmp_path / "text").write_text("".join(np.random.default_rng(0).choice(list("abcde"), 100)))
    (tmp_path / "vocab").write_text("abcde")
    characters = test_recurrent.job(tmp_path, ["GRU", "LSTM"], 4, True, False)
    below = [DATA, dense("fc", "data", 5), layer("act", "Sigmoid", "fc")]
    contrastive = {"alg": "CD", "cd_conf": {"cd_k": 2, "persistent": True}}
    return {
        "mlp": job(mlp(), updater=MOMENTUM),
        "images": job(images(4, 8), updater=MOMENTUM),
        "residual": job(residual(), updater=MOMENTUM),
        "transformer": job([], neuralnet={"layer": transformer(tmp_path), "unroll_len": 4}, updater=MOMENTUM),
        "padded": job([], neuralnet={"layer": padded(tmp_path), "unroll_len": 4}, updater=MOMENTUM),
        "characters": characters.model_copy(update={"updater": job(mlp(), updater=MOMENTUM).updater}),
        "rbm": job([*below, *rbm("act")], updater=MOMENTUM, train_one_batch=contrastive),
    }


class Run:
    """A job in one thread, without servers: params are updated where they lie."""

    def __init__(self, given: JobConf, ops: NumpyOps, dtype: Any = np.float64) -> None:
        self.ops = ops
        self.net = make_net(given, InputContext(dtype=np.dtype(dtype), seed=3), ops)
        self.net.allocate()
        self.net.allocate_params()
        for owner in self.net.owners:
            assert owner.conf.init
            ops.copy(initial_values(owner.conf.init, owner.name, owner.shape, 3, owner.dtype), out=owner.data)
        self.updater = UPDATERS.find(given.updater.type)(given.updater)
        self.updater.ops = ops
        names = self.updater.state_names
        self.states = {o.name: {name: ops.zeros((o.size,), o.dtype) for name in names} for o in self.net.owners}
        kind, conf = ALGORITHMS.find(given.train_one_batch.alg), given.train_one_batch
        self.algorithm: Algorithm = kind(self.net, update=self.update, conf=conf)

    def update(self, step: int, param: Param) -> None:
        owner = param.owner
        if owner.running_statistic:
            self.ops.subtract(owner.values, param.grad, out=owner.values)
        elif not param.is_idle:
            values, grad = owner.values.reshape(-1), param.grad.reshape(-1)
            self.updater.update(step, step, values, grad, self.states[owner.name])

    def train(self, steps: Sequence[int]) -> None:
        for step in steps:
            self.algorithm.train_one_batch(step)

    def found(self) -> dict[str, Any]:
        """Return all figures and params, in host memory."""
        self.algorithm.check_losses(wait=True)
        self.algorithm.check_params()
        figures: dict[str, Any] = {name: total for name, (total, _) in self.net.take_metrics().items()}
        return figures | {owner.name: self.ops.to_host(owner.values) for owner in self.net.owners}


def agree(found: dict[str, Any], wanted: dict[str, Any], within: float) -> None:
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, rtol=within, atol=within, err_msg=name)


@pytest.mark.parametrize("name", NAMES)
def test_a_net_learns_as_on_a_cpu(gpu: NumpyOps, jobs: dict[str, JobConf], name: str) -> None:
    runs = [Run(jobs[name], ops) for ops in (gpu, CPU)]
    for run in runs:
        run.train(range(3))
    agree(*(run.found() for run in runs), within=1e-8)


@pytest.mark.parametrize("name", mostly_long(["mlp", "characters"], 2))
def test_fifty_steps_end_where_they_do_on_a_cpu(gpu: NumpyOps, jobs: dict[str, JobConf], name: str) -> None:
    runs = [Run(jobs[name], ops, np.float32) for ops in (gpu, CPU)]
    for run in runs:
        run.train(range(49))
        run.found()
        run.train([49])
    agree(*(run.found() for run in runs), within=1e-3)


@pytest.mark.parametrize("name", mostly_long(NAMES, 2))
def test_a_step_waits_for_nothing_and_allocates_nothing_of_its_size(
    gpu: Any, jobs: dict[str, JobConf], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run(jobs[name], gpu)
    run.train(range(2))
    features = [feature for each in run.net.layers for feature in each.features if not on_host(feature)]
    # labels are new memory in each step
    least = 1 + max(math.prod(feature.shape[:1]) for feature in features) * 8
    empty = gpu.empty

    def small(shape: Sequence[int], dtype: Any) -> Any:
        assert math.prod(shape) * np.dtype(dtype).itemsize < least, shape
        return empty(shape, dtype)

    def refuse(*_: object) -> NoReturn:
        raise AssertionError("waited")

    monkeypatch.setattr(gpu, "empty", small)
    for waits in ("download", "synchronize"):
        monkeypatch.setattr(gpu.gpu, waits, refuse)
    run.train([2, 3])
    monkeypatch.undo()
    run.found()


def test_a_test_net_uses_the_params_where_they_lie(gpu: NumpyOps, jobs: dict[str, JobConf]) -> None:
    found = []
    for ops in (gpu, CPU):
        run = Run(jobs["images"], ops)
        run.train(range(2))
        net = make_net(jobs["images"], InputContext(TEST, dtype=np.dtype(np.float64)), ops, run.net)
        net.allocate()
        for _ in range(2):
            ALGORITHMS.find("BP")(net).test_one_batch(Phase.TEST)
        found.append({name: total for name, (total, _) in net.take_metrics().items()})
    agree(*found, within=1e-8)


def test_a_loss_that_is_no_number_is_found_some_steps_later(gpu: NumpyOps, jobs: dict[str, JobConf]) -> None:
    run = Run(jobs["mlp"], gpu, np.float32)
    for param in run.net.params:
        param.data[...] = 1e38
    run.algorithm.train_one_batch(0)
    with pytest.raises(NumericError, match="the loss is not finite"):
        run.algorithm.check_losses(wait=True)
    gpu.synchronize()
    with pytest.raises(NumericError, match="the loss is not finite"):
        run.algorithm.train_one_batch(1)
    assert run.algorithm.layer is run.net.name2layer("loss")


def test_a_param_that_is_no_number_is_found(gpu: NumpyOps, jobs: dict[str, JobConf]) -> None:
    run = Run(jobs["mlp"], gpu)
    run.algorithm.check_params()
    run.net.param("w_fc2").data[1, 2] = np.nan
    with pytest.raises(NumericError, match="param 'w_fc2' is not finite"):
        run.algorithm.check_params()


def test_figures_are_numbers_once_they_are_taken(gpu: NumpyOps, jobs: dict[str, JobConf]) -> None:
    run = Run(jobs["mlp"], gpu)
    run.train(range(2))
    figures = run.net.take_metrics()
    assert {type(value) for pair in figures.values() for value in pair} == {float}
    assert {count for _, count in figures.values()} == {2}
    assert run.net.take_metrics() == {}


def test_a_net_learns_in_bfloat16(jobs: dict[str, JobConf]) -> None:
    ops = backend("cuda:0", "bf16")
    runs = [Run(jobs["images"], ops, BFLOAT16), Run(jobs["images"], CPU, np.float32)]
    for run in runs:
        run.train(range(2))
    assert runs[0].net.name2layer("conv1").features[0].data.dtype == BFLOAT16
    found, wanted = (run.found() for run in runs)
    assert {values.dtype for name, values in found.items() if name.startswith("w_")} == {np.dtype(np.float32)}
    for name in ("loss.loss", "more.loss"):
        assert found[name] == pytest.approx(wanted[name], rel=2e-2)


WHERE = [{"partition_dim": 0}, {"partition_dim": 1}, {"partition_dim": -1}, {"location": 0}, {"location": 1}]


@pytest.mark.parametrize(
    ("net", "turn"),
    mostly_long([(net, k) for net in (test_partition.convnet, test_partition.forked) for k in range(2)], 3),
)
def test_workers_on_gpus_and_cpus_share_a_net(gpu: NumpyOps, net: Any, turn: int) -> None:
    placed = [{**each, **WHERE[(k + turn) % len(WHERE)]} for k, each in enumerate(net())]
    groups = [
        Group(job([], neuralnet={"layer": layers}), len(ops), ops=ops)
        for layers, ops in ((net(), [CPU]), (placed, [gpu, CPU.for_thread(), gpu.for_thread()]))
    ]
    losses = [group.train(2) for group in groups]
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-8)
    agree(groups[1].values(), groups[0].values(), within=1e-8)


def test_a_layer_of_a_users_own_in_numpy(gpu: NumpyOps) -> None:
    modules.load(modules.read([str(ROOT / "examples/parts/swish.py")]), REGISTRIES.values())
    layers = [DATA, dense("fc1", "data", 5), layer("act", "swish.Swish", "fc1"), *mlp()[3:]]
    layers[3]["srclayers"] = ["act"]
    runs = [Run(job(layers, updater=MOMENTUM), ops) for ops in (gpu, CPU)]
    for run in runs:
        run.train(range(2))
    agree(*(run.found() for run in runs), within=1e-8)
