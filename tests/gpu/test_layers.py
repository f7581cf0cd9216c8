"""Every layer on a GPU: the same numbers as on a CPU, forward and back, in float64."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import LayerConf, Phase
from singa_dask.inputs import InputContext
from singa_dask.layers import LAYERS, Context, Feature, Layer, Raw
from singa_dask.layers.feature import on_host
from singa_dask.net import memory, wiring
from singa_dask.ops import NumpyOps
from singa_dask.testing.case import CPU, Case, backward, forward, results, source, wire
from tests.layers import test_bridge, test_rbm
from tests.layers.cases import exam_cases, shown

WITHIN = 1e-9
# Normal draws are float32 where they are drawn, whatever they are added to.
DRAWN_WITHIN = 1e-6
RECURRENT = {"GRU", "LSTM", "RNN"}
NUMBERS = [[0, 3, 1, 4], [2, 2, 0, 1]]


# What draws anew in each pass, which the exam does not take.
CASES = [
    Case("RNNDummy", [], {"rnn_dummy_conf": {"shape": [4], "low": 2, "high": 9, "integer": True}}),
    Case("Sampling", [(4, 6)], {"sampling_conf": {"temperature": 0.7}}, fixed=1),
    Case("Dummy", [(4, 6)], {"dummy_conf": {"output": True}}),
    *exam_cases(),
]
# Those that a test below computes, and the input layers of test_nets.py and test_jobs.py.
OTHERS = {"RBMVis", "RBMHid", "BridgeSrc", "BridgeDst", "ImagePreprocess", "RecordInput", "CSVInput", "CharRNN"}
OTHERS |= {
    "TargetInput",
    "LabelInput",
    "WeightInput",
    "Feed",
    "CharRNNOutput",
    "CSVOutput",
    "RecordOutput",
    "Embedding",
    "OneHot",
}
OTHERS |= {"RNNLabel", "SigmoidCrossEntropyLoss"}
# layers of PyTorch
OTHERS |= {"TorchLoss", "TorchModule"}


def context() -> Context:
    return Context(dtype=np.dtype(np.float64), seed=3, step=7)


def outcome(layer: Layer) -> dict[str, Any]:
    """Run a layer forward and back; return all that it has computed, in host memory."""
    return results(layer, back=layer.traits.role != "output")


def agree(found: dict[str, Any], wanted: dict[str, Any], within: float = WITHIN) -> None:
    assert found.keys() == wanted.keys()
    for name, values in wanted.items():
        assert found[name].dtype == values.dtype, name
        np.testing.assert_allclose(found[name], values, rtol=within, atol=within, err_msg=name)


@pytest.mark.parametrize("case", CASES, ids=shown)
def test_a_layer_computes_what_it_does_on_a_cpu(gpu: NumpyOps, case: Case) -> None:
    agree(outcome(case.wired(gpu)), outcome(case.wired()))


def test_every_layer_is_here() -> None:
    here = {LAYERS.find(case.kind) for case in CASES} | {LAYERS.find(name) for name in OTHERS}
    ours = {name for name in LAYERS.names() if LAYERS.find(name).__module__.startswith("singa_dask.")}
    assert {name for name in ours if LAYERS.find(name) not in here} == set()


# -- layers of numbers -----------------------------------------------------------------------------------


def of_numbers(kind: str, ops: NumpyOps, dtype: Any, **conf: Any) -> dict[str, Any]:
    x = Feature(np.shape(NUMBERS), dtype, requires_grad=False)
    values = np.array(NUMBERS, dtype)
    x.data = values if on_host(x) else ops.from_host(values)
    return outcome(wire(kind, [x], context(), 3, ops, **conf))


@pytest.mark.parametrize(
    ("kind", "conf"),
    [
        ("OneHot", {"onehot_conf": {"vocab_size": 5}}),
        ("Embedding", {"embedding_conf": {"vocab_size": 5, "feature_dim": 3}}),
        ("RNNLabel", {}),
    ],
)
@pytest.mark.parametrize("dtype", [np.int32, np.float64])
def test_numbers_are_read_on_the_host_and_their_rows_on_the_device(
    gpu: NumpyOps, kind: str, conf: dict[str, Any], dtype: Any
) -> None:
    agree(of_numbers(kind, gpu, dtype, **conf), of_numbers(kind, CPU, dtype, **conf))


@pytest.mark.parametrize("kind", sorted(RECURRENT))
def test_recurrent_layers_look_up_rows(gpu: NumpyOps, kind: str) -> None:
    found = []
    for ops in (gpu, CPU):
        x = source((6, 4), ops=ops)
        x.one_hot_index, x.n_steps = ops.labels(np.array([0, 3, 1, 2, 2, 0])), 3
        found.append(outcome(wire(kind, [x], context(), 3, ops, **{f"{kind.lower()}_conf": {"dim_hidden": 5}})))
    agree(*found)


def test_attention_multiplies_all_heads_in_one_call(gpu: NumpyOps, monkeypatch: pytest.MonkeyPatch) -> None:
    linear = pytest.importorskip("singa_dask.ops.cupy.linear")
    call, n_batches = linear.gemm_batched_ex, []

    def counted(*arguments: int) -> None:
        n_batches.append(arguments[-3])
        call(*arguments)

    monkeypatch.setattr(linear, "gemm_batched_ex", counted)
    conf = {"multiheadattention_conf": {"num_heads": 2}}
    layer = wire("MultiHeadAttention", [source((12, 6), ops=gpu)], context(), 4, gpu, **conf)
    forward(layer)
    backward(layer)
    assert n_batches == [3 * 2] * 6


@pytest.mark.parametrize("learnt_target", [False, True])
def test_a_loss_of_several_labels(gpu: NumpyOps, learnt_target: bool) -> None:
    found = []
    for ops in (gpu, CPU):
        x, target = source((4, 2, 3, 2), ops=ops), source((4, 12), grad=learnt_target, ops=ops)
        ops.sigmoid(target.data, out=target.data)
        found.append(outcome(wire("SigmoidCrossEntropyLoss", [x, target], context(), ops=ops)))
    agree(*found)


# -- layers of several, of records and of files --------------------------------------------------------------


@pytest.mark.parametrize("gaussian", [False, True])
def test_the_layers_of_an_rbm(gpu: NumpyOps, gaussian: bool) -> None:
    found = []
    for ops in (gpu, CPU):
        x = source((6, 8), grad=False, ops=ops)
        layers = test_rbm.pair(x, hidden={"gaussian": gaussian}, ops=ops)
        test_rbm.run(layers, Phase.POSITIVE, test_rbm.FIRST, Phase.NEGATIVE)
        values = {"error": layers[0].metrics.take()["squared_error"][0]}
        for layer in layers:
            layer.backward(Phase.TRAIN)
            values |= {f"{layer.name} data": layer.units.data, f"{layer.name} model": layer.units.model}
            values |= {param.name: param.grad for param in layer.params if param.has_grad}
        found.append({name: ops.to_host(each) for name, each in values.items()})
    agree(*found, DRAWN_WITHIN if gaussian else WITHIN)


@pytest.mark.parametrize("learnt", [False, True])
def test_a_bridge_leads_from_one_device_to_another(gpu: NumpyOps, learnt: bool) -> None:
    for ends in ((gpu, gpu), (gpu, CPU), (CPU, gpu)):
        x = source((2, 3, 4, 5), grad=learnt, labels=[1, 0], ops=ends[0])
        start, end, _ = test_bridge.pair(x, ops=ends)
        for layer in (start, end):
            layer.features[0].consumed_as |= {"data", "labels"}
        forward(start)
        forward(end)
        feature = end.features[0]
        np.testing.assert_array_equal(ends[1].to_host(feature.data), ends[0].to_host(x.data))
        np.testing.assert_array_equal(feature.records.labels, [1, 0])
        if learnt:
            ends[1].copy(np.random.default_rng(1).normal(size=x.shape), out=feature.grad)
            backward(end)
            backward(start)
            np.testing.assert_array_equal(ends[0].to_host(x.grad), ends[1].to_host(feature.grad))


@pytest.mark.parametrize("pad", [0, 2])
@pytest.mark.parametrize("stored", [False, True])
def test_images_are_cut_and_mirrored(gpu: NumpyOps, stored: bool, pad: int) -> None:
    found = []
    pixels = np.random.default_rng(2).integers(0, 256, (5, 3, 8, 7), np.uint8)
    for ops in (gpu, CPU):
        x = source(pixels.shape, grad=False, labels=range(5), ops=ops)
        if stored:
            x.raw = Raw(pixels, ops.constant(np.random.default_rng(3).random((3, 8, 7))), 2.0)
        conf = {"rgbimage_conf": {"cropsize": 5, "scale": 0.5, "mirror": True, "pad": pad}}
        layer = wire("ImagePreprocess", [x], context(), ops=ops, **conf)
        forward(layer)
        found.append({"data": ops.to_host(layer.features[0].data), "labels": layer.features[0].records.labels})
    agree(*found)


@pytest.mark.parametrize("kind", ["RecordInput", "CSVInput"])
def test_records_are_normalised_on_the_device(gpu: NumpyOps, kind: str, tmp_path: Path) -> None:
    random, found = np.random.default_rng(4), []
    path = tmp_path / ("records.csv" if kind == "CSVInput" else "records.npz")
    if kind == "CSVInput":
        path.write_text("".join(f"{k % 3}," + ",".join(f"{x:.3f}" for x in random.random(6)) + "\n" for k in range(8)))
    else:
        pixels = random.integers(0, 256, (8, 6), np.uint8)
        np.savez(path, pixel=pixels, label=np.arange(8, dtype=np.int32) % 3)
    block = {"path": str(path), "batchsize": [4], "shape": [6], "mean_value": 3.0, "std_value": 2.0}
    if kind == "RecordInput":
        np.savez(tmp_path / "mean.npz", data=random.random((1, 6), np.float32))
        block |= {"mean_file": str(tmp_path / "mean.npz"), "mean_value": None}
    for ops in (gpu, CPU):
        reads = InputContext(dtype=np.dtype(np.float64), seed=3, step=7)
        layer = wire(kind, [], reads, ops=ops, store_conf=block)
        for _ in range(2):
            forward(layer)
        found.append({"data": ops.to_host(layer.features[0].data), "labels": layer.features[0].records.labels})
        layer.close()
    agree(*found)


def test_what_a_dummy_is_fed_goes_to_the_device(gpu: NumpyOps) -> None:
    layer: Any = wire("RNNDummy", [], context(), ops=gpu, rnn_dummy_conf={"shape": [3], "low": 0, "high": 5})
    layer.feed(9)
    forward(layer)
    np.testing.assert_array_equal(gpu.to_host(layer.features[0].data), np.full((3, 1), 9))


def written(write: Callable[[NumpyOps, Path], None], gpu: NumpyOps, folder: Path) -> None:
    """Check that a layer writes the same bytes from a GPU."""
    for ops, name in ((gpu, "gpu"), (CPU, "cpu")):
        write(ops, folder / name)
    assert (folder / "gpu").read_bytes() == (folder / "cpu").read_bytes()


@pytest.mark.parametrize("kind", ["CSVOutput", "RecordOutput"])
def test_what_is_written_comes_from_the_device(gpu: NumpyOps, kind: str, tmp_path: Path) -> None:
    def write(ops: NumpyOps, path: Path) -> None:
        x = source((4, 6), grad=False, labels=[0, 1, 2, 3], ops=ops)
        layer = wire(kind, [x], context(), ops=ops, store_conf={"path": str(path)})
        forward(layer)
        layer.close()

    written(write, gpu, tmp_path)


def test_characters_are_written_from_the_device(gpu: NumpyOps, tmp_path: Path) -> None:
    vocabulary = tmp_path / "vocabulary"
    vocabulary.write_text("abcde")
    x = source((4, 1), grad=False, ops=gpu)
    gpu.copy(np.array([[3.0], [0.0], [4.0], [1.0]]), out=x.data)
    layer: Any = wire("CharRNNOutput", [x], context(), ops=gpu, char_rnn_conf={"vocab_path": str(vocabulary)})
    layer.file = io.StringIO()
    forward(layer)
    assert layer.file.getvalue() == "daeb"


def test_a_window_of_characters_stays_on_the_host(gpu: NumpyOps, tmp_path: Path) -> None:
    text = tmp_path / "text"
    text.write_text("to be or not to be, that is the question" * 3)
    conf = LayerConf.model_validate(
        {"name": "text", "type": "CharRNN", "char_rnn_conf": {"path": str(text), "batchsize": 2, "unroll_len": 5}}
    )
    found = []
    for ops in (gpu, CPU):
        layer = LAYERS.find("CharRNN")(conf, context())
        wiring.wire(layer, [], ops)
        memory.allocate(layer)
        forward(layer)
        assert isinstance(layer.features[0].data, np.ndarray)
        found.append({"data": layer.features[0].data})
    agree(*found)
