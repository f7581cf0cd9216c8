"""Layers of neural nets. Each file has the layers of one family, with their blocks of the job file.

To add a layer, write its class in a file of this directory and add its name to the list below. The file is imported
when a job first names one of its layers.

Used by all layers
    `base` has the class `Layer`, and `traits` the properties that a layer class declares. `site` has the position of a
    layer in its net, `feature` the outputs of layers, `param` their weights, and `buffer` their workspaces. `fused`
    describes the work that a layer does for its neighbours. `metrics` sums what layers measure. `context` has the
    values that all layers of a net share. `feedback` is for layers that close a cycle, `forwarding` for layers that
    pass on their sources.
Used by several families
    `window`: windows that move over images. `time_steps`: the time steps of a layer, and padding masks. `numbers`: the
    base of layers that read integers. `fused_params`: the params of several gates in one array. `contiguous`:
    copies of arrays in C order. `torch_tensors`: PyTorch's tensors in our memory, and its random numbers.
Inserted by the net
    `connection`: Split, Slice and Concate. `bridge`: edges between two workers.
"""

from singa_dask.layers.base import LAYERS, Layer
from singa_dask.layers.context import Context
from singa_dask.layers.feature import Feature, Raw, RecordIds, Span
from singa_dask.layers.param import Param
from singa_dask.layers.site import LayerSite, ShardIndex
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
        "torch_loss": "TorchLoss",
        "torch_module": "TorchModule",
        "upsample": "Upsample",
    },
)
