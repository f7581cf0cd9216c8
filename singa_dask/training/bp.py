"""BP: back-propagation; in an unrolled net, back-propagation through time."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from singa_dask.conf import Phase
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers import Layer, Param
from singa_dask.net import NeuralNet
from singa_dask.net.replay import run_method
from singa_dask.training.algorithm import ALGORITHMS, Algorithm, Collect, do_nothing
from singa_dask.training.captured_step import CapturedStep


def check_learns(net: NeuralNet) -> None:
    """Raise a ConfigError, with advice, if a net has no loss layer, or no param to train."""
    layers = net.all_layers
    if not any(layer.traits.role == "loss" for layer in layers):
        message = f"the train net has no loss layer, so nothing is learnt. {_missing_loss(net)}"
        raise ConfigError(Problem(("neuralnet", "layer"), message))
    if not any(layer.learns and layer.params for layer in layers):
        losses = ", ".join(dict.fromkeys(repr(layer.conf_name) for layer in layers if layer.traits.role == "loss"))
        first = next((layer.conf_name for layer in layers if layer.params), None)
        hint = f"Connect the loss to the output of {first!r}." if first else "Add one, e.g. an InnerProduct."
        message = f"no layer with params is below the loss {losses}, so nothing is learnt. {hint}"
        raise ConfigError(Problem(("neuralnet", "layer"), message))


def _missing_loss(net: NeuralNet) -> str:
    """Return advice, for an error message, on the loss layer to add."""
    layers = {node.layer: net.name2layer(node.name) for node in net.nodes if not node.inserted}
    inner = {name: layer for name, layer in layers.items() if layer.traits.role not in ("input", "output")}
    ends = [node for node in net.unread_layers() if node.layer in inner]
    learning = [name for name, layer in inner.items() if layer.params]
    last = ends[-1].layer if ends else learning[-1] if learning else None
    labels = [name for name, layer in layers.items() if layer.traits.role == "input" or layer.conf.type == "RNNLabel"]
    if last is None or not labels:
        return "Add one, e.g. a SoftmaxLoss."
    if layers[last].traits.predicts == "classes":
        below = layers[last].conf.srclayers[0]
        return f"Replace the Softmax {last!r} by a SoftmaxLoss that reads {below!r} and {labels[-1]!r}."
    return f"Add a SoftmaxLoss, or a EuclideanLoss for regression, that reads {last!r} and {labels[-1]!r}."


BACK: Phase = Phase.TRAIN | Phase.BACKWARD


@ALGORITHMS.register("BP", "BPTT")
class BP(Algorithm):
    """Back-propagation. The gradient of a param is passed to ``update`` as soon as it is complete.

    In an unrolled net this is back-propagation through time (BPTT). The gradients of all time steps are summed. The sum
    is passed to ``update`` when the backward pass has reached the first time step.
    """

    @classmethod
    def check(cls, net: NeuralNet) -> None:
        energy = [layer.name for layer in net.layers if layer.traits.role == "unsupervised"]
        if energy:
            message = f"these layers learn without a loss: {', '.join(energy)}. Set alg: CD."
            raise ConfigError(Problem(("train_one_batch", "alg"), message))
        check_learns(net)

    _captured: CapturedStep | None = None

    @property
    def n_captures(self) -> int:
        """Number of times that a step was captured on a GPU."""
        return self._captured.n_captures if self._captured else 0

    @property
    def has_own_forward(self) -> bool:
        """Whether a subclass replaces the forward pass."""
        own = type(self)
        return own.forward is not BP.forward or own.test_one_batch is not BP.test_one_batch

    def capture_steps(self) -> None:
        # custom passes may contain work that cannot be captured
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
            self.forward(phase | Phase.FORWARD, do_nothing)

    def forward(self, phase: Phase, collect: Collect) -> None:
        """Compute the outputs of all layers in order."""
        for layer in self.net.in_turn(phase):
            self.layer = layer
            for param in layer.params:
                collect(param)
            self.net.forward(layer, phase)

    def backward(self, step: int) -> None:
        """Compute gradients in reverse order, and pass the gradients of params to `update`."""
        for layer in self.net.in_turn(BACK):
            sent: list[Param] = []
            # the kernels of a capturable layer may be replayed without running its code, which calls `ready`
            may_send = bool(layer.params) and not layer.speed.capturable and self.net.runs_once(layer)
            if may_send and not self._shares_loss(layer):
                layer.send_ready = partial(self._send_early, step, layer, sent)
            try:
                self._backward(layer)
            finally:
                layer.send_ready = None
            self._pass_on(step, layer, sent)

    def _send_early(self, step: int, layer: Layer, sent: list[Param], param: Param) -> None:
        """Pass a gradient to `update` while the backward pass of its layer is still running."""
        if param in sent:
            raise RuntimeError(f"layer {layer.name}: backward() calls ready() twice for param {param.name}.")
        if param.trains:
            sent.append(param)
            self.update(step, param)

    def _backward(self, layer: Layer) -> None:
        """Compute the gradients of a layer."""
        self.layer = layer
        self.net.backward(layer, BACK)
        if self._shares_loss(layer):
            self.share_loss(layer)

    def _shares_loss(self, layer: Layer) -> bool:
        return layer.traits.role == "loss" and self.net.is_partitioned

    def _pass_on(self, step: int, layer: Layer, sent: Sequence[Param] = ()) -> None:
        """Pass the gradients of a layer's params to `update`, if they are complete and not in ``sent``."""
        for param in reversed(layer.params) if self.net.gradients_complete(layer) else ():
            # update the bias first: it is sent in the same message as the weights
            if param.trains and param not in sent:
                self.update(step, param)

    def _replay(self, captured: CapturedStep, step: int) -> None:
        """Run a step: the part that needs the host runs as code, and the captured part is replayed on a GPU."""
        phase = Phase.TRAIN | Phase.FORWARD

        def compute() -> None:
            for layer in captured.layers:
                run_method(layer, phase, "forward")
            for layer in self.net.in_turn(BACK):
                self._backward(layer)

        for layer in captured.readers:
            self.layer = layer
            self.net.forward(layer, phase)
        for layer in captured.layers:
            self.layer = layer
            for param in layer.params:
                self.collect(param)
            layer.prepare(phase)
        # states were reset above; a reset in the captured part would be repeated in each step
        self.net.context.stream_start = False
        captured.run(compute)
        self.check_losses()
        for layer in self.net.in_turn(BACK):
            self._pass_on(step, layer)

    def share_loss(self, layer: Layer) -> None:
        """Scale the gradients of a loss layer that computes a shard of the batch.

        The gradient of the mean over the shard is divided by the number of shards. The sum over all shards is then the
        gradient of the mean over the batch. If all layers are partitioned by records, the sum equals an average over
        the workers.
        """
        n_shards = layer.site.batch_shard.count
        if n_shards == 1:
            return
        params = layer.params if self.net.gradients_complete(layer) else []
        grads = [param.grad for param in params if param.has_grad]
        for grad in [*(source.grad for source in layer.sources), *grads]:
            if grad is not None:
                layer.ops.multiply(grad, 1 / n_shards, out=grad)
