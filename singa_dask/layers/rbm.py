"""The two layers of a restricted Boltzmann machine (RBM), which contrastive divergence trains.

After Hinton, "Training products of experts by minimizing contrastive divergence" (2002), and SINGA's
src/neuralnet/neuron_layer/rbm.cc. Statistics are computed from the probabilities of units, or from the means of
Gaussian units. Only reconstructions use samples of the hidden units.
"""

from __future__ import annotations

from collections.abc import Sequence

from singa_dask.conf import InitConf, Phase
from singa_dask.conf.base import Conf
from singa_dask.conf.kinds import Size
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Layer, append_output
from singa_dask.layers.buffer import Buffer
from singa_dask.layers.feature import Feature
from singa_dask.layers.feedback import Feedback
from singa_dask.layers.param import ZEROS, Param
from singa_dask.layers.traits import Traits
from singa_dask.ops.contract import Array, DType


class RBMConf(Conf):
    """``rbm_conf``, for the visible and the hidden layer (SINGA's RBMProto)."""

    hdim: Size
    """Number of hidden units; set it in both layers."""
    bias_term: bool = True
    """Whether there is a bias."""
    gaussian: bool = False
    """Whether the units of this layer are Gaussian, linear with unit variance, instead of Bernoulli."""


# After Hinton, "A practical guide to training restricted Boltzmann machines" (2010).
INITIAL = InitConf(type="Gaussian", std=0.01)


class Units(Feature):
    """The states of the units of one RBM layer: given the records, and as sampled from the model.

    Attributes
    ----------
    data : ndarray, shape (N, D)
        In the visible layer, the records. In the hidden layer, the probabilities of the units given the records; for
        Gaussian units, their means.
    model : ndarray, shape (N, D)
        The states after Gibbs sampling.
    both : Buffer, shape (2 N, D)
        The array whose halves are ``data`` and ``model``.
    gaussian : bool
        Whether the units are linear with unit variance. Otherwise they are Bernoulli units.
    weight : Param
        The weights between the two layers.
    """

    model: Array

    def __init__(self, shape: Sequence[int], dtype: DType, gaussian: bool, weight: Param, both: Buffer) -> None:
        super().__init__(shape, dtype, requires_grad=False, own_data=False)
        self.gaussian = gaussian
        self.weight = weight
        self.both = both


class _RBMLayer(Layer):
    """Base of the two layers."""

    options_class = RBMConf
    traits = Traits(params=("weight", "bias"), role="unsupervised")

    def add_units(self, n_rows: int, n_units: int, n_visible: int, *, requires_grad: bool = True) -> None:
        """Add the output and the params; ``requires_grad`` is False if the weight gets no gradient here."""
        dtype = self.context.dtype
        self.weight = self.add_param((self.options.hdim, n_visible), initial=INITIAL, requires_grad=requires_grad)
        self.bias = self.add_param((n_units,), initial=ZEROS) if self.options.bias_term else None
        both = self.buffer("both", (2 * n_rows, n_units), dtype)
        self.units = Units((n_rows, n_units), dtype, self.options.gaussian, self.weight, both)
        append_output(self, self.units)

    def attach(self) -> None:
        units, n_rows = self.units, self.units.shape[0]
        units.data, units.model = units.both.data[:n_rows], units.both.data[n_rows:]

    def drive(self, x: Array, out: Array, transpose: bool = False) -> None:
        """Compute the probabilities, or means, of this layer's units given the other layer's states ``x``."""
        bias = None if self.bias is None else self.bias.data
        self.ops.linear(x, self.weight.data, bias, out=out, transpose=transpose)
        if not self.units.gaussian:
            self.ops.sigmoid(out, out=out)

    def backward(self, phase: Phase) -> None:
        """Compute the gradient of the bias: the mean of ``model`` minus the mean of ``data``."""
        if self.bias is None:
            return
        grad, units, ops = self.bias.grad, self.units, self.ops
        ops.linear_grad_bias(units.data, out=grad)
        ops.multiply(grad, -1, out=grad)
        ops.linear_grad_bias(units.model, out=grad, accumulate=True)
        ops.multiply(grad, 1 / units.shape[0], out=grad)


@LAYERS.register()
class RBMVis(Feedback, _RBMLayer):
    """The visible units of an RBM: the records x (N, ...), read as rows (N, D), and their reconstruction.

    The ``srclayers`` are the layer with the records and the RBMHid. The values of images are in the order C, H, W. The
    params are W (H, D), where H is ``rbm_conf.hdim``, and b (D,).

    A reconstruction is sigmoid(h W + b), or h W + b for Gaussian units, where h is a sample of the hidden units. In the
    sample, a hidden unit is 1 with its probability, else 0. A Gaussian hidden unit is drawn from a normal distribution
    with the mean of the unit and variance 1. The reconstruction itself is not sampled. The gradient of W is (h-^T v- -
    h+^T v+) / N, where - marks states of the model and + states given the records.

    The metric "squared_error" is the mean over records of sum (x - v)^2, where v is the first reconstruction of x.

    Notes
    -----
    SINGA has no Gaussian visible units, and prints half of this error or less.
    """

    traits = _RBMLayer.traits.replace(n_sources=(1, 2))
    hidden: Units

    def setup(self) -> None:
        if len(self.sources) != 1 or len(self.conf.srclayers) != 2:
            message = f"{self.conf.type} reads two layers: the records, and an RBMHid that reads this layer."
            raise ConfigError(Problem(("srclayers",), message))
        n_rows, n_visible = self.sources[0].shape[0], self.sources[0].size
        self.add_units(n_rows, n_visible, n_visible)
        self.n_samples = 0

    def bind_feedback(self, source: Feature) -> None:
        if not isinstance(source, Units):
            message = f"expected an RBMHid, but {self.conf.srclayers[1]!r} is not one."
            raise ConfigError(Problem(("srclayers", 1), message))
        self.hidden = source
        shape, dtype = source.shape, source.dtype
        self.sample = self.buffer("sample", shape, dtype)
        self.difference = self.buffer("difference", self.units.shape)
        self.signed = self.buffer("signed", (2 * shape[0], *shape[1:]), dtype, when="backward")

    def forward(self, phase: Phase) -> None:
        """Copy the records; with `Phase.NEGATIVE`, reconstruct them from samples of the hidden units.

        In tests the reconstruction uses the hidden units that were computed from the records.
        """
        if not phase & Phase.NEGATIVE:
            self.n_samples = 0
            self.ops.copy(self.rows(), out=self.units.data)
            return
        units, hidden = self.units, self.hidden
        self.draw(hidden.data if phase & Phase.TEST else hidden.model, hidden.gaussian)
        self.drive(self.sample.data, units.model, transpose=True)
        if phase & Phase.TEST:
            difference = self.difference.data
            self.ops.subtract(units.data, units.model, out=difference)
            self.add_metric("squared_error", self.ops.sum_squares(difference), n=len(difference))

    def draw(self, chances: Array, gaussian: bool) -> None:
        """Sample the hidden units, given their probabilities or means in ``chances``."""
        key, first_row = self.random_key("hidden", self.n_samples), self.first_row(len(chances))
        self.n_samples += 1
        if gaussian:
            self.ops.gaussian(key, out=self.sample.data, first_row=first_row)
            self.ops.add(self.sample.data, chances, out=self.sample.data)
        else:
            self.ops.bernoulli(key, chances, out=self.sample.data, first_row=first_row)

    def backward(self, phase: Phase) -> None:
        hidden, n_rows = self.hidden, self.units.shape[0]
        signed = self.signed.data
        self.ops.multiply(hidden.data, -1 / n_rows, out=signed[:n_rows])
        self.ops.multiply(hidden.model, 1 / n_rows, out=signed[n_rows:])
        self.ops.linear_grad_weight(self.units.both.data, signed, out=self.weight.grad)
        super().backward(phase)


@LAYERS.register()
class RBMHid(_RBMLayer):
    """The hidden units of an RBM: probabilities sigmoid(v W^T + c), or means v W^T + c.

    The source is the RBMVis, with visible units v (N, D). The params are W (H, D), which RBMVis and RBMHid share, and c
    (H,). The RBMVis computes the gradient of W, and the RBMHid adds nothing to it. The gradient of a shared param is
    the mean over the layers that share it, so W learns from half of the gradient, as in SINGA. To use the whole
    gradient, set ``share_gradient: sum`` for W in one of the two layers.
    """

    def setup(self) -> None:
        if not isinstance(self.sources[0], Units):
            message = f"{self.conf.type} reads an RBMVis, not {self.conf.srclayers[0]!r}."
            raise ConfigError(Problem(("srclayers",), message))
        self.visible = self.sources[0]
        self.add_units(self.visible.shape[0], self.options.hdim, self.visible.size, requires_grad=False)

    def forward(self, phase: Phase) -> None:
        """Compute the probabilities given the records; with `Phase.NEGATIVE`, given the reconstruction."""
        if phase & Phase.NEGATIVE:
            self.drive(self.visible.model, self.units.model)
        else:
            self.drive(self.visible.data, self.units.data)
