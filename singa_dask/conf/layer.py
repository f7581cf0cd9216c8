"""A layer and its params (SINGA's LayerProto, ParamProto, ParamGenProto), and the phases of nets."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Count, Many, NetPhase, NonNegative, RegisteredName, Size, choice
from singa_dask.conf.mistakes import Finding
from singa_dask.conf.parts import PartConf


class Phase(enum.IntFlag):
    """Flags passed to each layer, with SINGA's numbers.

    ``TRAIN``, ``VALIDATION`` and ``TEST`` select a net; the other flags describe the pass.
    """

    NONE = 0
    TRAIN = 1
    VALIDATION = 2
    TEST = 4
    POSITIVE = 8
    NEGATIVE = 16
    FORWARD = 32
    BACKWARD = 64
    LOSS = 128
    DEPLOY = 256
    AGGREGATE_GRADIENT = 512

    @property
    def accumulates(self) -> bool:
        """Whether a layer adds to the gradients of its params instead of overwriting them."""
        return bool(self & Phase.AGGREGATE_GRADIENT)


PHASES = {"train": Phase.TRAIN, "val": Phase.VALIDATION, "test": Phase.TEST}


class InitConf(PartConf):
    """``init`` of a param: the initialiser of its values (SINGA's ParamGenProto)."""

    kind: ClassVar[str] = "initialiser"
    aliases: ClassVar[Mapping[str, str]] = {"user_type": "type"}

    type: Annotated[str, Field(min_length=1), RegisteredName("initialiser")]
    """Name of the initialiser."""
    value: float = 1.0
    """The value of a Constant; for other initialisers, a factor of the random numbers."""
    mean: float = 0.0
    """Mean of a Gaussian."""
    std: NonNegative = 1.0
    """Standard deviation of a Gaussian."""
    low: float = -1.0
    """Lower bound of a uniform distribution."""
    high: float = 1.0
    """Upper bound of a uniform distribution."""
    user_conf: dict[str, Any] = Field(default={})
    """Options of a user's initialiser."""

    def rules(self) -> Iterator[Finding]:
        """Check that the bounds are in order."""
        if self.low > self.high:
            yield ("low",), f"expected at most high, which is {self.high:g}, got {self.low:g}."


class ParamConf(Conf):
    """``param`` of a layer (SINGA's ParamProto)."""

    name: str = ""
    """Name in checkpoints and for share_from; derived from the layer's name when empty."""
    type: Annotated[Literal["Param", "User"], choice()] = "Param"
    """Unused: there is one type."""
    init: InitConf | None = None
    """Initialiser. By default, values come from a checkpoint or, if the job names none, from the type of the layer:
    Glorot's initialiser for InnerProduct, Convolution and inputs of recurrent layers, orthogonal for states of
    recurrent layers, uniform in +-0.05 for Embedding, a small Gaussian for RBMs, 0 for biases. Job files of SINGA
    need an initialiser or a checkpoint."""
    lr_scale: float = 1.0
    """Multiplies the learning rate."""
    wd_scale: float = 1.0
    """Multiplies the weight decay."""
    share_from: str = ""
    """Name of the param whose values this param uses."""
    share_gradient: Literal["average", "sum"] = "average"
    """Combination of the gradients of all params that share values: their average, as in SINGA, or their sum, which is
    the gradient of tied weights. It is enough to set sum for one of the params."""


class LayerConf(PartConf):
    """A layer (SINGA's LayerProto); the block of its type is called ``<type>_conf``."""

    kind: ClassVar[str] = "layer"
    aliases: ClassVar[Mapping[str, str]] = {"user_type": "type"}

    name: str = Field(min_length=1)
    """Name, unique in each net."""
    type: Annotated[str, Field(min_length=1), RegisteredName("layer")]
    """Type of layer."""
    srclayers: Many[str] = Field(default=[])
    """Layers that this layer reads, in the order that its type requires."""
    param: Many[ParamConf] = Field(default=[])
    """Params, in the order that the type of the layer requires: weights before bias."""
    include: Many[NetPhase] = Field(default=[])
    """Phases whose nets have this layer; if empty, all phases."""
    exclude: Many[NetPhase] = Field(default=[])
    """Phases whose nets do not have this layer. Deprecated: use include."""
    share_src_blobs: bool = False
    """Let an activation overwrite its source's memory."""
    unroll_len: Size | None = None
    """Number of time steps; by default unroll_len of the net."""
    unroll_conn_type: Many[
        Annotated[Literal["OneToOne", "OneToAll", "FirstToLast", "Customized"], choice("Unroll")]
    ] = Field(default=[])
    """For each source, how its time steps are connected to the time steps of this layer. The default is OneToAll for
    a source with one time step, else OneToOne."""
    unroll_steps: list[list[list[Count]]] = Field(default=[])
    """For each Customized source and each time step of this layer, the time steps of the source to read."""
    shift: Many[Count] = Field(default=[])
    """For OneToOne, the number of time steps by which each source is delayed."""
    partition_dim: int | None = Field(default=None, ge=-1, le=1)
    """How the layer is divided among the workers of a group: by records (0), by features (1), or not at all (-1). By
    default partition_dim of the net."""
    location: Count | None = None
    """Index of the worker in the group that computes the whole layer."""
    user_conf: dict[str, Any] = Field(default={})
    """Options of a user's layer."""

    @property
    def has_clear_phases(self) -> bool:
        """Whether include and exclude are valid."""
        return not {"include", "exclude"} & self.wrong

    @property
    def phases(self) -> frozenset[str]:
        """Names of the phases whose nets have the layer; all if include or exclude is not valid."""
        return frozenset(name for name in PHASES if not self.has_clear_phases or self.in_phase(PHASES[name]))

    def in_phase(self, phase: Phase) -> bool:
        """Return whether the net of a phase (TRAIN, VALIDATION or TEST) has this layer."""
        included = [PHASES[name] for name in self.include] or list(PHASES.values())
        return any(phase & one for one in included) and not any(phase & PHASES[name] for name in self.exclude)
