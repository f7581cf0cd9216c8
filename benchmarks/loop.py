"""A net with its updater in one loop, without servers: what the benchmarks of nets run of ours."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from singa_dask.conf import JobConf, Phase
from singa_dask.conf.job import AlgConf
from singa_dask.inputs import InputContext, InputLayer
from singa_dask.layers import LAYERS, Param, RecordIds
from singa_dask.net import make_net
from singa_dask.ops import BFLOAT16, NumpyOps
from singa_dask.ops.contract import ArrayList
from singa_dask.training import ALGORITHMS, UPDATERS, Algorithm, initial_values

__all__ = ["FixedBatch", "Loop", "dtype_of"]


@LAYERS.register("FixedBatch")
class FixedBatch(InputLayer):
    """The same records in every step."""

    def setup(self) -> None:
        self.add_output(self.conf.user_conf["shape"], requires_grad=False)

    def compute_feature(self, phase: Phase) -> None:
        pass

    def hold(self, records: np.ndarray[Any, Any], labels: np.ndarray[Any, Any] | None = None) -> None:
        """Take the records, and what is wanted of them."""
        self.ops.copy(records, out=self.features[0].data)
        if labels is not None:
            self.features[0].records = RecordIds(self.ops.labels(labels.astype(np.int32)))


def dtype_of(precision: str) -> np.dtype[Any]:
    """Return the type of features in a precision."""
    return np.dtype({"bf16": BFLOAT16, "float64": np.float64}.get(precision, np.float32))


class Loop:
    """A net with its params, and who updates them; the gradients of those who share a param are added up.

    Parameters
    ----------
    job : JobConf
    ops : NumpyOps
        Its device is to be the thread's: ``with ops.activate()``.
    values : callable, optional
        Shapes of the params -> their first values, in their order; the job's own if not given.
    precision : str
        Of the features.
    seed : int
    rate : float
        Factor of the job's learning rate.
    anneals : bool
        The learning rate follows the job's schedule; else it is that of the first step.

    Attributes
    ----------
    net : NeuralNet
    algorithm : Algorithm
    n_steps : int
        Trained so far.
    """

    def __init__(
        self,
        job: JobConf,
        ops: NumpyOps,
        values: Callable[[list[tuple[int, ...]]], Iterable[np.ndarray[Any, Any]]] | None = None,
        *,
        precision: str = "float32",
        seed: int = 0,
        rate: float = 1.0,
        anneals: bool = False,
    ) -> None:
        self.rate, self.anneals, self.n_steps = rate, anneals, 0
        self.net = net = make_net(job, InputContext(seed=seed, dtype=dtype_of(precision)), ops)
        net.allocate()
        net.allocate_params()
        if values is not None:
            for param, first in zip(net.owners, values([p.shape for p in net.owners]), strict=True):
                ops.copy(first, out=param.data)
        else:
            for param in net.owners:
                assert param.conf.init is not None
                ops.copy(initial_values(param.conf.init, param.name, param.shape, seed, param.dtype), out=param.data)
        self.updater = UPDATERS.find(job.updater.type)(job.updater)
        self.updater.ops = ops
        names = self.updater.state_names
        self.state = {p: {name: ops.zeros((p.size,), p.dtype) for name in names} for p in net.owners}
        self._sharers = {owner: net.sharers(owner) for owner in net.owners}
        self._n_sent: dict[Param, int] = dict.fromkeys(net.owners, 0)
        self._ready: list[Param] = []
        self._n_ready = 0  # values
        self._groups: dict[tuple[Param, ...], Any] = {}
        conf: AlgConf = job.train_one_batch
        self.algorithm: Algorithm = ALGORITHMS.find(conf.alg)(net, update=self.update, conf=conf)
        self.algorithm.capture_steps()

    def update(self, step: int, param: Param) -> None:
        """Take a gradient; change params that have all of them, some together, on a GPU at the end of the step."""
        owner = param.owner
        self._n_sent[owner] += 1
        if self._n_sent[owner] < len(self._sharers[owner]):
            return
        self._n_sent[owner] = 0
        self._ready.append(owner)
        self._n_ready += owner.size
        if not self.net.ops.prefers_large_kernels and self._n_ready >= self.net.ops.update_values:
            self._update_ready()

    def _update_ready(self) -> None:
        """Change the params that have all of their gradients, those of one kind by one kernel."""
        key, self._ready, self._n_ready = tuple(self._ready), [], 0
        if key not in self._groups:
            self._groups[key] = self._grouped(key)
        at = self.n_steps if self.anneals else 0
        sums, groups = self._groups[key]
        for total, grad in sums:
            self.net.ops.add(total, grad, out=total)
        for scales, values, grads, state in groups:
            if not scales:
                self.net.ops.shift(values, grads, 1)
                continue
            more = {"lr_scale": [self.rate * lr_scale for lr_scale, _ in scales], "wd_scale": [wd for _, wd in scales]}
            self.updater.update(at, self.n_steps, values, grads, state, **more)

    def _grouped(self, owners: tuple[Param, ...]) -> tuple[list[tuple[Any, Any]], list[Any]]:
        """Return pairs of gradients to add up, and the params that the updater changes, and those that it does not."""
        sums = []
        alike: dict[bool, list[tuple[Param, Any]]] = defaultdict(list)
        for owner in owners:
            total, *more = (sharer.grad.reshape(-1) for sharer in self._sharers[owner] if not sharer.is_idle)
            sums += [(total, grad) for grad in more]
            alike[owner.running_statistic].append((owner, total))
        groups = []
        for is_statistic, pairs in alike.items():
            scales = [(owner.conf.lr_scale, owner.conf.wd_scale) for owner, _ in pairs if not is_statistic]
            values = ArrayList(owner.data.reshape(-1) for owner, _ in pairs)
            state = {
                name: ArrayList(self.state[owner][name] for owner, _ in pairs) for name in self.updater.state_names
            }
            groups.append((scales, values, ArrayList(grad for _, grad in pairs), state))
        return sums, groups

    def train(self) -> None:
        """Train for one step; nothing waits for a GPU."""
        self.algorithm.train_one_batch(self.n_steps)
        if self._ready:
            self._update_ready()
        self.n_steps += 1

    def train_one_batch(self) -> float:
        """Train for one step; return its loss, or the error of an RBM."""
        self.train()
        figures = self.net.take_metrics()
        total, count = figures["loss" if "loss" in figures else "squared_error"]
        return total / count

    def without_dropout(self) -> Callable[[], None]:
        """Have Dropout layers keep everything; return what undoes it."""
        drops = {layer: layer.keep for layer in self.net.layers if isinstance(layer, LAYERS.find("Dropout"))}
        for drop in drops:
            drop.keep = 1.0

        def undo() -> None:
            for drop, keep in drops.items():
                drop.keep = keep

        return undo
