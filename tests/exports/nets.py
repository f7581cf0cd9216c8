"""Nets with random params, what they compute, and what an exported model of them computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from singa_dask.api import REGISTRIES
from singa_dask.conf import JobConf, Phase, load
from singa_dask.data.tables.scaling import Scaling, columns_of
from singa_dask.exports.converters import Converters
from singa_dask.exports.exported_net import ExportedNet
from singa_dask.inputs import InputContext, StoreInput
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.layers import Layer, Raw
from singa_dask.layers.norm import BatchNorm
from singa_dask.net import NeuralNet
from singa_dask.testing.case import Case, forward, source, wire
from tests.layers.cases import all_cases

__all__ = ["ROOT", "Values", "by_record", "compute", "exported", "layer_cases", "read_job", "wired"]

ROOT = Path(__file__).parents[2]
Values = Mapping[str, np.ndarray]
N = 3


def read_job(path: Path) -> JobConf:
    """Return a job with batches of few records, without files of means."""
    job = load(path, (), None, REGISTRIES).job
    layers = []
    for layer in job.neuralnet.layer:
        store = layer.given_block(StoreConf)
        if store is not None:
            change = {"batchsize": [N], "mean_file": "", "std_file": ""}
            change |= {} if store.standardise or store.texts else {"mean_value": [0.25], "std_value": [2.0]}
            layer = layer.with_block(store.model_copy(update=change))
        layers.append(layer)
    net = job.neuralnet.model_copy(update={"layer": layers})
    return job.model_copy(update={"neuralnet": net})


def draw(net: NeuralNet) -> None:
    """Give the params of a net random values, small enough that outputs differ."""
    random = np.random.default_rng(0)
    for param in net.owners:
        width = max(int(np.prod(param.shape[1:])), 1)
        shown = random.uniform(0.5, 1.5, param.shape) if width == 1 else random.normal(size=param.shape) / width**0.5
        param.data = net.ops.from_host(shown.astype(param.dtype))


def exported(job: JobConf, layers: Sequence[str] = ()) -> ExportedNet:
    """Return the net of a job with random params."""
    made, random = ExportedNet.of(job.name, job, layers, draw), np.random.default_rng(2)
    for layer in made.net.inputs:
        if isinstance(layer, StoreInput) and layer.store_conf.standardise:
            n = columns_of(layer.features[0].shape[1:])
            scaling = Scaling(random.normal(size=n), random.uniform(0.5, 2, n))
            layer.context.knowledge.known.scalings[layer.conf_name] = scaling
    return made


def compute(made: ExportedNet) -> tuple[Values, Values]:
    """Return random records as they enter, and what the outputs make of them: (N, ...), or (N, T, ...)."""
    net, random = made.net, np.random.default_rng(1)
    net.allocate()
    inputs = {}
    numbers = {name for layer in net.layers if layer.conf.type == "Embedding" for name in layer.conf.srclayers}
    for layer in net.inputs:
        feature = layer.features[0]
        if isinstance(layer, StoreInput):
            # rows of a table of ten or more, once they are normalised
            high = 20 if layer.conf_name in numbers else 1
            x = random.uniform(0, high, feature.shape).astype(np.float32)
            mean, std = layer.normalisation.statistics()
            feature.raw = Raw(x, mean, std)
            if feature.has_data:
                net.ops.normalize(x, mean, std, out=feature.data)
            inputs[layer.conf_name] = x
        else:
            feature.data[...] = random.integers(0, 50, feature.shape)
            inputs[layer.conf_name] = feature.data[:, :-1].astype(np.int64)
    for layer in net.layers:
        if layer not in net.inputs:
            layer.prepare(Phase.TEST | Phase.FORWARD)
            layer.forward(Phase.TEST | Phase.FORWARD)
    return inputs, {name: by_record(layers) for name, layers in made.outputs.items()}


def by_record(layers: Sequence[Layer]) -> np.ndarray:
    """Return what a layer, or its copies, has computed."""
    values = [np.array(layer.features[0].data) for layer in layers]
    n_steps = layers[0].features[0].n_steps
    if len(values) > 1:
        return np.stack(values, axis=1)
    return values[0].reshape(n_steps, -1, *values[0].shape[1:]).swapaxes(0, 1) if n_steps > 1 else values[0]


def layer_cases(converters: Converters) -> list[Case]:
    """Return cases of all layers that have a converter."""
    classes = {cls.__name__ for cls in converters.by_class}
    names = {"Concate", "Slice", "Split", "CudnnPool", "BM", "LeakyReLU", "Sigmoid", "STanh", "Tanh"}
    return [case for case in [*all_cases(), *MORE] if case.kind in classes | names]


def wired(case: Case) -> Layer:
    """Return a layer, which has computed what it makes of random sources in a test."""
    context = InputContext(phase=Phase.TEST, dtype=np.dtype(np.float32))
    sources = [source(shape, k, grad=False, dtype=np.float32) for k, shape in enumerate(case.shapes)]
    for k, each in enumerate(sources):
        each.n_steps = 1 if k and case.cls.traits.steps == "recurrent" else case.n_steps
        if case.source_steps:
            each.n_steps = case.source_steps[k]
        if case.kind in ("Embedding", "OneHot", "PaddingMask"):
            each.data[...] = np.abs(each.data * 2) % 5 // 1
    if case.masked:
        sources[-1] = case.sources()[-1]
    layer = wire(case.kind, sources, context, case.n_steps, **(case.conf or {}))
    if isinstance(layer, BatchNorm):
        layer.running_variance.data = np.abs(layer.running_variance.data) + 0.1
    forward(layer)
    return layer


ROWS, IMAGES, GREY = (4, 6), (2, 3, 6, 7), (2, 6, 7)
WINDOW = {"kernel_y": 3, "kernel_x": 2, "stride_y": 2, "stride_x": 1, "pad_y": 1, "pad_x": 0}
MORE = [
    *(Case(kind, [ROWS]) for kind in ("ReLU", "Sigmoid", "Tanh", "STanh", "Dropout", "Softmax", "BatchNorm")),
    *(Case("Activation", [ROWS], {"activation_conf": {"type": kind}}) for kind in ("RELU", "SIGMOID", "TANH", "STANH")),
    Case("ReLU", [ROWS], {"relu_conf": {"negative_slope": 0.2}}),
    Case("LeakyReLU", [IMAGES], {"leakyrelu_conf": {"negative_slope": 0.2}}),
    *(Case(kind, [ROWS]) for kind in ("SiLU", "GELU", "LayerNorm")),
    Case("GELU", [ROWS], {"gelu_conf": {"approximate": "tanh"}}),
    *(Case(kind, [ROWS, ROWS, ROWS]) for kind in ("Add", "Multiply")),
    Case("Multiply", [IMAGES[:2], IMAGES, (*IMAGES[:2], 1, 1)]),
    Case("InnerProduct", [IMAGES], {"innerproduct_conf": {"num_output": 5}}),
    Case("InnerProduct", [ROWS], {"innerproduct_conf": {"num_output": 5, "transpose": True, "bias_term": False}}),
    Case("Softmax", [ROWS], {"softmax_conf": {"num_softmax_per_instance": 3}}),
    Case("Softmax", [IMAGES], {"softmax_conf": {"num_softmax_per_instance": 42}}),
    Case("Softmax", [IMAGES]),
    *(Case("Convolution", [shape], {"convolution_conf": {"num_filters": 4, **WINDOW}}) for shape in (IMAGES, GREY)),
    Case("Convolution", [IMAGES], {"convolution_conf": {"num_filters": 4, "bias_term": False}}),
    Case("Convolution", [IMAGES], {"convolution_conf": {"num_filters": 6, "groups": 3, "dilation_x": 2, **WINDOW}}),
    Case("ConvTranspose", [IMAGES], {"convtranspose_conf": {"num_filters": 6, "groups": 3, "dilation_x": 2, **WINDOW}}),
    Case("ConvTranspose", [GREY], {"convtranspose_conf": {"num_filters": 2, "stride": 2, "output_pad": 1}}),
    Case("ConvTranspose", [IMAGES], {"convtranspose_conf": {"num_filters": 4, "bias_term": False}}),
    *(
        Case("Upsample", [shape], {"upsample_conf": {"factor": factor, "mode": mode}})
        for shape in (IMAGES, GREY)
        for factor, mode in ((2, "NEAREST"), (3, "NEAREST"), (2, "BILINEAR"), (3, "BILINEAR"))
    ),
    *(
        Case("AdaptivePooling", [IMAGES], {"adaptivepooling_conf": {"height": 3, "width": width, "pool": pool}})
        for width in (7, 4)
        for pool in ("AVG", "MAX")
    ),
    *(Case("Pooling", [shape], {"pooling_conf": {"pool": "MAX", **WINDOW}}) for shape in (IMAGES, GREY)),
    *(
        Case("Pooling", [IMAGES], {"pooling_conf": {"pool": "AVG", "count_include_pad": counts, **WINDOW}})
        for counts in (False, True)
    ),
    Case("CudnnPool", [IMAGES], {"pooling_conf": {"pool": "AVG", **WINDOW}}),
    *(
        Case("GlobalPooling", [shape], {"globalpooling_conf": {"pool": pool}})
        for shape in (IMAGES, GREY)
        for pool in ("AVG", "MAX")
    ),
    *(Case("LRN", [(2, 6, 3, 4)], {"lrn_conf": {"local_size": size, "alpha": 0.5, "knorm": 2}}) for size in (3, 5)),
    *(Case("BatchNorm", [shape]) for shape in (IMAGES, GREY)),
    Case("GroupNorm", [IMAGES], {"groupnorm_conf": {"num_groups": 3}}),
    Case("GroupNorm", [(2, 6, 3, 4)], {"groupnorm_conf": {"num_groups": 2}}),
    Case("GroupNorm", [GREY], {"groupnorm_conf": {"num_groups": 1}}),
    Case("ImagePreprocess", [IMAGES], {"rgbimage_conf": {"cropsize": 4, "scale": 0.5, "mirror": True}}),
    Case("ImagePreprocess", [IMAGES], {"rgbimage_conf": {"cropsize": 6, "pad": 2}}),
    Case("ImagePreprocess", [IMAGES]),
    Case("Concate", [ROWS, ROWS], {"concate_conf": {"concate_dim": 1}}),
    Case("Concate", [ROWS, ROWS]),
    Case("Concate", [ROWS, ROWS], n_steps=2),
    Case("Slice", [(4, 7)], {"slice_conf": {"slice_dim": 1, "num_slices": 3}}),
    Case("Slice", [(4, 7)]),
    Case("Split", [ROWS], {"split_conf": {"num_splits": 2}}),
    Case("ArgSort", [ROWS], {"argsort_conf": {"topk": 3}}),
    *(
        Case("MultiHeadAttention", [(12, 6)], {"multiheadattention_conf": {"num_heads": 2, **block}}, n_steps=4)
        for block in ({}, {"causal": True}, {"bias_term": False})
    ),
    Case("PositionalEmbedding", [(12, 6)], {"positionalembedding_conf": {"max_length": 9}}, n_steps=4),
    *(
        Case("Embedding", [shape], {"embedding_conf": {"vocab_size": 5, "feature_dim": 4}})
        for shape in ((4, 1), (4, 3))
    ),
    Case("OneHot", [(4, 1)], {"onehot_conf": {"vocab_size": 5}}),
    Case("Embedding", [(4, 3)], {"embedding_conf": {"vocab_size": 5, "feature_dim": 4}}),
    *(
        Case(kind, shapes, {f"{kind.lower()}_conf": {"dim_hidden": 5, **block}}, n_steps=3)
        for kind in ("GRU", "LSTM", "RNN")
        for shapes in ([(12, 6)], [(12, 6), (4, 5)])
        for block in ({}, {"bias_term": False}, {"reverse": True})
    ),
    *(
        Case(kind, [(12, 6), (4, 5), (12, 1)], {f"{kind.lower()}_conf": {"dim_hidden": 5, **block}}, 3, masked=True)
        for kind in ("GRU", "LSTM", "RNN")
        for block in ({"bias_term": False}, {"reverse": True})
    ),
    *(
        Case("RNN", [(12, 6)], {"rnn_conf": {"dim_hidden": 5, "activation": kind}}, n_steps=3)
        for kind in ("SIGMOID", "RELU")
    ),
]
