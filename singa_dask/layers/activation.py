"""Activation layers: elementwise functions, after SINGA's src/neuralnet/neuron_layer/.

Most layers compute the gradient from their output. Layers that extend `OfSource` compute it from their source.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from singa_dask.conf import Phase
from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Field, choice
from singa_dask.layers.base import LAYERS, Layer
from singa_dask.layers.traits import Connection, Speed
from singa_dask.ops.contract import Array, Formula, Ops


class ActivationConf(Conf):
    """``activation_conf`` (SINGA's ActivationProto)."""

    type: Annotated[Literal["RELU", "SIGMOID", "TANH", "STANH"], choice()] = "RELU"
    """The activation function f."""


class ReLUConf(Conf):
    """``relu_conf`` (SINGA's ReLUProto)."""

    negative_slope: float = Field(default=0.0, ge=0, le=1)
    """Slope below zero."""


class Kernels:
    """The kernels of an elementwise function and of its gradient.

    Attributes
    ----------
    name : str
        Name of the function's kernel.
    options : dict of str to values
        Arguments of both kernels.
    """

    def __init__(self, function: str, **options: Any) -> None:
        self.name, self.options = function.lower(), options

    @property
    def is_relu(self) -> bool:
        """Whether the function is a ReLU with slope 0 for negative values."""
        return self.name == "relu" and not self.options.get("negative_slope")

    def forward(self, ops: Ops, x: Array, out: Array) -> None:
        """Compute the function of ``x`` and write the result to ``out``."""
        getattr(ops, self.name)(x, out=out, **self.options)

    def backward(self, ops: Ops, values: Array, gy: Array, out: Array) -> None:
        """Compute the gradient of the source and write it to ``out``.

        ``values`` are the values of the output or of the source, whichever the gradient kernel needs. ``gy`` is the
        gradient of the output.
        """
        getattr(ops, f"{self.name}_grad")(values, gy, out=out, **self.options)


@LAYERS.register("Activation", "CudnnActivation")
class Activation(Layer):
    """y = f(x), elementwise; f is ``activation_conf.type``: RELU, SIGMOID, TANH or STANH.

    With ``share_src_blobs``, the layer writes its output to the memory of its source, if the source layer does not read
    this memory again. This does not change any result. (In SINGA, the incoming gradient is lost.) In training, a ReLU
    that follows a BatchNorm, a Convolution or an Add is computed by the kernel of that layer.
    """

    options_class: ClassVar[type[Conf] | None] = ActivationConf
    speed = Speed(time_foldable=True, capturable=True, feature_parallel=Connection.ONE_TO_ONE)
    function: ClassVar[str] = ""
    """Name of the function. If empty, the block sets the function."""

    def setup(self) -> None:
        self.kernels = self.find_kernels()
        source = self.sources[0]
        self.in_place = self.conf.share_src_blobs and source.overwritable
        self.add_output(source.shape, own_data=not self.in_place, own_grad=not self.in_place)

    def find_kernels(self) -> Kernels:
        """Return the kernels of f and of its gradient, which is computed from y."""
        return Kernels(self.function or self.conf.block(ActivationConf).type)

    def attach(self) -> None:
        if self.in_place:
            source, feature = self.sources[0], self.features[0]
            feature.data, feature.grad = source.data, source.grad

    def forward(self, phase: Phase) -> None:
        self.kernels.forward(self.ops, self.sources[0].data, out=self.features[0].data)

    def backward(self, phase: Phase) -> None:
        feature, source = self.features[0], self.sources[0]
        if source.grad is not None:
            self.kernels.backward(self.ops, feature.data, feature.output_grad, out=source.grad)


@LAYERS.register()
class ReLU(Activation):
    """y = x where x is positive, else y = ``relu_conf.negative_slope`` x.

    SINGA ignores the slope.
    """

    options_class = ReLUConf
    speed = Activation.speed

    def find_kernels(self) -> Kernels:
        return Kernels("relu", negative_slope=self.options.negative_slope)


@LAYERS.register()
class Sigmoid(Activation):
    """y = 1 / (1 + exp(-x))."""

    options_class = None
    function = "sigmoid"


@LAYERS.register()
class Tanh(Activation):
    """y = tanh(x)."""

    options_class = None
    function = "tanh"


@LAYERS.register()
class STanh(Activation):
    """y = 1.7159047 tanh(0.66666667 x)."""

    options_class = None
    function = "stanh"


class OfSource(Layer):
    """Base of layers y = f(x), elementwise, whose gradient is computed from x."""

    speed = Speed(time_foldable=True, capturable=True, feature_parallel=Connection.ONE_TO_ONE)
    function: ClassVar[str]

    def setup(self) -> None:
        self.kernels = self.find_kernels()
        self.add_output(self.sources[0].shape, overwritable=True)

    def find_kernels(self) -> Kernels:
        """Return the kernels of f and of its gradient, which is computed from x."""
        return Kernels(self.function)

    def forward(self, phase: Phase) -> None:
        self.kernels.forward(self.ops, self.sources[0].data, out=self.features[0].data)

    def backward(self, phase: Phase) -> None:
        source = self.sources[0]
        if source.grad is not None:
            self.kernels.backward(self.ops, source.data, self.features[0].output_grad, out=source.grad)


class Elementwise(OfSource):
    """Base of elementwise layers y = f(x) that are defined by the formulas of f and of its derivative.

    The formulas are compiled to one fused kernel.

    Attributes
    ----------
    value, derivative : str
        Formulas of f(x) and f'(x), as Python expressions. They may use ``x``, numbers, ``+ - * /``, ``** 2``, and the
        functions ``exp``, ``log``, ``sqrt``, ``tanh``, ``sigmoid``, ``abs``, ``max`` and ``min``. Assignments to names
        of your own may precede the expression; each assignment ends with a semicolon. Numbers are rounded to the dtype
        of features.
    """

    speed = OfSource.speed
    value: ClassVar[str]
    derivative: ClassVar[str]

    def find_kernels(self) -> Kernels:
        return Kernels("elementwise", formula=Formula(self.value, self.derivative))


@LAYERS.register()
class SiLU(OfSource):
    """y = x sigmoid(x), elementwise; Hendrycks and Gimpel (2016), also known as swish."""

    function = "silu"


class GELUConf(Conf):
    """``gelu_conf``."""

    approximate: Literal["none", "tanh"] = "none"
    """Whether to compute the error function exactly ("none"), or to approximate it by a tanh."""


@LAYERS.register()
class GELU(OfSource):
    """y = x (1 + erf(x / sqrt(2))) / 2, elementwise. After Hendrycks and Gimpel (2016).

    With ``approximate: tanh`` y = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2.
    """

    options_class = GELUConf
    speed = OfSource.speed

    def find_kernels(self) -> Kernels:
        return Kernels("gelu", approximate=self.options.approximate == "tanh")


class LeakyReLUConf(ReLUConf):
    """``leakyrelu_conf``."""

    negative_slope: float = Field(default=0.01, ge=0, le=1)
    """Slope below zero."""


@LAYERS.register()
class LeakyReLU(ReLU):
    """y = x where x is positive, else y = ``negative_slope`` x, elementwise. After Maas et al. (2013)."""

    options_class = LeakyReLUConf
