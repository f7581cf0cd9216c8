"""NeuralNet: the layers of one phase in the order in which they run, their params and their memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from singa_dask.conf import JobConf, Phase
from singa_dask.errors import CheckpointError, ConfigError, Problem
from singa_dask.layers import LAYERS, Context, Feature, Gate, Layer, Param
from singa_dask.net.node import Node
from singa_dask.net.plan import plan
from singa_dask.registry import suggest

__all__ = ["NeuralNet"]


class NeuralNet:
    """One phase's net; `build` makes it.

    Attributes
    ----------
    context : Context
        Shared with all layers; set ``context.step`` before each pass.
    layers : list of Layer
        Sources before consumers, Splits included.
    params : list of Param
        All, in the order of the layers.
    owners : list of Param
        Those with values of their own, in the same order.
    gate : Gate
        Where threads wait for versions of these params.
    """

    def __init__(self, context: Context, nodes: Sequence[Node]) -> None:
        self.context = context
        self.nodes = list(nodes)
        self.layers: list[Layer] = []
        self.gate = Gate()
        self._layers: dict[str, Layer] = {}
        self._outputs: dict[str, tuple[Layer, int | None]] = {}
        self._params: dict[str, Param] = {}

    @classmethod
    def build(cls, job: JobConf, context: Context, ops: Any, share_from: NeuralNet | None = None) -> NeuralNet:
        """Make the net of ``context.phase``: shapes and params, no memory, no records.

        Parameters
        ----------
        job : JobConf
        context : Context
            Phase, place in the group, seed, precision.
        ops : NumpyOps
            Kernels that compute it.
        share_from : NeuralNet, optional
            Net whose params of the same names this one uses: the training net, for a test or validation net.

        Raises
        ------
        ConfigError
            Every mistake at once, with paths from the top of the job.
        """
        net = cls(context, plan(job.neuralnet, context.phase))
        problems = net._make_layers(ops)
        problems += net._close_loops()
        problems += net._name_params()
        if share_from is None:
            problems += net._share_within()
        else:
            problems += net._share_with(share_from)
        if problems:
            raise ConfigError(problems)
        net._find_gradients()
        return net

    # -- steps of build ---------------------------------------------------------------------------

    def _make_layers(self, ops: Any) -> list[Problem]:
        """Make and wire each layer; one whose source failed is left out without a word."""
        problems: list[Problem] = []
        first: dict[str, Layer] = {}
        for node in self.nodes:
            if any(source not in self._outputs for source in node.sources):
                continue
            layer = LAYERS.find(node.conf.type)(node.conf, self.context)
            layer.conf_name, layer.first_step, layer.n_steps = node.layer, node.first_step, node.n_steps
            layer.first_copy = first.get(node.layer)
            try:
                layer.wire([self._outlet(source) for source in node.sources], ops)
            except ConfigError as error:
                problems += [node.problem(found.message, found.path) for found in error.problems]
                continue
            first.setdefault(node.layer, layer)
            self.layers.append(layer)
            self._layers[layer.name] = layer
            self._outputs |= {name: (layer, k if node.gives else None) for k, name in enumerate(node.outputs)}
        return problems

    def _outlet(self, name: str) -> Feature:
        """Return what the next reader of an output reads."""
        layer, k = self._outputs[name]
        return layer.outlet() if k is None else layer.features[k]

    def _close_loops(self) -> list[Problem]:
        problems: list[Problem] = []
        for node in self.nodes:
            for name in node.loops if node.name in self._layers else ():
                if name not in self._outputs:
                    continue
                layer, k = self._outputs[name]
                feature = layer.features[k or 0]
                feature.read_as.add("data")
                try:
                    self._layers[node.name].close_loop(feature)
                except ConfigError as error:
                    problems += [node.problem(found.message, found.path) for found in error.problems]
        return problems

    def _name_params(self) -> list[Problem]:
        problems = []
        for param, node, k in self._located():
            if param.name in self._params:
                message = f"a second param {param.name!r}. Rename one; to use its values say share_from."
                problems.append(node.problem(message, ("param", k, "name")))
            self._params.setdefault(param.name, param)
            param.gate = self.gate
        return problems

    def _share_within(self) -> list[Problem]:
        problems = []
        for param, node, k in self._located():
            if not param.conf.share_from:
                continue
            owner = self._owner_of(param)
            if isinstance(owner, str):
                problems.append(node.problem(owner, ("param", k, "share_from")))
            elif owner.size != param.size:
                message = f"{owner.name!r} has shape {owner.shape}, {param.name!r} {param.shape}: other sizes."
                problems.append(node.problem(message, ("param", k, "share_from")))
            else:
                param.share(owner)
        return problems

    def _owner_of(self, param: Param) -> Param | str:
        """Follow share_from to the param that has values of its own, or say why that fails."""
        passed = [param]
        while name := passed[-1].conf.share_from:
            # SINGA 0.3 knows params by names like 0#w1 and users wrote w1.
            owner = self._params.get(name) or self._params.get(name.removeprefix("0#"))
            if owner is None:
                return f"there is no param {name!r}. {suggest(name, self._params)}"
            if owner in passed:
                return f"param {param.name!r} is shared from itself."
            passed.append(owner)
        return passed[-1]

    def _share_with(self, other: NeuralNet) -> list[Problem]:
        problems = []
        for param, node, k in self._located():
            owner = other._params.get(param.name)
            if owner is None:
                message = f"the training net has no param {param.name!r}. {suggest(param.name, other._params)}"
                problems.append(node.problem(message, ("param", k, "name")))
            elif owner.size != param.size:
                message = f"{param.name!r} has shape {owner.shape} in the training net, {param.shape} here."
                problems.append(node.problem(message, ("param", k)))
            else:
                param.share(owner)
        return problems

    def _located(self) -> list[tuple[Param, Node, int]]:
        """Return each param with the node and the place in it that an error points to."""
        nodes = {node.name: node for node in self.nodes}
        layers = [layer for layer in self.layers if layer.first_copy is None]
        return [(param, nodes[layer.name], k) for layer in layers for k, param in enumerate(layer.params)]

    def _find_gradients(self) -> None:
        """Decide which features and layers have gradients: between something that learns and a loss."""
        if not self.context.phase & Phase.TRAIN:
            for layer in self.layers:
                for feature in layer.features:
                    feature.wants_grad = False
            return
        for layer in self.layers:
            for feature in layer.features:
                learns = bool(layer.params) or any(source.wants_grad for source in layer.sources)
                feature.wants_grad &= learns and not layer.is_energy
        reached: set[Feature] = set()
        for layer in reversed(self.layers):
            for feature in layer.features:
                feature.wants_grad &= feature in reached
            if layer.is_energy:
                layer.learns = bool(layer.params)
            elif layer.is_loss or not reached.isdisjoint(layer.features):
                reached.update(layer.sources)
                layer.learns = bool(layer.params) or any(source.wants_grad for source in layer.sources)
        self._order_copies()

    def _order_copies(self) -> None:
        """Tell the copies of a layer, which share the gradients of params, who comes first and last on the way back."""
        learning = [layer for layer in self.layers if layer.learns]
        last = {layer.conf_name: layer for layer in learning}
        first = {layer.conf_name: layer for layer in reversed(learning)}
        for layer in learning:
            layer.adds_gradient = last[layer.conf_name] is not layer
            layer.hands_over = first[layer.conf_name] is layer

    # -- memory -------------------------------------------------------------------------------------

    def allocate(self) -> None:
        """Allocate features and gradients; the values of params are given by whoever keeps them."""
        for layer in self.layers:
            layer.allocate()

    def allocate_params(self) -> None:
        """Allocate the values of the params that have none, for a net that runs alone."""
        for param in self.owners:
            if param.data is None:
                layer = next(layer for layer in self.layers if param in layer.params)
                param.data = layer.ops.zeros(param.shape, param.dtype)

    # -- what others ask ------------------------------------------------------------------------------

    @property
    def params(self) -> list[Param]:
        return [param for layer in self.layers if layer.first_copy is None for param in layer.params]

    @property
    def owners(self) -> list[Param]:
        return [param for param in self.params if param.owner is param]

    @property
    def n_params(self) -> int:
        """Number of values that are learnt, shared ones once."""
        return sum(param.size for param in self.owners if not param.statistic)

    def sharers(self, owner: Param) -> list[Param]:
        """Return the params that add a gradient to ``owner``'s, itself among them."""
        learning = dict.fromkeys(param for layer in self.layers if layer.learns for param in layer.params)
        return [param for param in learning if param.owner is owner.owner]

    def name2layer(self, name: str) -> Layer:
        """Return the layer of a name (SINGA's word for it)."""
        return self._layers[name]

    def param(self, name: str) -> Param:
        """Return the param of a name."""
        return self._params[name]

    def param_path(self, name: str) -> tuple[str | int, ...]:
        """Return where the job describes a param, for an error."""
        found = [node.problem("", ("param", k)).path for param, node, k in self._located() if param.name == name]
        return found[0]

    def take_metrics(self) -> dict[str, tuple[float, float]]:
        """Return (sum, count) of each figure since the last call, and start anew.

        The copies of a layer in an unrolled net have one figure together; one that several layers have is called
        ``<layer>.<figure>``.
        """
        taken: dict[str, dict[str, tuple[float, float]]] = {}
        for layer in self.layers:
            figures = taken.setdefault(layer.conf_name, {})
            for name, (total, count) in layer.take_metrics().items():
                before = figures.get(name, (0.0, 0.0))
                figures[name] = (before[0] + total, before[1] + count)
        times = Counter(name for figures in taken.values() for name in figures)
        return {
            name if times[name] == 1 else f"{layer}.{name}": figure
            for layer, figures in taken.items()
            for name, figure in figures.items()
        }

    def check_sources(self) -> None:
        """Compare what input layers read with what the job says of it, before anything runs.

        Raises
        ------
        ConfigError
            All problems at once, with paths from the top of the job.
        """
        problems: list[Problem] = []
        nodes = {node.name: node for node in self.nodes}
        for layer in self.layers:
            try:
                layer.check_source()
            except ConfigError as error:
                problems += [nodes[layer.name].problem(found.message, found.path) for found in error.problems]
        if problems:
            raise ConfigError(problems)

    def cursors(self) -> dict[str, dict[str, Any]]:
        """Return where each input layer stands in its records."""
        found = {layer.name: layer.cursor() for layer in self.layers}
        return {name: cursor for name, cursor in found.items() if cursor is not None}

    def seek(self, cursors: Mapping[str, Mapping[str, Any]]) -> None:
        """Put input layers where `cursors` says; one that it does not name stays.

        Raises
        ------
        CheckpointError
            It names a layer that this net lacks.
        """
        for name, cursor in cursors.items():
            if name not in self._layers:
                raise CheckpointError(
                    f"no input layer {name!r} in this net to go on from. {suggest(name, self._layers)}"
                )
            self._layers[name].seek(cursor)

    def close(self) -> None:
        """Close what layers hold open, all of them even if one fails."""
        failed: list[Exception] = []
        for layer in self.layers:
            try:
                layer.close()
            except Exception as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def describe(self) -> str:
        """Return a table of the layers: name, type, sources, shape, params."""
        rows = [("layer", "type", "reads", "shape", "params")]
        for layer, node in zip(self.layers, self.nodes, strict=True):
            shape = _show_shape(layer.features[0]) if layer.features else ""
            params = ", ".join(_show_param(param) for param in layer.params)
            rows.append((layer.name, layer.conf.type, ", ".join(node.sources), shape, params))
        widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([*lines, f"{self.n_params:,} values to learn"])


def _show_shape(feature: Feature) -> str:
    rows, *rest = feature.shape
    steps = [f"{feature.n_steps} steps"] if feature.n_steps > 1 else []
    return " x ".join(map(str, [*steps, rows // feature.n_steps, *rest]))


def _show_param(param: Param) -> str:
    shown = f"{param.name} {' x '.join(map(str, param.shape))}"
    return shown if param.owner is param else f"{shown} (of {param.owner.name})"
