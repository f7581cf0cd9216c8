"""Blocks of the neuron, loss, output and connection layers (SINGA's ``*_conf``)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import Field

from singa_dask.conf.model import Conf, Count, Finding, Many, NonNegative, Size, choice, raw_value

__all__ = [
    "ActivationConf",
    "ArgSortConf",
    "BMConf",
    "ConcateConf",
    "ConvolutionConf",
    "DropoutConf",
    "DummyConf",
    "EmbeddingConf",
    "GRUConf",
    "InnerProductConf",
    "LRNConf",
    "LSTMConf",
    "PoolingConf",
    "RBMConf",
    "RNNConf",
    "RNNDummyConf",
    "ReLUConf",
    "SamplingConf",
    "SliceConf",
    "SoftmaxConf",
    "SoftmaxLossConf",
    "SplitConf",
]


class ActivationConf(Conf):
    """``activation_conf`` (SINGA's ActivationProto)."""

    type: Annotated[Literal["RELU", "SIGMOID", "TANH", "STANH"], choice()] = "RELU"
    """The function."""


class WindowConf(Conf):
    """A window that moves over images: one number for both axes where it is given, else one for each.

    ``kernel``, ``pad`` and ``stride`` rule over the keys that end in ``_x`` and ``_y``.
    """

    kernel: Size | None = None
    """Height and width of the window."""
    pad: Count | None = None
    """Rows and columns of padding on each side."""
    stride: Size | None = None
    """Step of the window on both axes."""
    kernel_x: Size = 3
    """Width of the window."""
    kernel_y: Size = 3
    """Height of the window."""
    pad_x: Count = 0
    """Columns of padding on the left and on the right."""
    pad_y: Count = 0
    """Rows of padding above and below."""
    stride_x: Size = 1
    """Step of the window to the right."""
    stride_y: Size = 1
    """Step of the window down."""

    @property
    def kernel_size(self) -> tuple[int, int]:
        """Height and width of the window."""
        return (self.kernel_y, self.kernel_x) if self.kernel is None else (self.kernel, self.kernel)

    @property
    def padding(self) -> tuple[int, int]:
        """Padding on (each of top and bottom, each of left and right)."""
        return (self.pad_y, self.pad_x) if self.pad is None else (self.pad, self.pad)

    @property
    def strides(self) -> tuple[int, int]:
        """Step (down, to the right)."""
        return (self.stride_y, self.stride_x) if self.stride is None else (self.stride, self.stride)

    def key(self, of: Literal["kernel", "pad", "stride"], axis: int) -> str:
        """Return the key that rules over an axis, 0 for height, 1 for width."""
        return of if getattr(self, of) is not None else f"{of}_{'yx'[axis]}"


class ConvolutionConf(WindowConf):
    """``convolution_conf`` (SINGA's ConvolutionProto)."""

    num_filters: Size
    """Channels of the output."""
    bias_term: bool = True
    """Whether each filter has a bias."""
    workspace_byte_limit: Count = 512
    """Most memory for cuDNN, in MB."""


class PoolingConf(WindowConf):
    """``pooling_conf`` (SINGA's PoolingProto)."""

    pool: Annotated[Literal["MAX", "AVG"], choice()] = "MAX"
    """Take the largest value of a window, or the mean."""
    ties: Literal["first", "all"] = "first"
    """Which of equal largest values of a window get its gradient: the first, by rows, or each, as SINGA's kPooling."""
    count_include_pad: bool | None = None
    """Whether padding counts in a mean; when not given it does, but for CudnnPool."""
    stride_x: Size = 2
    """Step of the window to the right."""
    stride_y: Size = 2
    """Step of the window down."""


class DropoutConf(Conf):
    """``dropout_conf`` (SINGA's DropoutProto)."""

    dropout_ratio: float = Field(default=0.5, ge=0, lt=1)
    """Part of the values that is dropped in training."""


class DummyConf(Conf):
    """``dummy_conf`` (SINGA's DummyProto)."""

    input: bool = False
    """Make random data of the shape."""
    output: bool = False
    """Make random gradients."""
    shape: Many[Size] = Field(default=[])
    """Shape of the data, batch first."""


class InnerProductConf(Conf):
    """``innerproduct_conf`` (SINGA's InnerProductProto)."""

    num_output: Size
    """Values of an output row."""
    bias_term: bool = True
    """Whether a bias is added."""
    transpose: bool = False
    """Keep the weights as (inputs, outputs) instead of (outputs, inputs)."""


class LRNConf(Conf):
    """``lrn_conf``: local response normalisation (SINGA's LRNProto)."""

    local_size: Size = 5
    """Channels of the window, an odd number."""
    alpha: float = 1.0
    """Weight of the squares; divided by local_size."""
    beta: float = 0.75
    """Exponent."""
    knorm: float = 1.0
    """Added to the sum."""

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Finding]:
        """Check that the window has a middle."""
        size = raw_value(data, "local_size", int, 5)
        if size > 0 and size % 2 == 0:
            yield ("local_size",), f"expected an odd number, got {size}."


class RBMConf(Conf):
    """``rbm_conf``, in the visible and in the hidden layer (SINGA's RBMProto)."""

    hdim: Size
    """Hidden units; both layers say it."""
    bias_term: bool = True
    """Whether there is a bias."""
    gaussian: bool = False
    """Whether the layer's own units are Gaussian: linear, with unit variance, instead of Bernoulli."""


class ReLUConf(Conf):
    """``relu_conf`` (SINGA's ReLUProto)."""

    negative_slope: NonNegative = 0.0
    """Slope below zero."""


class SoftmaxConf(Conf):
    """``softmax_conf`` (SINGA's SoftmaxProto)."""

    num_softmax_per_instance: Size = 1
    """Softmaxes over equal parts of a row; of images 1, or as many as they have pixels: over the channels of each."""


class RecurrentConf(Conf):
    """What the blocks of the recurrent layers share."""

    dim_hidden: Size
    """Units of the hidden state."""
    bias_term: bool = True
    """Whether there are biases; none, as in SINGA, where the layer lists all its weights and nothing else."""
    carry_state: bool = False
    """Begin each batch with the state at the end of the batch before, where it goes on with the same stream."""


class GRUConf(RecurrentConf):
    """``gru_conf`` (SINGA's GRUProto)."""


class LSTMConf(RecurrentConf):
    """``lstm_conf``."""


class RNNConf(RecurrentConf):
    """``rnn_conf``."""

    activation: Annotated[Literal["TANH", "RELU", "SIGMOID"], choice()] = "TANH"
    """The function of the sum."""


class EmbeddingConf(Conf):
    """``embedding_conf`` (SINGA's EmbeddingProto)."""

    vocab_size: Count = 0
    """Rows of the table."""
    feature_dim: Size = 100
    """Values of a row."""


class BMConf(Conf):
    """``bm_conf``: batch normalisation (SINGA's BMProto, which has no keys)."""

    momentum: float = Field(default=0.9, ge=0, lt=1)
    """Part of the running mean and variance that stays at each step; the rest comes from the batch."""
    epsilon: float = Field(default=1e-5, gt=0)
    """Added to the variance."""


class SoftmaxLossConf(Conf):
    """``softmaxloss_conf`` (SINGA's SoftmaxLossProto)."""

    topk: Size = 1
    """A record counts as right when its label is among the best this many."""
    scale: float = 1.0
    """Multiplies loss, accuracy and gradient."""


class ArgSortConf(Conf):
    """``argsort_conf`` (SINGA's ArgSortProto)."""

    topk: Size = 1
    """Labels kept for each record, best first."""


class ConcateConf(Conf):
    """``concate_conf`` (SINGA's ConcateProto)."""

    concate_dim: Count = 0
    """Axis along which the sources are joined; 0 is the batch."""
    num_concates: Size = 1
    """Number of outputs."""


class SliceConf(Conf):
    """``slice_conf`` (SINGA's SliceProto)."""

    slice_dim: Count = 0
    """Axis along which the source is cut; 0 is the batch."""
    num_slices: Size = 1
    """Number of pieces."""


class SplitConf(Conf):
    """``split_conf`` (SINGA's SplitProto)."""

    num_splits: Size = 1
    """Number of readers."""


class SamplingConf(Conf):
    """``sampling_conf``: how a column is drawn."""

    temperature: NonNegative = 1.0
    """Divides what the probabilities are made of: likely columns become likelier below 1; at 0 the best is taken."""
    probabilities: bool = False
    """Whether the source gives probabilities, as Softmax does, and not what they are made of."""


class RNNDummyConf(Conf):
    """``rnn_dummy_conf``: data of the last batch fed back, for sampling (SINGA's RNNDummyProto)."""

    dynamic_srclayer: str = ""
    """Layer whose output of the batch before is this layer's data, in a test."""
    shape: Many[Size] = Field(default=[])
    """Shape of the data, batch first."""
    integer: bool = False
    """Round the random start down."""
    low: float = 0.0
    """Least random start."""
    high: float = 0.0
    """Bound of the random start, itself not drawn."""

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Finding]:
        """Check that the bounds are in order."""
        low, high = (raw_value(data, key, float, raw_value(data, key, int, 0)) for key in ("low", "high"))
        if low > high:
            yield ("high",), f"expected at least low, which is {low:g}, got {high:g}."
