"""ONNX: each layer, and each config of the repository, computes in onnxruntime what it computes here."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest

from singa_dask.conf import LayerConf, Phase
from singa_dask.errors import ConfigError
from singa_dask.exports import onnx_graph
from singa_dask.exports.converters import ONNX_CONVERTERS, TORCH_CONVERTERS
from singa_dask.exports.encoding import CONVERTERS, encode_onnx
from singa_dask.exports.onnx_graph import OnnxGraph
from singa_dask.layers import LAYERS, Context, Layer
from singa_dask.testing.case import Case
from tests.exports.nets import ROOT, Values, compute, exported, layer_cases, read_job, wired
from tests.layers.cases import shown

CONFIGS = ROOT / "configs"
# What ONNX cannot say, and a word of the error.
OTHERS = {
    "char-rnn/sample.yaml": "RNNDummy",
    "rnnlm/rnnlm.yaml": "rnnlm.Embedding",
    **{f"rbm/{folder}rbm{k}.yaml": "no layer is an output" for folder in ("", "fashion/") for k in range(1, 5)},
}
JOBS = sorted(path.relative_to(CONFIGS).as_posix() for path in CONFIGS.rglob("*.yaml") if path.parent.name != "cluster")
# The same nets as others, or large ones.
LONG = ("cifar10/resnet", "char-rnn/transformer", "char-rnn/lstm")
SOAK = ("alexnet/", "cifar10/hybrid", "mnist/", "rbm/autoencoder")


def marks(name: str) -> list[pytest.MarkDecorator]:
    if name.startswith(SOAK):
        return [pytest.mark.soak]
    return [pytest.mark.long] if name.startswith(LONG) else []


CONFIG_PARAMS = [pytest.param(name, marks=marks(name)) for name in JOBS]
TOLERANCE = 1e-5


def run(content: bytes, inputs: Values) -> dict[str, np.ndarray]:
    """Return the outputs of a model."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(None, dict(inputs)), strict=True))


def first_states(content: bytes, n: int) -> Values:
    """Return zeros for the states that a model carries from batch to batch."""
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    names = {each.name: each.shape[1] for each in session.get_inputs() if each.name.endswith((".state", ".cell"))}
    return {name: np.zeros((n, width), np.float32) for name, width in names.items()}


@pytest.mark.parametrize("case", layer_cases(ONNX_CONVERTERS), ids=shown)
def test_a_layer(case: Case) -> None:
    layer = wired(case)
    graph = OnnxGraph()
    graph.begin(layer)
    inputs = {f"x{k}": np.array(each.data) for k, each in enumerate(layer.sources)}
    names = [graph.input(name, x.shape, x.dtype) for name, x in inputs.items()]
    made = ONNX_CONVERTERS.find(layer)(graph, layer, *names)
    features = dict(zip(made if isinstance(made, list) else [made], layer.features, strict=False))
    for k, (value, feature) in enumerate(features.items()):
        feature.n_steps = 1
        graph.output(f"y{k}", [_Of(feature)], [value])
    found = run(graph.encode("layer", {}), inputs)
    for k, feature in enumerate(features.values()):
        np.testing.assert_allclose(found[f"y{k}"], feature.data, rtol=TOLERANCE, atol=TOLERANCE)


class _Of:
    """Stands for a layer with one output."""

    def __init__(self, feature: Any) -> None:
        self.features = [feature]


def test_every_layer_with_a_formula_has_a_converter() -> None:
    kinds = {case.kind for case in layer_cases(ONNX_CONVERTERS)}
    without = {
        # losses, records, random numbers, files
        *(
            "SoftmaxLoss",
            "PixelSoftmaxLoss",
            "HuberLoss",
            "ContrastiveLoss",
            "TripletLoss",
            "EuclideanLoss",
            "Accuracy",
            "Dummy",
            "RNNDummy",
            "RNNLabel",
            "Sampling",
            "RBMHid",
            "RBMVis",
        ),
        *(
            "CSVInput",
            "RecordInput",
            "LabelInput",
            "TargetInput",
            "WeightInput",
            "CharRNN",
            "CSVOutput",
            "RecordOutput",
        ),
        # layers of PyTorch, see tests/oracles
        "TorchLoss",
        "TorchModule",
        "CharRNNOutput",
        "CudnnSoftmaxLoss",
        "SigmoidCrossEntropyLoss",
    }
    assert CONVERTERS
    ours = {name for name in LAYERS.names() if LAYERS.find(name).__module__.startswith("singa_dask.")}
    tested = {LAYERS.find(kind) for kind in kinds}
    missing = sorted({name for name in ours if LAYERS.find(name) not in tested} - without)
    assert not missing, (
        f"{missing}: no converter. Write one for ONNX in singa_dask/exports/onnx_layers.py, and one for PyTorch in "
        "torch_layers.py beside it, as their neighbours are: @register(Class). The layer's CASES then compare both "
        "with forward(). A layer without a formula to export, as a loss, goes to `without` here."
    )


@pytest.mark.parametrize("name", CONFIG_PARAMS)
def test_a_config(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    job = read_job(CONFIGS / name)
    if name in OTHERS:
        with pytest.raises(ConfigError, match=OTHERS[name]):
            encode_onnx(exported(job), name, {})
        return
    made = exported(job)
    (content,) = encode_onnx(made, name, {}).values()
    inputs, outputs = compute(made)
    inputs = {**first_states(content, len(next(iter(inputs.values())))), **inputs}
    found = run(content, inputs)
    assert {each for each in found if ".next_" not in each} == outputs.keys()
    for each, values in outputs.items():
        assert np.ptp(values) > 1e-4
        np.testing.assert_allclose(found[each], values, rtol=0, atol=TOLERANCE)
    alone = run(content, {each: x[:1] for each, x in inputs.items()})
    for each, values in outputs.items():
        np.testing.assert_allclose(alone[each], values[:1], rtol=0, atol=TOLERANCE)


class Half(Layer):
    """y = x / 2, a layer of a user's own."""

    def setup(self) -> None:
        self.add_output(self.sources[0].shape)

    def forward(self, phase: Phase) -> None:
        self.features[0].data[...] = self.sources[0].data / 2


class Quarter(Half):
    def forward(self, phase: Phase) -> None:
        self.features[0].data[...] = self.sources[0].data / 4


class Renamed(Half):
    def backward(self, phase: Phase) -> None:
        """Learn nothing."""


def test_layers_of_ones_own() -> None:
    def made(cls: type[Layer]) -> Layer:
        return cls(LayerConf(name="half", type=f"mine.{cls.__name__}"), Context())

    with pytest.raises(ConfigError, match=r"test_onnx.Half has no converter.*ONNX_CONVERTERS.register\(Half\)"):
        ONNX_CONVERTERS.find(made(Half))

    @ONNX_CONVERTERS.register(Half)
    def half(graph: OnnxGraph, layer: Half, x: str) -> str:
        return graph.add("Mul", x, graph.constant(0.5))

    try:
        assert ONNX_CONVERTERS.find(made(Half)) is ONNX_CONVERTERS.find(made(Renamed)) is half
        with pytest.raises(ConfigError, match=r"Quarter has no converter"):
            ONNX_CONVERTERS.find(made(Quarter))
    finally:
        del ONNX_CONVERTERS.by_class[Half]


def test_the_batch_is_not_cut() -> None:
    layer = wired(Case("Slice", [(4, 3)], {"slice_conf": {"num_slices": 2}}))
    with pytest.raises(ConfigError, match="it slices the batch"):
        ONNX_CONVERTERS.find(layer)(OnnxGraph(), layer, "x")


def test_carried_time_steps_are_refused() -> None:
    block = {"num_heads": 2, "causal": True, "carry_state": True}
    layer = wired(Case("MultiHeadAttention", [(12, 6)], {"multiheadattention_conf": block}, n_steps=4))
    for converters in (ONNX_CONVERTERS, TORCH_CONVERTERS):
        with pytest.raises(ConfigError, match=r"from batch to batch\. Set carry_state: false"):
            converters.find(layer)(None, layer, "x")


def test_more_bytes_than_a_file_of_onnx_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_graph, "MAX_BYTES", 1 << 20)
    with pytest.raises(
        ConfigError, match=r"x: the params have [\d,]+ bytes, but an ONNX file holds at most 2 GiB\. Use safetensors"
    ):
        encode_onnx(exported(read_job(CONFIGS / "digits" / "mlp.yaml").model_copy(update={"name": "x"})), "x.onnx", {})


def test_all_layers_that_cannot_be_said_are_named() -> None:
    job = read_job(CONFIGS / "rbm" / "rbm1.yaml")
    with pytest.raises(ConfigError, match=r"rbm1: cannot be exported to ONNX: layer 'vis', RBMVis: ") as caught:
        encode_onnx(exported(job, ["hid"]), "x.onnx", {})
    assert "Export another layer" in str(caught.value)
