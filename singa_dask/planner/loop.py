"""Loop: time training steps of the net of one worker on records of random values."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Sequence

import numpy as np

from singa_dask.conf import JobConf, Phase
from singa_dask.data.types import Field
from singa_dask.errors import ConfigError, DataError
from singa_dask.inputs import StoreInput
from singa_dask.layers import Layer
from singa_dask.layers.bridge import Bridge
from singa_dask.net import NeuralNet
from singa_dask.ops.contract import Array
from singa_dask.runtime.planning.nets import build_nets, find_ops
from singa_dask.runtime.planning.thread_limits import limit_process, limit_thread
from singa_dask.training import ALGORITHMS

WARM_UP, MIN_PASSES, MAX_PASSES, SECONDS = 5, 3, 200, 0.25
"""Number of warm-up calls, in which layers capture their kernels; minimum and maximum number of timed calls; seconds
after which no further call is timed."""
SLOW_S = 0.3
"""Steps that take longer than this have only two warm-up calls, because captured kernels do not make them faster."""

Passes = dict[tuple[Layer, str], float]


class _Elsewhere:
    """An exchange that stands in for a group's other workers: bridges receive zeros, and never wait."""

    def __init__(self, net: NeuralNet) -> None:
        self._features = {each.site.channel: each.features[0] for each in net.layers if isinstance(each, Bridge)}

    def send(self, worker: int, key: str, arrays: Sequence[Array], names: Sequence[str]) -> None: ...

    def receive(self, key: str) -> dict[str, Array]:
        feature = self._features[key.split(" ", 2)[2]]
        n, *rest = feature.shape
        # bridges send images with shape (N, H, W, C)
        data = np.zeros((n, *rest[1:], rest[0]) if len(rest) == 3 else feature.shape, feature.dtype)
        return {"data": data, "grad": data, "labels": np.zeros(n, np.int32)}

    def has(self, key: str) -> bool:
        return True

    def wait(self, condition: Callable[[], bool], what: str) -> None: ...


def _made_up(layer: StoreInput) -> dict[str, Array]:
    """Return a batch of random values, with the same fields as the records of a layer.

    If the store cannot be read, the batch has the usual fields.
    """
    n, *shape = layer.features[0].shape
    fields = {name: Field(np.dtype(np.float32), tuple(shape)) for name in ("data", "target", "weight")}
    fields["label"] = Field(np.dtype(np.int32))
    with contextlib.suppress(DataError, ConfigError):
        with layer.source.open_checked() as store:
            fields = dict(store.schema)
        layer.read_statistics()
    return {name: np.full((n, *each.shape), int(name != "label"), each.dtype) for name, each in fields.items()}


class Loop:
    """Runs training steps of one worker's net on random records, without an exchange of gradients.

    ``worker`` is the index of the worker in its group.
    """

    def __init__(self, job: JobConf, worker: int = 0) -> None:
        ops = find_ops(job, job.ops)
        self.net = net = build_nets(job, 0, worker, ops=ops)[Phase.TRAIN]
        net.allocate()
        net.allocate_params()
        random = np.random.default_rng(0)
        for owner in net.owners:
            values = np.asarray(random.random(owner.data.shape)) - (0.0 if owner.running_statistic else 0.5)
            ops.copy((0.01 * values).astype(owner.dtype), out=owner.data)
        net.context.exchange = _Elsewhere(net)
        self._batches = {layer: _made_up(layer) for layer in net.inputs if isinstance(layer, StoreInput)}
        self._algorithm = ALGORITHMS.find(job.train_one_batch.alg)(net, conf=job.train_one_batch)

    def step(self) -> None:
        """Train on one batch."""
        for layer, arrays in self._batches.items():
            layer.feed(arrays)
        self._algorithm.train_one_batch(self.net.context.step + 1)

    def measure(self, n_threads: int) -> tuple[Passes, float, float]:
        """Return the median times of a training step and its parts in seconds, with ``n_threads`` threads.

        Returns
        -------
        Passes, float, float
            The times of the forward and backward pass of each layer; the total time of all passes in a step; the time
            of a whole step.
        """
        passes: dict[tuple[Layer, str], list[float]] = defaultdict(list)
        inside: list[float] = []

        def note(layer: Layer, verb: str, start: int) -> None:
            passes[layer, verb].append((time.monotonic_ns() - start) / 1e9)
            inside[-1] += passes[layer, verb][-1]

        def step() -> None:
            inside.append(0.0)
            self.step()

        with limit_process(n_threads), limit_thread(n_threads):
            for i in range(WARM_UP):
                started = time.perf_counter()
                self.step()
                if i and time.perf_counter() - started > SLOW_S:
                    break
            self.net.on_layer = note
            step_s = median_s(step)
        # a layer may have several passes in a step, as in contrastive divergence; take their mean
        of_step = {key: np.reshape(values, (len(inside), -1)).mean(1) for key, values in passes.items()}
        return {key: float(np.median(values)) for key, values in of_step.items()}, float(np.median(inside)), step_s


def median_s(call: Callable[[], object], before: Callable[[], object] = lambda: None) -> float:
    """Return the median time of a call, in seconds.

    ``before`` is called before each call, and is not timed.
    """
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while len(times) < MIN_PASSES or (time.perf_counter() < end and len(times) < MAX_PASSES):
        before()
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return float(np.median(times))
