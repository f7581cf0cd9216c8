"""CD: contrastive divergence, for RBMs."""

from __future__ import annotations

from typing import Any

from singa_dask.conf import Conf, Phase
from singa_dask.conf.kinds import Size
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers.rbm import RBMHid
from singa_dask.net import NeuralNet
from singa_dask.training.algorithm import ALGORITHMS, Algorithm


class CDConf(Conf):
    """``cd_conf``: contrastive divergence."""

    cd_k: Size = 1
    """Number of Gibbs sampling steps."""
    persistent: bool = False
    """Whether the Gibbs chains continue from the previous step, instead of starting with the records. A resumed job
    also continues the chains."""


@ALGORITHMS.register()
class CD(Algorithm):
    """CD-k, after Hinton (2002), and its persistent form, after Tieleman (2008).

    Each step has one positive pass through all layers, and ``cd_conf.cd_k`` negative passes through the layers of RBMs.
    The negative passes are Gibbs sampling. Sampling starts with the records. With ``cd_conf.persistent``, it continues
    from the samples of the previous batch. Only RBM layers learn. All other layers compute as in a test, so that a
    Dropout below an RBM has no effect.
    """

    options_class = CDConf

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rbm = [layer for layer in self.net.layers if layer.traits.role == "unsupervised"]
        self.hidden = [layer for layer in self.rbm if isinstance(layer, RBMHid)]

    @classmethod
    def check(cls, net: NeuralNet) -> None:
        rbm = [layer for layer in net.layers if layer.traits.role == "unsupervised"]
        own = [param for layer in rbm for param in layer.params]
        problems = []
        if net.is_partitioned:
            message = "CD trains only nets that are partitioned by records. Set partition_dim: 0, and no location."
            problems.append(Problem(("neuralnet", "partition_dim"), message))
        if not rbm:
            problems.append(Problem(("train_one_batch", "alg"), "CD trains RBMVis and RBMHid, and the net has none."))
        for layer in rbm:
            if isinstance(layer, RBMHid) and layer.weight.owner is not layer.visible.weight.owner:
                message = (
                    f"{layer.name!r} has other weights than its RBMVis. Set share_from: {layer.visible.weight.name}."
                )
                problems.append(Problem(net.param_path(layer.weight.name), message))
        for owner in dict.fromkeys(param.owner for param in own):
            others = [other for other in net.sharers(owner) if other not in own]
            if others:
                message = f"{others[0].name!r} also learns from a loss, whose gradient CD does not compute."
                problems.append(Problem(net.param_path(others[0].name), message))
        if problems:
            raise ConfigError(problems)

    def train_one_batch(self, step: int) -> None:
        self.net.context.step = step
        with self._batch():
            for layer in self.net.layers:
                self.layer = layer
                for param in layer.params:
                    self.collect(param)
                self.net.forward(layer, Phase.POSITIVE | Phase.FORWARD)
            self.sample()
            self.check_losses()
            for layer in reversed(self.rbm):
                self.layer = layer
                self.net.backward(layer, Phase.TRAIN)
                # update the bias first: it is sent in the same message as the weights
                for param in reversed(layer.params):
                    self.update(step, param)

    def test_one_batch(self, phase: Phase) -> None:
        with self._batch():
            for layer in self.net.layers:
                self.layer = layer
                self.net.forward(layer, phase | Phase.POSITIVE | Phase.FORWARD)
            self.reconstruct(Phase.TEST)

    def sample(self) -> None:
        """Run the Gibbs chains. To measure the error, the first pass always reconstructs the records."""
        self.reconstruct(Phase.TEST)
        chains = self.hidden if self.options.persistent else []
        for layer in chains:
            if layer.state is not None:
                layer.ops.copy(layer.state[0], out=layer.units.model)
        for _ in range(self.options.cd_k - (not chains)):
            self.reconstruct()
        for layer in chains:
            model = layer.units.model
            kept = layer.state or (layer.ops.empty(model.shape, model.dtype),)
            layer.ops.copy(model, out=kept[0])
            layer.state = kept

    def reconstruct(self, phase: Phase = Phase.NONE) -> None:
        """Run one negative pass."""
        for layer in self.rbm:
            self.layer = layer
            self.net.forward(layer, phase | Phase.NEGATIVE)
