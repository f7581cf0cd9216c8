"""NetBuilder: from a job to a finished `NeuralNet`; which outputs are consumed, and which have gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from singa_dask.conf import JobConf, Phase
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers import Context, Feature, Layer
from singa_dask.layers.feature import Consumed
from singa_dask.net.neuralnet import NeuralNet
from singa_dask.net.node import Node
from singa_dask.net.params import Params
from singa_dask.net.plan import plan
from singa_dask.net.wiring import Wiring, check_shares, find_shares
from singa_dask.ops.contract import Ops


def pass_on_reads(layers: Sequence[Layer]) -> None:
    """Let layers that forward their source consume what their own consumers do; data if they cannot forward it."""
    for layer in reversed(layers):
        # an output that nothing reads is computed, but of several pieces only those that are read
        unread: Consumed = "nothing" if any(feature.consumed_as for feature in layer.features) else "data"
        for feature in layer.features if layer.traits.forwards else ():
            feature.consumed_as = feature.consumed_as or {unread}
            if feature.consumed_as - layer.traits.forwards - {"nothing"}:
                feature.consumed_as.add("data")
            for source in layer.sources:
                source.consumed_as |= feature.consumed_as & layer.traits.forwards


def find_gradients(layers: Sequence[Layer], phase: Phase) -> None:
    """Decide which features and layers have gradients: between something that learns and a loss."""
    if not phase & Phase.TRAIN:
        for layer in layers:
            for feature in layer.features:
                feature.requires_grad = False
        return
    for layer in layers:
        for feature in layer.features:
            learns = bool(layer.params) or any(source.requires_grad for source in layer.sources)
            feature.requires_grad &= learns and not layer.traits.learns_without_loss
    reached: set[Feature] = set()
    for layer in reversed(layers):
        for feature in layer.features:
            feature.requires_grad &= feature in reached
        if layer.traits.learns_without_loss:
            layer.learns = bool(layer.params)
        elif layer.traits.is_loss or any(feature.requires_grad for feature in layer.features):
            reached.update(layer.sources)
            layer.learns = bool(layer.params) or any(source.requires_grad for source in layer.sources)


def check_backward(nodes: Sequence[Node], layers: Mapping[str, Layer]) -> Iterator[Problem]:
    """Yield a problem for each layer that gradients have to pass, or that has params to learn, without `backward`."""
    for node in nodes:
        layer = layers[node.name]
        if layer.learns and type(layer).backward is Layer.backward:
            what = "its params" if layer.params else f"what comes before it, {layer.conf.srclayers[0]!r},"
            message = (
                f"{layer.conf.type} has no backward(), so that {what} would never learn. Write backward(); or, if no "
                "gradient is to pass, say add_output(..., requires_grad=False)."
            )
            yield node.problem(message, ("type",))


class NetBuilder:
    """Builds the net of one phase: shapes and params, no memory, no records.

    Parameters
    ----------
    job : JobConf
    context : Context
        Phase, place in the group, seed, precision. ``shares`` is set here, unless it is given: for a batch that the
        workers share in other parts than the job says.
    ops : Ops
        Kernels that compute the net.
    share_from : NeuralNet, optional
        Net whose params of the same names this one uses: the training net, for a test or validation net.
    """

    def __init__(self, job: JobConf, context: Context, ops: Ops, share_from: NeuralNet | None = None) -> None:
        self.job = job
        self.context = context
        self.ops = ops
        self.share_from = share_from

    def build(self) -> NeuralNet:
        """Return the net.

        Raises
        ------
        ConfigError
            Every mistake at once, with paths from the top of the job.
        """
        conf, context = self.job.neuralnet, self.context
        nodes = plan(conf, context.phase, context.n_workers)
        given = context.shares
        context.shares = given or find_shares(conf, context.phase, context.n_workers)
        wiring = Wiring(nodes, context, self.ops)
        problems = list(wiring.problems)
        problems += check_shares(nodes, wiring.by_name) if context.shares and not given else []
        pass_on_reads(wiring.all_layers)
        params = Params(nodes, wiring.all_layers, wiring.is_here, context.gate)
        problems += params.index_names()
        problems += params.share_with(self.share_from.shared_params) if self.share_from else params.resolve_sharing()
        if problems:
            raise ConfigError(problems)
        find_gradients(wiring.all_layers, context.phase)
        if problems := list(dict.fromkeys(check_backward(nodes, wiring.by_name))):
            raise ConfigError(problems)
        params.assign_owners()
        return NeuralNet(context, self.ops, wiring, params)
