"""SizedNets: nets with the same values for several batch sizes, computed on records in memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from singa_dask.conf import JobConf, Phase
from singa_dask.data.stores.training_knowledge import TrainingKnowledge
from singa_dask.data.types import Arrays
from singa_dask.errors import ConfigError
from singa_dask.inference.filled_net import (
    FilledNet,
    SharedValues,
    build,
    keep_outputs,
    locate_errors,
    rows_of_pass,
    using_modules,
)
from singa_dask.inputs import StoreInput
from singa_dask.inputs.writers import Writer
from singa_dask.layers import Layer
from singa_dask.layers.metrics import Totals
from singa_dask.modules import Source
from singa_dask.net import NeuralNet
from singa_dask.ops.contract import Ops
from singa_dask.runtime.checkpoints.initial_values import InitialValues
from singa_dask.runtime.planning.devices import explain_memory_errors
from singa_dask.runtime.planning.job_stores import with_batchsize
from singa_dask.runtime.planning.machine import n_threads
from singa_dask.runtime.planning.thread_limits import ThreadPools
from singa_dask.runtime.planning.whole_pass import is_sequential
from singa_dask.training.pass_metrics import PassMetrics

# number of passes after which a net of one batch size becomes a `BoundNet`; its kernels are captured by then
PASSES_BEFORE_BOUND = 6
# number of multiplications below which waking up other threads takes longer than computing
SMALL = 1 << 17
# maximum number of nets that are kept: each batch size needs its own net, e.g. the last batch of an array
MAX_SIZES = 8


@dataclass
class LoadedValues:
    """Values of a checkpoint for several nets.

    They have a source, kernels, the values read so far, and the user's modules.
    """

    initial: InitialValues
    ops: Ops
    shared: SharedValues = field(default_factory=dict)
    sources: Sequence[Source] = ()

    @cached_property
    def knowledge(self) -> TrainingKnowledge:
        """Classes, columns and scalings of the training data, from the checkpoint."""
        return TrainingKnowledge(self.initial.learned_to_predict())


class SizedNets:
    """The net of a phase with the values of a checkpoint, computed on records in memory. Not thread-safe.

    It keeps a net for each of the last few batch sizes. All these nets share their values.

    Parameters
    ----------
    job : JobConf
        A job from `inference_job`.
    layers : sequence of str
        Layers to compute; the layers that they depend on are computed, too. If empty, all layers except layers that
        write files.

    Attributes
    ----------
    shapes : NeuralNet
        A net without memory, from which only shapes are read.
    inputs : dict of str to StoreInput
        The input layers of ``shapes``, by name.
    batchsize : int
        Number of records in a batch of the job.
    rows : int
        Number of records in a batch of `batches`.
    sequential : str
        Name of a layer that needs all batches in order; empty if no layer does.

    Raises
    ------
    ConfigError
        The net cannot be built, or an input layer reads no store.
    """

    def __init__(self, job: JobConf, phase: Phase, loaded: LoadedValues, layers: Sequence[str] = ()) -> None:
        self._job, self._phase, self._loaded, self._layers = job, phase, loaded, tuple(layers)
        self._sized: OrderedDict[int, FilledNet] = OrderedDict()
        self._pools, self._n_threads = ThreadPools(), n_threads(job, 1)
        self.shapes = self._build(job)
        self.shapes.context.knowledge = loaded.knowledge
        inputs = [layer for layer in self.shapes.layers if layer.traits.role == "input"]
        self.inputs = {layer.conf_name: layer for layer in inputs if isinstance(layer, StoreInput)}
        if len(self.inputs) < len(inputs):
            others = [f"{each.conf_name!r}, a {each.conf.type}" for each in inputs if not isinstance(each, StoreInput)]
            found = ", ".join(others) or "copies of an input layer"
            raise ConfigError(f"the net reads {found}. Expected layers that read stores, to feed them with arrays.")
        sizes = {layer.plan.batch_size for layer in self.inputs.values()}
        if len(sizes) != 1:
            raise ConfigError(f"the input layers have batches of {sorted(sizes)} records. Expected one size.")
        self.batchsize = sizes.pop()
        self.sequential = next((layer.conf_name for layer in self.shapes.layers if is_sequential(layer)), "")
        self.rows = self.batchsize if self.sequential else rows_of_pass(self.shapes, self.batchsize)

    def layer(self, name: str) -> Layer:
        """Return a layer, to read its shapes. In an unrolled net, return one of the layer's copies."""
        return next(each for each in self.shapes.layers if each.conf_name == name)

    def batches(self, n: int) -> Iterator[tuple[int, int]]:
        """Yield each batch of ``n`` records as a range, (first, stop).

        Raises
        ------
        ConfigError
            A layer needs batches of full size, and the last batch has fewer records.
        """
        if self.sequential and n % self.batchsize:
            raise ConfigError(
                f"layer {self.sequential!r} takes only batches of {self.batchsize}, but there are {n} records."
            )
        return ((first, min(first + self.rows, n)) for first in range(0, n, self.rows))

    def compute(self, arrays: Mapping[str, Arrays], n: int, first: int) -> dict[str, Arrays]:
        """Compute a batch, and return the outputs of the layers by name.

        Parameters
        ----------
        arrays : mapping of str to dict of ndarray
            Fields of the records, by the name of the input layer.
        n : int
            Number of records in the batch.
        first : int
            Index of the first record; 0 resets the state of layers.
        """
        ready = self._net(n)
        if ready.bound is not None:
            with self._pools.limit(ready.n_threads, ready.bound.needs_blas):
                outputs = ready.bound.compute(arrays)
            if outputs is not None:
                return outputs
        with self._computed(arrays, n, first, None) as net:
            outputs = {name: keep_outputs(net, name, False, 0) for name in self._layers}
            ready.n_passes += 1
            if ready.n_passes == PASSES_BEFORE_BOUND:
                ready.bind(self._phase, self._layers)
            return outputs

    def measure(self, arrays: Mapping[str, Arrays], n: int, first: int, of_pass: PassMetrics) -> Totals:
        """Compute a batch as `compute` does, add its metrics to ``of_pass``, and return them."""
        with self._computed(arrays, n, first, of_pass) as net:
            return net.take_metrics(n / self.batchsize)

    @contextmanager
    def _computed(
        self, arrays: Mapping[str, Arrays], n: int, first: int, of_pass: PassMetrics | None
    ) -> Iterator[NeuralNet]:
        ready = self._net(n)
        with self._computing(ready.net, ready.n_threads):
            if not first:
                ready.net.context.states.clear()
            for layer in ready.net.layers:
                if isinstance(layer, StoreInput):
                    layer.feed(arrays[layer.conf_name], first)
            ready.compute(self._phase, of_pass)
            yield ready.net

    def pass_metrics(self, names: Sequence[str] | None = None) -> PassMetrics:
        """Return a new `PassMetrics` for a pass over all records.

        It has the metrics ``names``; by default, the metrics that the job sets.
        """
        return PassMetrics(self.shapes, self._job.metrics if names is None else names)

    def _net(self, n: int) -> FilledNet:
        """Return the net for batches of ``n`` records."""
        if n not in self._sized:
            if len(self._sized) == MAX_SIZES:
                _, oldest = self._sized.popitem(last=False)
                oldest.net.close()
            self._sized[n] = self._make(n)
        self._sized.move_to_end(n)
        return self._sized[n]

    def _make(self, n: int) -> FilledNet:
        net = self._build(with_batchsize(self._job, n), self._loaded.ops)
        net.context.knowledge = self._loaded.knowledge
        with (
            self._computing(net, self._n_threads),
            locate_errors(lambda: "the net"),
            using_modules(self._loaded.sources),
        ):
            for layer in net.layers:
                if isinstance(layer, StoreInput):
                    layer.read_statistics()
            ready = FilledNet(net, self._job, self._loaded.initial, self._loaded.shared)
        ready.n_threads = 1 if _is_small(net, n) else self._n_threads
        self._loaded.initial.release()
        # find the thread pools again, because loading a layer may have loaded a library with its own pool
        self._pools = ThreadPools()
        return ready

    def _build(self, job: JobConf, ops: Ops | None = None) -> NeuralNet:
        # the process may have loaded another version of the modules since the last net was built
        with using_modules(self._loaded.sources):
            net = build(job, self._phase, self._layers, labels=not self._layers, ops=ops)
        net.leave_out([layer for layer in net.layers if isinstance(layer, Writer)])
        return net

    @contextmanager
    def _computing(self, net: NeuralNet, n_threads: int) -> Iterator[None]:
        limits, ops = self._pools.limit(n_threads), self._loaded.ops
        with limits, explain_memory_errors(lambda: [net]), ops.activate():
            yield


def _is_small(net: NeuralNet, n: int) -> bool:
    """Return whether a batch of ``n`` records is computed faster by one thread than by several."""
    is_flat = all(len(feature.shape) <= 2 for layer in net.layers for feature in layer.features)
    return is_flat and n * sum(param.size for param in net.params) < SMALL
