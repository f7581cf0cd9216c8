"""Layers, each with its block of the job file, one file a family.

A new layer is a class in a file of this directory, and its name below: the file is imported when a job names it.

The contract of all layers
    `base`: the class `Layer`. `traits`: what a type of layer declares. `feature`: the outputs of layers. `param`: their
    weights. `fused`: their neighbours' work that they do. `metrics`: sums of what they measure. `context`: what all
    layers of a net share. `feedback`, `forwarding`: layers that close a cycle, and layers that pass on their sources.
What several families share
    `window`: windows that move over images. `fused_params`: params of gates in one array. `contiguous`: arrays in C
    order.
Inserted by a net
    `connection`: Split, Slice and Concate. `bridge`: edges between workers.
"""

from singa_dask.layers.base import LAYERS, Layer, LayerSite, ShardIndex
from singa_dask.layers.context import Context
from singa_dask.layers.feature import Feature, Raw, RecordIds, Span
from singa_dask.layers.param import Param
from singa_dask.layers.traits import Connection, Speed, Traits

LAYERS.base = Layer

__all__ = [
    "LAYERS",
    "Connection",
    "Context",
    "Feature",
    "Layer",
    "LayerSite",
    "Param",
    "Raw",
    "RecordIds",
    "ShardIndex",
    "Span",
    "Speed",
    "Traits",
]

LAYERS.add_modules(
    __name__,
    {
        "activation": "Activation CudnnActivation GELU LeakyReLU ReLU STanh SiLU Sigmoid Tanh",
        "attention": "MultiHeadAttention",
        "axes": "Reshape Stack Transpose Unstack",
        "combine": "Add Multiply",
        "connection": "Concate Slice Split",
        "conv": "CConvolution ConvTranspose Convolution CudnnConv Deconvolution",
        "distance_loss": "ContrastiveLoss TripletLoss",
        "dummy": "Dummy",
        "embedding": "Embedding OneHot PositionalEmbedding RNNLabel",
        "loss": "EuclideanLoss HuberLoss SigmoidCrossEntropyLoss",
        "neuron": "CudnnSoftmax Dropout InnerProduct Softmax",
        "norm": "BM BatchNorm CudnnBM CudnnLRN GroupNorm LRN LayerNorm RMSNorm",
        "outputs": "Accuracy ArgSort",
        "pooling": "AdaptivePooling CPooling CudnnPool GlobalPooling Pooling",
        "rbm": "RBMHid RBMVis",
        "recurrent": "GRU LSTM RNN",
        "sequence": "ClassToken PaddingMask TimePooling",
        "softmax_loss": "CudnnSoftmaxLoss PixelSoftmaxLoss SoftmaxLoss",
        "upsample": "Upsample",
    },
)
