"""NeuralNet: the layers of one phase in the order in which they run, with their params and memory."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any

from singa_dask.conf import JobConf, Phase
from singa_dask.errors import CheckpointError, ConfigError, Problem
from singa_dask.inputs import InputContext, InputLayer
from singa_dask.layers import Feature, Layer, Param
from singa_dask.layers.bridge import Bridge
from singa_dask.layers.metrics import Totals, add_totals
from singa_dask.net.copies import Copies
from singa_dask.net.debug import watch_backward, watch_forward
from singa_dask.net.fuse import bind_shared_gradients, fuse
from singa_dask.net.gradients import check_backward, find_gradients
from singa_dask.net.memory import allocate, memory_of
from singa_dask.net.mixing import check_mixing
from singa_dask.net.nodes import Node
from singa_dask.net.order import ready_order
from singa_dask.net.params import Params
from singa_dask.net.plan import plan
from singa_dask.net.proportions import check_proportions, find_proportions
from singa_dask.net.replay import Replays
from singa_dask.net.wiring import Wiring, pass_on_reads
from singa_dask.ops.contract import Ops
from singa_dask.wording import suggest


class NeuralNet:
    """The net of one phase. Build it with `make_net`.

    Attributes
    ----------
    context : InputContext
        Values that all layers share. Callers set ``context.step`` before each pass.
    layers : list of Layer
        The layers of this worker, including layers that the net has inserted. Sources precede their readers.
    all_layers : list of Layer
        If the net is partitioned: the layers of all workers of the group. Otherwise the same as ``layers``.
    sources, readers : dict of Layer to list of Layer
        For each layer of this worker: the layers of this worker that it reads, and the layers that read it.
    params : list of Param
        The params of ``layers``, in the same order.
    owners : list of Param
        The params whose values this worker stores and sends to servers. Each other param uses the values of an owner.
    logical : dict of str to LogicalParam
        The params of the whole group, by their names on the servers, in the order of all layers.
    shared_params : Params
        The params by name, and how they share values.
    cancellation : Cancellation
        Ends all waits of this worker when the job ends.
    ops : Ops
        Kernels of the device.
    on_layer : callable or None
        Called after each run of a layer, with the layer, ``"forward"`` or ``"backward"``, and the start time, a value
        of ``time.monotonic_ns``.
    is_watched : bool
        Whether each pass checks what layers write, and raises `PartError` for faults; see `singa_dask.net.debug`.
    """

    def __init__(self, context: InputContext, ops: Ops, wiring: Wiring, params: Params) -> None:
        self.context = context
        self.ops = ops
        self.nodes = wiring.nodes
        self.layers = wiring.layers
        self.all_layers = wiring.all_layers
        self.sources, self.readers = wiring.sources, wiring.readers
        self.cancellation = context.cancellation
        self.owners = params.owners
        self.logical = params.logical
        self.shared_params = params
        self.on_layer: Callable[[Layer, str, int], None] | None = None
        self.is_watched = False
        self._layers, self._node_of = wiring.by_name, wiring.node_of
        self._copies = Copies(wiring.layers, wiring.readers)
        self._replays = Replays(ops)

    def __repr__(self) -> str:
        return f"<NeuralNet: {len(self.layers)} layers, {self.n_params:,} values to learn>"

    @property
    def is_partitioned(self) -> bool:
        """Whether the workers of the group compute different layers or parts, not only different records."""
        return self.nodes[0].worker is not None

    def leave_out(self, layers: Iterable[Layer]) -> None:
        """Remove layers and their params. No other layer may read these layers."""
        left = set(layers)
        self.layers[:] = [layer for layer in self.layers if layer not in left]
        wanted = {param.owner for param in self.params}
        self.owners[:] = [owner for owner in self.owners if owner in wanted]

    # -- memory -------------------------------------------------------------------------------------

    def allocate(self) -> None:
        """Allocate the memory of the layers, except the values of params; see `allocate_params`."""
        for layer in self.layers:
            allocate(layer)
        bind_shared_gradients(self.layers)
        self._copies.allocate(self.ops)

    def allocate_params(self) -> None:
        """Allocate the values of all params that have no values yet. Call this for a net without servers."""
        for param in self.owners:
            if not param.has_data:
                param.data = self.ops.zeros(param.memory_shape, param.dtype)

    def memory_bytes(self) -> int:
        """Return the number of bytes that `allocate` and `allocate_params` allocate on the device."""
        return sum(self.memory_of_layers().values())

    def memory_of_layers(self) -> dict[str, int]:
        """Return the bytes of `memory_bytes` by the name of the layer in the job. Shared memory counts once."""
        n_bytes: dict[str, int] = dict.fromkeys((layer.conf_name for layer in self.layers), 0)
        counted: set[object] = set()
        memories = [(layer, memory) for layer in self.layers for memory in memory_of(layer)]
        for layer, memory in (*memories, *self._copies.memory(self.ops)):
            if memory.owner not in counted:
                counted.add(memory.owner)
                n_bytes[layer.conf_name] += memory.n_bytes
        home = {param.owner: layer.conf_name for layer in reversed(self.layers) for param in layer.params}
        for owner in self.owners:
            # if no layer of this worker uses the values, report them under the name of the param
            name = home.get(owner, owner.name)
            n_bytes[name] = n_bytes.get(name, 0) + owner.size * owner.dtype.itemsize
        return n_bytes

    # -- properties ------------------------------------------------------------------------------

    @property
    def params(self) -> list[Param]:
        return [param for layer in self.layers if layer.site.prototype is None for param in layer.params]

    @property
    def inputs(self) -> list[InputLayer]:
        """The input layers of this worker."""
        return [layer for layer in self.layers if isinstance(layer, InputLayer)]

    @property
    def n_params(self) -> int:
        """Number of trainable values. Shared values, also those from another net, count once."""
        learnt = {**self.logical, **self.shared_params.shared}.values()
        return sum(kept.param.size for kept in learnt if kept.owner.trains and not kept.owner.running_statistic)

    def gradient_divisor(self, key: str) -> int:
        """Return the divisor that turns the group's summed gradient of a param into the mean gradient."""
        kept = self.logical[key]
        if kept.owner.running_statistic:
            return self.n_gradients(key)
        # The gradient is the mean over the layers that share the param, unless the param asks for the sum. It is also
        # the mean over workers, unless the net is partitioned: then gradients of the parts of a batch add up to the
        # gradient of the batch.
        n_users = len(kept.users) if self.is_partitioned else kept.n_gradients
        return max(1 if kept.summed else n_users, 1) * (1 if self.is_partitioned else self.context.n_workers)

    def n_gradients(self, key: str) -> int:
        """Return the number of gradients of a param that the whole worker group computes in a step."""
        return self.logical[key].n_gradients * (1 if self.is_partitioned else self.context.n_workers)

    def sharers(self, owner: Param) -> list[Param]:
        """Return the params whose gradients add up to the gradient of ``owner``, including ``owner``."""
        learning = dict.fromkeys(
            param for layer in self.layers if layer.learns for param in layer.params if param.trains
        )
        return [param for param in learning if param.owner is owner.owner]

    def in_turn(self, phase: Phase) -> Iterator[Layer]:
        """Yield the layers of this worker in the order in which a pass runs them.

        In a backward pass, these are only the layers that learn.
        The caller must compute each layer before it takes the next one. Layers that wait for another worker come later.
        """
        back = bool(phase & Phase.BACKWARD)
        layers = [layer for layer in reversed(self.layers) if layer.learns] if back else self.layers
        if not self.is_partitioned:
            yield from layers
            return
        if not back:
            # an input layer or a bridge may set this flag again in its forward method
            self.context.stream_start = False
        before = self._copies.before if back else self.sources

        def arrived(layer: Layer) -> bool:
            return not isinstance(layer, Bridge) or layer.arrived(phase)

        def wait(condition: Callable[[], bool], waiting: Sequence[Layer]) -> None:
            peers = sorted({layer.site.peer for layer in waiting})
            workers = ", ".join(f"worker-{self.context.group}-{peer}" for peer in peers)
            self.context.bridges.wait(condition, f"bridge from {workers}")

        yield from ready_order(layers, before, arrived, wait)

    def forward(self, layer: Layer, phase: Phase) -> None:
        """Run `Layer.prepare` and `Layer.forward` of a layer; raise `Aborted` if the job has ended."""
        if self.cancellation.reason:
            self.cancellation.check()
        start = time.monotonic_ns() if self.on_layer else 0
        if self.is_watched and layer.traits.role != "unsupervised":
            watch_forward(layer, phase)
        else:
            layer.prepare(phase)
            self._replays.run(layer, phase, "forward")
        if self.on_layer:
            self.on_layer(layer, "forward", start)

    def backward(self, layer: Layer, phase: Phase) -> None:
        """Run `Layer.backward` of a layer; raise `Aborted` if the job has ended.

        Gradients of several copies of a layer are added; for a running statistic they are averaged.
        """
        if self.cancellation.reason:
            self.cancellation.check()
        start = time.monotonic_ns() if self.on_layer else 0
        if self.is_watched and layer.traits.role != "unsupervised":
            watch_backward(layer, phase, self._copies.backward, self._copies.adds(layer))
        else:
            self._copies.backward(layer, phase, self._replays.run)
        if self.on_layer:
            self.on_layer(layer, "backward", start)

    def bind_forward(self, phase: Phase) -> list[Callable[[], Any]] | None:
        """Return calls that compute all layers except input layers, in order and in their present memory.

        A layer whose kernels were captured is computed by these kernels, without its own code. The result is None if
        layers run in another order in each pass, are observed, or read labels or ids of records.
        """
        reads_ids = any({"labels", "ids"} & feature.consumed_as for layer in self.inputs for feature in layer.features)
        if self.is_partitioned or self.is_watched or self.on_layer or reads_ids:
            return None
        calls: list[Callable[[], Any]] = []
        for layer in self.layers:
            kernels = self._replays.captured(layer, phase, "forward")
            if layer.traits.role != "input":
                calls += [partial(self.forward, layer, phase)] if kernels is None else kernels
        return calls

    def gradients_complete(self, layer: Layer) -> bool:
        """Return whether a layer's gradients are complete once it has run: all its other copies run earlier."""
        return self._copies.is_last(layer)

    def runs_once(self, layer: Layer) -> bool:
        """Return whether a layer's gradients are complete when `backward` writes them: no copy adds to them."""
        return not self.is_watched and self._copies.is_only(layer)

    def name2layer(self, name: str) -> Layer:
        """Return the layer with this name. The method is named as in SINGA."""
        return self._layers[name]

    def param(self, name: str) -> Param:
        """Return the param with this name."""
        return self.shared_params.by_name[name]

    def param_path(self, name: str) -> tuple[str | int, ...]:
        """Return the path of a param in the job file, for an error."""
        paths = [
            node.problem("", ("param", k)).path for param, node, k in self.shared_params.located() if param.name == name
        ]
        return paths[0]

    def take_metrics(self, weight: float = 1.0) -> Totals:
        """Return the (sum, count) of each metric since the previous call, and start again from zero.

        The copies of a layer share their metrics. If several layers of the group have a metric of the same name, the
        key of each is ``<layer>.<metric>``. ``weight`` multiplies sum and count of metrics that are means over a
        batch.
        """
        taken: dict[str, dict[str, tuple[float, float]]] = {}
        for layer in self.layers:
            taken[layer.conf_name] = add_totals([taken.get(layer.conf_name, {}), layer.take_metrics()])
        names: dict[str, set[str]] = {layer: set(metrics) for layer, metrics in taken.items()}
        for layer in self.all_layers:
            names.setdefault(layer.conf_name, set()).update(layer.traits.metrics)
        times = Counter(name for of_layer in names.values() for name in of_layer)
        # if a worker computes a part of a batch, its metrics are weighted by the size of the part
        weights = {
            layer.conf_name: weight * (self.context.weight if layer.site.batch_shard.count > 1 else 1.0)
            for layer in self.layers
        }
        own = {(layer.conf_name, name) for layer in self.layers for name in layer.metrics.own_counts}
        return {
            name if times[name] == 1 else f"{layer}.{name}": (factor * metric[0], factor * metric[1])
            for layer, metrics in taken.items()
            for name, metric in metrics.items()
            for factor in [1.0 if (layer, name) in own else weights[layer]]
        }

    def metrics_state(self) -> dict[str, Any]:
        """Return the sums of metrics since the last `take_metrics`, as plain values by layer.

        The result is empty if no layer has metrics.
        """
        return {layer.name: state for layer in self.layers if (state := layer.metrics.state())}

    def restore_metrics(self, state: Mapping[str, Any]) -> None:
        """Set the sums of metrics to ``state``, an earlier result of `metrics_state`."""
        for layer in self.layers:
            if layer.name in state:
                layer.metrics.restore(state[layer.name])

    def check_sources(self, without: Collection[int] = ()) -> None:
        """Check that the files that input layers read match their description in the job.

        Parameters
        ----------
        without : collection of int
            Indices (in the job) of layers that are not checked.

        Raises
        ------
        ConfigError
            Files do not match. The error lists all problems, with paths from the top of the job.
        """
        problems: list[Problem] = []
        # check one part of each layer, because all parts read the same store
        parts = {layer.conf_name: layer for layer in reversed(self.all_layers)}
        for layer in reversed(parts.values()):
            if self._node_of[layer.name].index in without:
                continue
            try:
                layer.check_source()
            except ConfigError as error:
                problems += self._node_of[layer.name].located(error)
        if problems:
            raise ConfigError(problems)

    def cursors(self) -> dict[str, dict[str, Any]]:
        """Return the reading position of each input layer of this worker, by the name of the layer in the job.

        All parts of a partitioned input layer have the same position.
        """
        cursors = {layer.conf_name: layer.cursor() for layer in self.inputs}
        return {name: cursor for name, cursor in cursors.items() if cursor is not None}

    def seek(self, cursors: Mapping[str, Mapping[str, Any]]) -> None:
        """Move the input layers of this worker to positions that `cursors` has returned.

        Layers that are missing in ``cursors`` keep their position.

        Raises
        ------
        CheckpointError
            ``cursors`` has a layer that this net lacks.
        """
        known = {layer.conf_name for layer in self.all_layers}
        for name, cursor in cursors.items():
            if name not in known:
                raise CheckpointError(f"this net has no input layer {name!r} to continue. {suggest(name, known)}")
            for layer in self.inputs:
                if layer.conf_name == name:
                    layer.seek(cursor)

    def advance(self, n_batches: int) -> None:
        """Skip ``n_batches`` batches of all input layers of this worker, without reading them.

        A negative number goes back.
        """
        for layer in self.inputs:
            layer.advance(n_batches)

    def close(self) -> None:
        """Close all layers, even if closing one fails; then raise the first error."""
        failed: list[Exception] = []
        for layer in self.layers:
            try:
                layer.close()
            except Exception as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def layers_of_job(self) -> list[tuple[Layer, int]]:
        """Return each layer of the job that has params, with its index in the job.

        If a layer has several copies or parts, only one of them is returned.
        """
        layers = {self._node_of[layer.name].index: layer for layer in reversed(self.all_layers) if layer.params}
        return [(layer, index) for index, layer in sorted(layers.items())]

    def unread_layers(self) -> list[Node]:
        """Return a node for each layer of the job that no other layer reads, in the order of the job."""
        owner = {feature: layer.conf_name for layer in self.all_layers for feature in layer.features}
        edges = {(layer.conf_name, owner[source]) for layer in self.all_layers for source in layer.sources}
        read = {source for reader, source in edges if reader != source}
        of_node = {node.name: node.layer for node in self.nodes}
        read |= {of_node[source.node] for node in self.nodes for source in node.feedback}
        nodes = {node.layer: node for node in self.nodes if not node.inserted and node.layer not in read}
        return sorted(nodes.values(), key=lambda node: node.index)

    def describe(self) -> str:
        """Return a table of the layers as text.

        The columns are name, type, sources, shape and params. The table of a partitioned net also names the workers.
        """
        hidden = 0 if self.is_partitioned else 1
        rows = [("worker", "layer", "type", "reads", "shape", "params")[hidden:]]
        for layer, node in zip(self.all_layers, self.nodes, strict=True):
            shape = _show_shape(layer.features[0]) if layer.features else ""
            params = ", ".join(_show_param(param) for param in layer.params)
            cells = (str(node.worker), layer.name, layer.conf.type, ", ".join(node.source_names), shape, params)
            rows.append(cells[hidden:])
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(n) for cell, n in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([*lines, f"{self.n_params:,} values to learn"])


def _show_shape(feature: Feature) -> str:
    rows, *rest = feature.shape
    steps = [f"{feature.n_steps} steps"] if feature.n_steps > 1 else []
    return " x ".join(map(str, [*steps, rows // feature.n_steps, *rest]))


def _show_param(param: Param) -> str:
    text = f"{param.name} {' x '.join(map(str, param.shape))}"
    return text if param.owner is param else f"{text} (of {param.owner.name})"


def make_net(job: JobConf, context: InputContext, ops: Ops, share_from: NeuralNet | None = None) -> NeuralNet:
    """Build the net of one phase: layers with shapes and params.

    No memory is allocated, and no records are read.

    Parameters
    ----------
    job : JobConf
    context : InputContext
        Phase, worker, seed and precision. Its ``proportions`` are set from the job unless they are already set.
    ops : Ops
        Kernels of the device.
    share_from : NeuralNet, optional
        A net whose params this net uses, by name. For a test or validation net, pass the training net.

    Raises
    ------
    ConfigError
        The net has mistakes. The error lists all of them, with paths from the top of the job.
    """
    conf, given = job.neuralnet, context.proportions
    nodes = plan(conf, context.phase, context.n_workers)
    context.proportions = given or find_proportions(nodes, context.n_workers)
    wiring = Wiring(nodes, context, ops)
    problems = list(wiring.problems)
    problems += check_proportions(nodes, wiring.by_name) if context.proportions and not given else []
    pass_on_reads(wiring.all_layers)
    params = Params(wiring)
    problems += params.index_names()
    problems += params.share_with(share_from.shared_params) if share_from else params.resolve_sharing()
    if problems:
        raise ConfigError(problems)
    find_gradients(wiring.all_layers, context.phase)
    wrong = chain(check_backward(nodes, wiring.by_name), check_mixing(nodes, wiring.by_name))
    if problems := list(dict.fromkeys(wrong)):
        raise ConfigError(problems)
    params.assign_owners()
    # do not fuse other nets, because callers read their outputs; in a debugged net, do not fuse sums
    if context.phase & Phase.TRAIN:
        fuse(wiring.layers, with_sums=ops.prefers_large_kernels and nodes[0].worker is None and not job.debug)
    return NeuralNet(context, ops, wiring, params)
