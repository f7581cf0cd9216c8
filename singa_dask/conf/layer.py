"""A layer of the net and its params (SINGA's LayerProto, ParamProto, ParamGenProto)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, TypeVar, get_args

from pydantic import Field

from singa_dask.conf import input as blocks_in
from singa_dask.conf import neuron as blocks
from singa_dask.conf.model import Conf, Count, Finding, Many, NetPhase, NonNegative, RegisteredName, Size, choice
from singa_dask.conf.part import PartConf
from singa_dask.conf.phase import Phase
from singa_dask.errors import ConfigError, Problem

__all__ = ["BLOCKS", "InitConf", "LayerConf", "ParamConf"]

B = TypeVar("B", bound=Conf)
BlockType: TypeAlias = type[B]
PHASES = {"train": Phase.TRAIN, "val": Phase.VALIDATION, "test": Phase.TEST}


class InitConf(PartConf):
    """``init`` of a param: how its initial values are drawn (SINGA's ParamGenProto)."""

    kind: ClassVar[str] = "initialiser"
    aliases: ClassVar[Mapping[str, str]] = {"user_type": "type"}

    type: Annotated[str, Field(min_length=1), RegisteredName("initialiser")]
    """Name of the initialiser."""
    value: float = 1.0
    """The constant; elsewhere a factor."""
    mean: float = 0.0
    """Mean of a Gaussian."""
    std: NonNegative = 1.0
    """Standard deviation of a Gaussian."""
    low: float = -1.0
    """Least value of a uniform distribution."""
    high: float = 1.0
    """Greatest value of a uniform distribution."""
    user_conf: dict[str, Any] = Field(default={})
    """Options of a user's own initialiser."""

    @classmethod
    def rules(cls, data: Mapping[str, Any]) -> Iterator[Finding]:
        """Check that the bounds are in order."""
        low, high = data.get("low", -1.0), data.get("high", 1.0)
        if isinstance(low, (int, float)) and isinstance(high, (int, float)) and low > high:
            yield ("low",), f"expected at most high, which is {high:g}, got {low:g}."


class ParamConf(Conf):
    """``param`` of a layer (SINGA's ParamProto)."""

    name: str = ""
    """Name in checkpoints, and for share_from; made from the layer's when empty."""
    type: Annotated[Literal["Param", "User"], choice()] = "Param"
    """Kind of param; there is one."""
    init: InitConf | None = None
    """Initial values. Without it they come from a checkpoint or, where the job names none, are those of the layer's
    type: Glorot's for InnerProduct, Convolution and inputs of recurrent layers, orthogonal for their states, +-0.05 for
    Embedding, a small Gaussian for RBMs, 0 for biases. SINGA's own files need it, or a checkpoint."""
    lr_scale: float = 1.0
    """Multiplies the learning rate."""
    wd_scale: float = 1.0
    """Multiplies the weight decay."""
    share_from: str = ""
    """Name of the param whose values this one uses."""
    share_gradient: Literal["average", "sum"] = "average"
    """What the owner and those that share from it learn from: the average of their gradients, as in SINGA, or the sum,
    which is the gradient of tied weights. It is the sum where any of them says so."""


class LayerConf(Conf):
    """One layer (SINGA's LayerProto). The block that its type reads is called ``<type>_conf``."""

    aliases: ClassVar[Mapping[str, str]] = {"user_type": "type"}

    name: str = Field(min_length=1)
    """Name, unique in the net of a phase."""
    type: Annotated[str, Field(min_length=1), RegisteredName("layer")]
    """Type of layer."""
    srclayers: Many[str] = Field(default=[])
    """Layers that this one reads, in the order that its type expects."""
    param: Many[ParamConf] = Field(default=[])
    """Params in the order of the type: weights before bias."""
    include: Many[NetPhase] = Field(default=[])
    """Phases whose nets have this layer; all when empty."""
    exclude: Many[NetPhase] = Field(default=[])
    """Phases whose nets lack this layer; deprecated, use include."""
    share_src_blobs: bool = False
    """Let an activation write over its source's memory."""
    unroll_len: Size | None = None
    """Time steps; the net's when not given."""
    unroll_conn_type: Many[
        Annotated[Literal["OneToOne", "OneToAll", "FirstToLast", "Customized"], choice("Unroll")]
    ] = Field(default=[])
    """How each source's time steps are connected to this layer's; when not given, OneToAll of a source with one step,
    else OneToOne."""
    unroll_steps: list[list[list[Count]]] = Field(default=[])
    """For each Customized source, for each time step of this layer: the time steps of the source that it reads."""
    shift: Many[Count] = Field(default=[])
    """For OneToOne, by how many time steps each source is behind."""
    partition_dim: int | None = Field(default=None, ge=-1, le=1)
    """Split over the worker group by batch (0), by feature (1), or not (-1); the net's when not given."""
    location: Count | None = None
    """Worker of the group that computes the whole layer."""
    user_conf: dict[str, Any] = Field(default={})
    """What a layer of the user's own wants to know."""

    store_conf: blocks_in.StoreConf | None = None
    """For RecordInput, CSVInput, CSVOutput, RecordOutput."""
    lmdbdata_conf: blocks_in.LMDBDataConf | None = None
    """For the deprecated LMDBData."""
    mnist_conf: blocks_in.MnistConf | None = None
    """For the deprecated Mnist."""
    rgbimage_conf: blocks_in.RGBImageConf | None = None
    """For ImagePreprocess and the deprecated RGBImage."""
    sharddata_conf: blocks_in.ShardDataConf | None = None
    """For the deprecated ShardData."""
    char_rnn_conf: blocks_in.CharRNNConf | None = None
    """For CharRNN and CharRNNOutput."""
    onehot_conf: blocks_in.OneHotConf | None = None
    """For OneHot."""
    activation_conf: blocks.ActivationConf | None = None
    """For Activation."""
    convolution_conf: blocks.ConvolutionConf | None = None
    """For Convolution and its variants."""
    dropout_conf: blocks.DropoutConf | None = None
    """For Dropout."""
    dummy_conf: blocks.DummyConf | None = None
    """For Dummy."""
    innerproduct_conf: blocks.InnerProductConf | None = None
    """For InnerProduct."""
    lrn_conf: blocks.LRNConf | None = None
    """For LRN."""
    pooling_conf: blocks.PoolingConf | None = None
    """For Pooling and its variants."""
    rbm_conf: blocks.RBMConf | None = None
    """For RBMVis and RBMHid."""
    relu_conf: blocks.ReLUConf | None = None
    """For ReLU."""
    softmax_conf: blocks.SoftmaxConf | None = None
    """For Softmax."""
    gru_conf: blocks.GRUConf | None = None
    """For GRU."""
    lstm_conf: blocks.LSTMConf | None = None
    """For LSTM."""
    rnn_conf: blocks.RNNConf | None = None
    """For RNN."""
    embedding_conf: blocks.EmbeddingConf | None = None
    """For Embedding."""
    bm_conf: blocks.BMConf | None = None
    """For BatchNorm, which SINGA calls BM."""
    softmaxloss_conf: blocks.SoftmaxLossConf | None = None
    """For SoftmaxLoss."""
    argsort_conf: blocks.ArgSortConf | None = None
    """For ArgSort and Accuracy."""
    concate_conf: blocks.ConcateConf | None = None
    """For Concate."""
    slice_conf: blocks.SliceConf | None = None
    """For Slice."""
    split_conf: blocks.SplitConf | None = None
    """For Split."""
    rnn_dummy_conf: blocks.RNNDummyConf | None = None
    """For RNNDummy."""
    sampling_conf: blocks.SamplingConf | None = None
    """For Sampling."""

    def in_phase(self, phase: Phase) -> bool:
        """Tell whether the net of a phase (TRAIN, VALIDATION or TEST) has this layer."""
        included = [PHASES[name] for name in self.include] or list(PHASES.values())
        return any(phase & one for one in included) and not any(phase & PHASES[name] for name in self.exclude)

    def block(self, kind: BlockType[B]) -> B:
        """Return this layer's block of a kind; one of defaults when the job leaves it out and that is possible.

        Raises
        ------
        ConfigError
            The block is missing and has keys without defaults.
        """
        name = BLOCKS[kind]
        found: B | None = getattr(self, name)
        if found is not None:
            return found
        needed = [key for key, field in kind.model_fields.items() if field.is_required()]
        if needed:
            raise ConfigError(Problem((name,), f"{self.type} needs this block, with {', '.join(needed)}."))
        return kind()


BLOCKS: dict[type[Conf], str] = {
    get_args(field.annotation)[0]: name for name, field in LayerConf.model_fields.items() if name.endswith("_conf")
}
