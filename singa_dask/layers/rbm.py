"""The two layers of a restricted Boltzmann machine (RBM), which contrastive divergence trains.

After Hinton, "Training products of experts by minimizing contrastive divergence" (2002), and SINGA's
src/neuralnet/neuron_layer/rbm.cc: all statistics are of probabilities, or of means of Gaussian units; only what drives
a reconstruction is a sample, of the hidden units.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from singa_dask.conf import InitConf, LayerConf, Phase, RBMConf
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.base import LAYERS, Feature, Layer
from singa_dask.layers.initial import ZEROS
from singa_dask.layers.param import Param

__all__ = ["RBMHid", "RBMVis", "Units"]


class Units(Feature):
    """What one layer of an RBM hands to the other: the states of its units, twice.

    Attributes
    ----------
    data : ndarray, shape (N, D)
        At the records: those themselves, or probabilities (means of Gaussian units) given them.
    model : ndarray, shape (N, D)
        The same after Gibbs sampling: as the model has them.
    both : ndarray, shape (2 N, D)
        ``data``, then ``model``: they are views of it.
    gaussian : bool
        Whether units are linear with unit variance, instead of Bernoulli.
    weight : Param
        Between the two layers.
    """

    def __init__(self, shape: Sequence[int], dtype: Any, gaussian: bool, weight: Param) -> None:
        super().__init__(shape, dtype, wants_grad=False)
        self.gaussian = gaussian
        self.weight = weight
        self.model: Any = None
        self.both: Any = None


class _RBMLayer(Layer):
    """What the two layers have in common."""

    block = RBMConf
    param_names = ("weight", "bias")
    is_energy = True
    splits = False

    def make_units(self, conf: LayerConf, n_rows: int, n_units: int, n_visible: int) -> None:
        """Add output and params."""
        block = conf.block(RBMConf)
        self.weight = self.param(0, (block.hdim, n_visible))
        self.bias = self.bias_param(1, n_units, block.bias_term)
        self.units = Units((n_rows, n_units), self.context.dtype, block.gaussian, self.weight)
        self.units.n_steps = self.n_steps
        self.features.append(self.units)

    def initial(self, index: int) -> InitConf:
        """Return what Hinton's guide to training RBMs (2010) says."""
        return ZEROS if index else InitConf(type="Gaussian", std=0.01)

    def allocate(self) -> None:
        super().allocate()
        units, n_rows = self.units, self.units.shape[0]
        units.both = self.ops.features((2 * n_rows, units.size), units.dtype)
        units.data, units.model = units.both[:n_rows], units.both[n_rows:]

    def drive(self, x: Any, out: Any, transpose: bool = False) -> None:
        """Compute the probabilities, or the means, of the units given those of the other layer."""
        bias = None if self.bias is None else self.bias.data
        self.ops.linear(x, self.weight.data, bias, out=out, transpose=transpose)
        if not self.units.gaussian:
            self.ops.sigmoid(out, out=out)

    def compute_gradient(self, phase: Phase) -> None:
        """Compute that of the bias: mean of ``model`` less mean of ``data``."""
        if self.bias is None:
            return
        grad, units, ops = self.bias.grad, self.units, self.ops
        ops.linear_grad_bias(units.data, out=grad)
        ops.multiply(grad, -1, out=grad)
        ops.linear_grad_bias(units.model, out=grad, accumulate=True)
        ops.multiply(grad, 1 / units.shape[0], out=grad)


@LAYERS.register()
class RBMVis(_RBMLayer):
    """The visible units v: records x (N, ...) taken as (N, D), images in the order C, H, W; and their reconstruction.

    ``srclayers`` are the layer of the records and the RBMHid. Params: W (H, D), H being ``rbm_conf.hdim``, and b (D,).
    A reconstruction is sigmoid(h W + b), of Gaussian units h W + b, where h is a sample of the hidden units: 1 with
    their probability, or Gaussian with their mean and variance 1. It is not sampled itself. The gradient of W is
    (h-^T v- - h+^T v+) / N: what the model makes (-), less what the records make (+).

    The figure "squared_error" is the mean over records of sum (x - v)^2, v being the first reconstruction of x.

    Notes
    -----
    SINGA has no Gaussian visible units, and prints half the error, or less.
    """

    n_sources = (1, 2)
    hidden: Units

    def setup(self, conf: LayerConf, sources: Sequence[Feature], ops: Any) -> None:
        # the net hands over the second in close_loop
        if len(sources) != 1 or len(conf.srclayers) != 2:
            message = f"{conf.type} reads two layers: that of the records, then an RBMHid that reads it in turn."
            raise ConfigError(Problem(("srclayers",), message))
        n_rows, n_visible = sources[0].shape[0], sources[0].size
        self.make_units(conf, n_rows, n_visible, n_visible)
        self.n_samples = 0

    def close_loop(self, source: Feature) -> None:
        if not isinstance(source, Units):
            message = f"expected an RBMHid, {self.conf.srclayers[1]!r} is none."
            raise ConfigError(Problem(("srclayers", 1), message))
        self.hidden = source

    def allocate(self) -> None:
        super().allocate()
        shape, dtype = self.hidden.shape, self.hidden.dtype
        self.sample = self.ops.features(shape, dtype)
        self.difference = self.ops.features(self.units.shape, self.context.param_dtype)
        if self.learns:
            self.signed = self.ops.features((2 * shape[0], *shape[1:]), dtype)

    def compute_feature(self, phase: Phase) -> None:
        """Take the records; with `Phase.NEGATIVE` reconstruct, with `Phase.TEST` too from them."""
        if not phase & Phase.NEGATIVE:
            self.n_samples = 0
            self.ops.copy(self.rows(), out=self.units.data)
            return
        units, hidden = self.units, self.hidden
        self.draw(hidden.data if phase & Phase.TEST else hidden.model, hidden.gaussian)
        self.drive(self.sample, units.model, transpose=True)
        if phase & Phase.TEST:
            self.ops.subtract(units.data, units.model, out=self.difference)
            self.add_metric("squared_error", self.ops.sum_squares(self.difference), n=len(self.difference))

    def draw(self, chances: Any, gaussian: bool) -> None:
        """Sample the hidden units."""
        key, first_row = self.random_key("hidden", self.n_samples), self.first_row(len(chances))
        self.n_samples += 1
        if gaussian:
            self.ops.gaussian(key, out=self.sample, first_row=first_row)
            self.ops.add(self.sample, chances, out=self.sample)
        else:
            self.ops.bernoulli(key, chances, out=self.sample, first_row=first_row)

    def compute_gradient(self, phase: Phase) -> None:
        hidden, n_rows = self.hidden, self.units.shape[0]
        self.ops.multiply(hidden.data, -1 / n_rows, out=self.signed[:n_rows])
        self.ops.multiply(hidden.model, 1 / n_rows, out=self.signed[n_rows:])
        self.ops.linear_grad_weight(self.units.both, self.signed, out=self.weight.grad)
        super().compute_gradient(phase)


@LAYERS.register()
class RBMHid(_RBMLayer):
    """The hidden units: probabilities sigmoid(v W^T + c) of the visible ones v (N, D), or means v W^T + c.

    The source is the RBMVis. Params: W (H, D), shared from the RBMVis or shared by it, and c (H,). The gradient of W is
    all at the RBMVis; this layer's own stays 0, but as a param that shares it counts: unless one of the two says
    ``share_gradient: sum``, W learns from half of it, as in SINGA.
    """

    def setup(self, conf: LayerConf, sources: Sequence[Feature], ops: Any) -> None:
        if not isinstance(sources[0], Units):
            raise ConfigError(Problem(("srclayers",), f"{conf.type} reads an RBMVis, not {conf.srclayers[0]!r}."))
        self.visible = sources[0]
        self.make_units(conf, self.visible.shape[0], conf.block(RBMConf).hdim, self.visible.size)
        self.weight.is_idle = True

    def compute_feature(self, phase: Phase) -> None:
        """Compute the units' probabilities given the records; with `Phase.NEGATIVE` given the reconstruction."""
        if phase & Phase.NEGATIVE:
            self.drive(self.visible.model, self.units.model)
        else:
            self.drive(self.visible.data, self.units.data)
