"""TrainOneBatch: how one batch changes the params.

BP is back-propagation, through time in an unrolled net, and CD contrastive divergence, which trains RBMs.
An algorithm knows layers and params, but no servers: it calls back when it needs a param and when a gradient is ready.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from singa_dask.conf import AlgConf, Conf, Phase
from singa_dask.conf.model import Size
from singa_dask.errors import ConfigError, NumericError, Problem
from singa_dask.layers import Feature, Layer, Param, RBMHid
from singa_dask.layers.base import key_at
from singa_dask.net import NeuralNet
from singa_dask.ops.contract import CapturedKernels
from singa_dask.registry import Registry

logger = logging.getLogger(__name__)


# The first steps compile kernels and allocate scratch memory, which cannot be captured.
FIRST_STEPS = 2
# Gives up after so many captures, where memory differs from step to step.
MAX_CAPTURES = 8


class CapturedStep:
    """A training step split in two: layers that read records on the host, and kernels that are the same in each step.

    Parameters
    ----------
    net : NeuralNet

    Attributes
    ----------
    readers : list of Layer
        They work on the host in each step, before `layers`.
    layers : list of Layer
        Those whose kernels are replayed.
    n_captures : int
        How often kernels were captured.
    """

    def __init__(self, net: NeuralNet) -> None:
        self.net = net
        self.readers = [layer for layer in net.layers if not layer.traits.capturable]
        self.layers = [layer for layer in net.layers if layer.traits.capturable]
        self._on_host = [layer for layer in net.layers if layer in self.readers or layer.traits.reads_on_host]
        self._read = [feature for layer in self._on_host for feature in layer.features]
        self._graph: CapturedKernels | None = None
        self._counts: list[dict[str, float]] = []
        self._addresses: list[int] = []
        self._n_steps = self.n_captures = 0
        self._n_grown = net.ops.n_grown
        self._possible = net.ops.supports_capture and not net.is_partitioned and self._readers_come_first()

    def _readers_come_first(self) -> bool:
        """Tell whether what is read on the host depends on no kernels, and no layer there learns."""
        first = set(self.readers)
        independent = all(first.issuperset(self.net.sources[layer]) for layer in self._on_host)
        return independent and not any(layer.learns for layer in self.readers)

    def should_replay(self) -> bool:
        """Count a step; tell whether `run` is to compute it.

        After scratch memory has grown a step runs uncaptured, as kernels keep tables of addresses on the device.
        """
        self._n_steps += 1
        has_grown, self._n_grown = self._n_grown != self.net.ops.n_grown, self.net.ops.n_grown
        return self._possible and self._n_steps > FIRST_STEPS and not has_grown

    def run(self, compute: Callable[[], None]) -> None:
        """Replay the kernels of ``compute``, captured first if there is no valid graph of them.

        Parameters
        ----------
        compute : callable
            Runs `layers` forward and back. Called to capture its kernels, or if they cannot be captured.
        """
        addresses = [address for feature in self._read for address in self._addresses_of(feature)]
        if self._graph is None or not self._graph.is_valid or addresses != self._addresses:
            self._addresses = addresses
            self._capture(compute)
            if self._graph is None:
                compute()
                return
        else:
            for layer, more in zip(self.layers, self._counts, strict=True):
                layer.metrics.count(more)
        context = self.net.context
        self._graph.replay(lambda key: key_at(key, context.step))

    def _addresses_of(self, feature: Feature) -> list[int]:
        """Return where the kernels read what a layer on the host hands to them."""
        data = feature.data if feature.has_data else None
        return [self.net.ops.address(x) for x in (data, feature.labels, feature.one_hot_index)]

    def _capture(self, compute: Callable[[], None]) -> None:
        before = [dict(layer.metrics.counts) for layer in self.layers]
        try:
            self._graph = self.net.ops.capture(compute)
            self.n_captures += 1
            self._possible = self.n_captures < MAX_CAPTURES
        except Exception as error:
            # whatever a driver or a layer cannot do during capture, it can do uncaptured
            logger.warning("steps run uncaptured, as they cannot be captured: %s", error)
            self._graph, self._possible = None, False
        self._counts = []
        for layer, counts in zip(self.layers, before, strict=True):
            new = layer.metrics.counts
            self._counts.append({name: count - counts.get(name, 0.0) for name, count in new.items()})
            if self._graph is None:
                layer.metrics.counts = counts


def check_learns(net: NeuralNet) -> None:
    """Check that back-propagation has a loss to start from, and changes a param.

    Raises
    ------
    ConfigError
        It has none, and which layer is likely to be missing.
    """
    layers = net.all_layers
    if not any(layer.traits.is_loss for layer in layers):
        message = f"the train net has no loss layer, so that nothing is learnt. {_missing_loss(net)}"
        raise ConfigError(Problem(("neuralnet", "layer"), message))
    if not any(layer.learns and layer.params for layer in layers):
        losses = ", ".join(dict.fromkeys(repr(layer.conf_name) for layer in layers if layer.traits.is_loss))
        first = next((layer.conf_name for layer in layers if layer.params), None)
        hint = f"Does it read what comes from {first!r}?" if first else "Add one, e.g. an InnerProduct."
        message = f"no layer with params is below the loss {losses}, so that nothing is learnt. {hint}"
        raise ConfigError(Problem(("neuralnet", "layer"), message))


def _missing_loss(net: NeuralNet) -> str:
    """Say which loss layer to add."""
    layers = {node.layer: net.name2layer(node.name) for node in net.nodes if not node.inserted}
    inner = {name: layer for name, layer in layers.items() if not (layer.traits.is_input or layer.traits.is_output)}
    ends = [node for node in net.unread_layers() if node.layer in inner]
    learning = [name for name, layer in inner.items() if layer.params]
    last = ends[-1].layer if ends else learning[-1] if learning else None
    labels = [name for name, layer in layers.items() if layer.traits.is_input or layer.conf.type == "RNNLabel"]
    if last is None or not labels:
        return "Add one, e.g. a SoftmaxLoss."
    if layers[last].traits.predicts == "classes":
        below = layers[last].conf.srclayers[0]
        return f"Put a SoftmaxLoss that reads {below!r} and {labels[-1]!r} in the place of the Softmax {last!r}."
    return (
        f"Add a SoftmaxLoss, or for values instead of classes a EuclideanLoss, that reads {last!r} and {labels[-1]!r}."
    )


ALGORITHMS: Registry[Algorithm] = Registry("algorithm")

REMEDY = (
    "Lower updater.learning_rate.base_lr, for which singa-dask find-rate proposes a value, set updater.clip_low and "
    "clip_high, or check the data."
)

# Of a backward pass.
BACK = Phase.TRAIN | Phase.BACKWARD

Collect = Callable[[Param], None]
Update = Callable[[int, Param], None]


def _nothing(*_: object) -> None:
    """Do nothing: the default of callers that keep the params themselves."""


class Algorithm:
    """Runs a net for one batch at a time.

    Parameters
    ----------
    net : NeuralNet
        Allocated.
    collect : callable (param), optional
        Returns when the values of a param are fresh; called before each layer's forward pass in training.
    update : callable (step, param), optional
        Takes a gradient that is ready; called right after each layer's backward pass.
    conf : AlgConf, optional
        ``train_one_batch`` of the job; its ``user_conf`` is for algorithms of the user's own.

    Attributes
    ----------
    block : type of Conf or None
        The block of ``train_one_batch`` that it reads, ``conf.block(XConf)``.
    layer : Layer or None
        The one being computed, None between batches: where an error happened.
    """

    block: ClassVar[type[Conf] | None] = None

    def __init__(
        self, net: NeuralNet, collect: Collect = _nothing, update: Update = _nothing, conf: AlgConf | None = None
    ) -> None:
        self.net = net
        self.collect = collect
        self.update = update
        self.conf = conf or AlgConf(alg=type(self).__name__)
        self.layer: Layer | None = None

    @classmethod
    def check(cls, net: NeuralNet) -> None:
        """Check that this algorithm can train a net, before anything runs.

        Raises
        ------
        ConfigError
            All problems at once, with paths from the top of the job.
        """

    def capture_steps(self) -> None:
        """Replay on a GPU what is the same in each step, if possible; gradients are then ready at its end only."""

    def train_one_batch(self, step: int) -> None:
        """Run forward and backward over the next batch of a training net."""
        raise TypeError(f"{type(self).__name__} does not train: it has no train_one_batch()")

    def test_one_batch(self, phase: Phase) -> None:
        """Run forward over the next batch of a test or validation net."""
        raise TypeError(f"{type(self).__name__} does not test: it has no test_one_batch()")

    @contextmanager
    def _batch(self) -> Iterator[None]:
        """Compute a batch. Overflow shows as a loss that is not finite; a warning for each kernel helps nobody."""
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            yield
        self.layer = None

    def check_losses(self, wait: bool = False) -> None:
        """Check that every loss, or error of an RBM, is finite before a gradient reaches the params.

        A GPU is not waited for: there it is the losses of some steps ago, unless ``wait`` says so.

        Raises
        ------
        NumericError
            One is not.
        """
        losses = [layer for layer in self.net.layers if layer.traits.is_loss or layer.traits.learns_without_loss]
        for layer in losses:
            for metric, total in layer.metrics.totals(wait):
                if not math.isfinite(total):
                    self.layer = layer
                    raise NumericError(f"the {metric.replace('_', ' ')} is not finite. {REMEDY}")

    def check_params(self) -> None:
        """Check that all params are finite. Some kernels turn NaN into 0, so that no loss shows it.

        Raises
        ------
        NumericError
            One is not.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            for owner in self.net.owners:
                if not self.net.ops.finite(owner.values):
                    raise NumericError(f"param {owner.name!r} is not finite. {REMEDY}")


@ALGORITHMS.register("BP", "BPTT")
class BP(Algorithm):
    """Back-propagation: features forward, gradients backward; those of params are sent as soon as they are ready.

    In an unrolled net it is back-propagation through time, BPTT: the gradients of all time steps are summed, and
    leave once, when the first step is reached.
    """

    @classmethod
    def check(cls, net: NeuralNet) -> None:
        energy = [layer.name for layer in net.layers if layer.traits.learns_without_loss]
        if energy:
            message = f"{', '.join(energy)}: layers that learn without a loss. Say CD."
            raise ConfigError(Problem(("train_one_batch", "alg"), message))
        check_learns(net)

    _captured: CapturedStep | None = None

    @property
    def n_captures(self) -> int:
        """How often a step was captured for a GPU to replay."""
        return self._captured.n_captures if self._captured else 0

    def capture_steps(self) -> None:
        # a user's own passes may do what cannot be captured
        if type(self).forward is BP.forward and type(self).backward is BP.backward:
            self._captured = CapturedStep(self.net)

    def train_one_batch(self, step: int) -> None:
        self.net.context.step = step
        with self._batch():
            if self._captured is not None and self._captured.should_replay() and self.net.on_layer is None:
                self._replay(self._captured, step)
            else:
                self.forward(Phase.TRAIN | Phase.FORWARD, self.collect)
                self.check_losses()
                self.backward(step)

    def test_one_batch(self, phase: Phase) -> None:
        with self._batch():
            self.forward(phase | Phase.FORWARD, _nothing)

    def forward(self, phase: Phase, collect: Collect) -> None:
        """Compute all features in order."""
        for layer in self.net.in_turn(phase):
            self.layer = layer
            for param in layer.params:
                collect(param)
            self.net.forward(layer, phase)

    def backward(self, step: int) -> None:
        """Compute gradients in reverse order, and pass those of params to `update`."""
        for layer in self.net.in_turn(BACK):
            self._back_through(layer)
            self._hand_over(step, layer)

    def _back_through(self, layer: Layer) -> None:
        """Compute the gradients of a layer."""
        self.layer = layer
        self.net.backward(layer, BACK)
        if layer.traits.is_loss and self.net.is_partitioned:
            self.share_loss(layer)

    def _hand_over(self, step: int, layer: Layer) -> None:
        """Pass the gradients of a layer's params to `update`, if they are complete."""
        for param in reversed(layer.params) if self.net.gradients_complete(layer) else ():
            self.update(step, param)  # a bias first: it leaves in the message that its weights fill

    def _replay(self, captured: CapturedStep, step: int) -> None:
        """Run the part of a step that is the host's, and have a GPU replay the rest."""
        phase = Phase.TRAIN | Phase.FORWARD

        def compute() -> None:
            for layer in captured.layers:
                layer.forward(phase)
            for layer in self.net.in_turn(BACK):
                self._back_through(layer)

        for layer in captured.readers:
            self.layer = layer
            self.net.forward(layer, phase)
        for layer in captured.layers:
            self.layer = layer
            for param in layer.params:
                self.collect(param)
            layer.prepare(phase)
        # states have been reset by now; captured, the reset would be replayed in each step
        self.net.context.stream_start = False
        captured.run(compute)
        self.check_losses()
        for layer in self.net.in_turn(BACK):
            self._hand_over(step, layer)

    def share_loss(self, layer: Layer) -> None:
        """Scale gradients of the mean over a part of the batch to its share in the mean over the whole batch.

        Where all layers are partitioned by records it is the same to average over the workers.
        """
        n_shards = layer.site.batch_shard.count
        if n_shards == 1:
            return
        params = layer.params if self.net.gradients_complete(layer) else []
        grads = [param.grad for param in params if param.has_grad]
        for grad in [*(source.grad for source in layer.sources), *grads]:
            if grad is not None:
                layer.ops.multiply(grad, 1 / n_shards, out=grad)


class CDConf(Conf):
    """``cd_conf``: contrastive divergence."""

    cd_k: Size = 1
    """Steps of Gibbs sampling."""
    persistent: bool = False
    """Go on with the chains of the step before instead of from the records; a resumed job does so too."""


@ALGORITHMS.register()
class CD(Algorithm):
    """CD-k, after Hinton (2002), and its persistent form, after Tieleman (2008).

    One positive pass, through all layers, and ``cd_conf.cd_k`` negative ones, through the layers of RBMs: Gibbs
    sampling that begins at the records or, with ``cd_conf.persistent``, where it stopped in the batch before. Only
    those layers learn; others compute as in a test, so that nothing is dropped out below an RBM.
    """

    block = CDConf

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.rbm = [layer for layer in self.net.layers if layer.traits.learns_without_loss]
        self.hidden = [layer for layer in self.rbm if isinstance(layer, RBMHid)]

    @classmethod
    def check(cls, net: NeuralNet) -> None:
        rbm = [layer for layer in net.layers if layer.traits.learns_without_loss]
        own = [param for layer in rbm for param in layer.params]
        problems = []
        if net.is_partitioned:
            message = "CD trains nets that are partitioned by records alone. Say partition_dim: 0, and no location."
            problems.append(Problem(("neuralnet", "partition_dim"), message))
        if not rbm:
            problems.append(Problem(("train_one_batch", "alg"), "CD trains RBMVis and RBMHid, and the net has none."))
        for layer in rbm:
            if isinstance(layer, RBMHid) and layer.weight.owner is not layer.visible.weight.owner:
                message = (
                    f"{layer.name!r} has other weights than its RBMVis. Say share_from: {layer.visible.weight.name}."
                )
                problems.append(Problem(net.param_path(layer.weight.name), message))
        for owner in dict.fromkeys(param.owner for param in own):
            others = [other for other in net.sharers(owner) if other not in own]
            if others:
                message = f"{others[0].name!r} learns too, from a loss: CD has no gradient of it."
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
                for param in reversed(layer.params):  # a bias first: it leaves in the message that its weights fill
                    self.update(step, param)

    def test_one_batch(self, phase: Phase) -> None:
        with self._batch():
            for layer in self.net.layers:
                self.layer = layer
                self.net.forward(layer, phase | Phase.POSITIVE | Phase.FORWARD)
            self.reconstruct(Phase.TEST)

    def sample(self) -> None:
        """Run the Gibbs chains; the first reconstruction is always that of the records, for their error."""
        conf = self.conf.block(CDConf)
        self.reconstruct(Phase.TEST)
        chains = self.hidden if conf.persistent else []
        for layer in chains:
            if layer.state is not None:
                layer.ops.copy(layer.state[0], out=layer.units.model)
        for _ in range(conf.cd_k - (not chains)):
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
