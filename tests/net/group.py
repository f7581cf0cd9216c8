"""A worker group for tests of partitioned nets: a thread a worker, and one place for the params of all."""

from __future__ import annotations

import functools
import json
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from singa_dask.conf import JobConf, Phase
from singa_dask.inputs import InputContext
from singa_dask.net import NeuralNet, make_net
from singa_dask.ops import NumpyOps, get_ops
from singa_dask.training import BP, initial_values
from tests.net.jobs import job

__all__ = ["Group", "Post", "alone", "merged", "run_all", "same"]

TIMEOUT_S = 240.0


class Post:
    """What the workers of a group hand to each other.

    Parameters
    ----------
    late : Generator, optional
        Has what is handed on arrive later, and in any order; only what has the same key stays in order.

    Attributes
    ----------
    sent : Counter
        Values that were sent, by key and name.
    """

    def __init__(self, late: np.random.Generator | None = None) -> None:
        self.late = late
        self.under_way: dict[tuple[int, str], deque[dict[str, Any]]] = defaultdict(deque)
        self.arrived: dict[tuple[int, str], deque[dict[str, Any]]] = defaultdict(deque)
        self.condition = threading.Condition()
        self.sent: Counter[tuple[str, str]] = Counter()

    def of(self, worker: int) -> Desk:
        return Desk(self, worker)

    @property
    def n_values(self) -> int:
        """Values and gradients sent so far, labels and numbers of records apart."""
        return sum(n for (_, name), n in self.sent.items() if name in ("data", "grad"))

    def deliver(self) -> None:
        """Have one thing arrive of what is under way."""
        waiting = [place for place, queue in self.under_way.items() if queue]
        place = waiting[0 if self.late is None else int(self.late.integers(len(waiting)))]
        self.arrived[place].append(self.under_way[place].popleft())
        self.condition.notify_all()

    def has_under_way(self) -> bool:
        return any(self.under_way.values())


class Desk:
    """One worker's side of it."""

    def __init__(self, post: Post, worker: int) -> None:
        self.post = post
        self.worker = worker

    def send(self, worker: int, key: str, arrays: Sequence[Any], names: Sequence[str]) -> None:
        post = self.post
        with post.condition:
            for name, array in zip(names, arrays, strict=True):
                post.sent[key, name] += np.size(array)
            post.under_way[worker, key].append(dict(zip(names, arrays, strict=True)))
            while post.has_under_way() and (post.late is None or post.late.integers(3) == 0):
                post.deliver()
            post.condition.notify_all()

    def has(self, key: str) -> bool:
        return bool(self.post.arrived.get((self.worker, key)))

    def wait(self, condition: Callable[[], bool], what: str = "") -> None:
        with self.post.condition:
            while not condition():
                if self.post.has_under_way():
                    self.post.deliver()
                elif not self.post.condition.wait_for(lambda: condition() or self.post.has_under_way(), TIMEOUT_S):
                    raise TimeoutError(f"worker {self.worker} waits for ever")

    def receive(self, key: str) -> dict[str, Any]:
        self.wait(lambda: self.has(key))
        return self.post.arrived[self.worker, key].popleft()


class Group:
    """Nets of one job on so many workers, in float64, trained by plain gradient descent.

    Parameters
    ----------
    ops : sequence of NumpyOps, optional
        Of each worker; numpy's where it is not given.
    """

    def __init__(
        self,
        job: JobConf,
        n_workers: int,
        rate: float = 0.1,
        late: np.random.Generator | None = None,
        ops: Sequence[NumpyOps] = (),
    ) -> None:
        self.rate = rate
        self.post = Post(late)
        self.figures: dict[str, float] = {}
        self.nets = []
        for worker in range(n_workers):
            context = InputContext(
                dtype=np.dtype(np.float64), seed=3, worker=worker, n_workers=n_workers, exchange=self.post.of(worker)
            )
            net = make_net(job, context, ops[worker] if ops else get_ops("numpy"))
            net.allocate()
            net.allocate_params()
            for param in net.owners:
                assert param.conf.init is not None
                whole = initial_values(param.conf.init, param.name, param.whole_shape, 3, param.dtype)
                param.data = net.ops.from_host(np.array(param.shard.of(whole) if param.shard else whole))
            self.nets.append(net)

    def train(self, n_steps: int) -> list[float]:
        """Train; return the loss of each step."""
        return [self._step(step) for step in range(n_steps)]

    def _step(self, step: int) -> float:
        run_all([partial(_computed, net, BP(net).train_one_batch, step) for net in self.nets])
        totals: dict[str, Any] = {}
        for net in self.nets:
            for owner in net.owners:
                for param in net.sharers(owner):
                    grad = net.ops.to_host(param.memory).reshape(owner.memory_shape)
                    totals[owner.key] = totals[owner.key] + grad if owner.key in totals else grad.copy()
        for net in self.nets:
            for owner in net.owners:
                if owner.key in totals:
                    rate = 1 if owner.running_statistic else self.rate
                    change = rate * totals[owner.key] / net.gradient_divisor(owner.key)
                    net.ops.subtract(owner.values, net.ops.from_host(change), out=owner.values)
        self.figures = merged(net.take_metrics() for net in self.nets)
        return sum(figure for name, figure in self.figures.items() if name.endswith("loss"))

    def test(self, job: JobConf, n_batches: int = 2, phase: Phase = Phase.TEST) -> dict[str, float]:
        """Run a net of the job that shares these params; return its figures."""
        nets = []
        for trained in self.nets:
            context = replace(trained.context, phase=phase)
            net = make_net(job, context, trained.ops, trained)
            net.allocate()
            nets.append(net)
        for _ in range(n_batches):
            run_all([partial(_computed, net, BP(net).test_one_batch, phase) for net in nets])
        return merged(net.take_metrics() for net in nets)

    def values(self) -> dict[str, Any]:
        """Return all params, put together."""
        found: dict[str, Any] = {}
        for net in self.nets:
            for param in net.owners:
                values = net.ops.to_host(param.values)
                if param.shard is None:
                    found[param.name] = values
                else:
                    whole = found.setdefault(param.name, np.zeros(param.whole_shape))
                    param.shard.of(whole)[...] = values
        return found


def alone(layers: Sequence[dict[str, Any]], n_steps: int, unroll_len: int = 1) -> tuple[Group, list[float]]:
    """Return one worker that has trained a net for so many steps, and its losses: for all tests, to be looked at."""
    return _alone(json.dumps(layers), n_steps, unroll_len)


@functools.cache
def _alone(layers: str, n_steps: int, unroll_len: int) -> tuple[Group, list[float]]:
    one = Group(job([], neuralnet={"layer": json.loads(layers), "unroll_len": unroll_len}), 1)
    return one, one.train(n_steps)


def same(group: Group, one: Group) -> None:
    """Compare figures and params of what was trained by several workers with what one has trained."""
    assert group.figures.keys() == one.figures.keys()
    for name, figure in one.figures.items():
        np.testing.assert_allclose(group.figures[name], figure, rtol=1e-10, err_msg=name)
    values, wanted = group.values(), one.values()
    assert values.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_allclose(values[name], array, rtol=1e-10, atol=1e-12, err_msg=name)


def _computed(net: NeuralNet, call: Callable[[Any], None], given: Any) -> None:
    """Call in a thread that computes on the net's device."""
    with net.ops.activate():
        call(given)


def run_all(calls: Sequence[Callable[[], None]]) -> None:
    """Call all at once, each in a thread of its own."""
    with ThreadPoolExecutor(len(calls)) as pool:
        for done in [pool.submit(call) for call in calls]:
            done.result(TIMEOUT_S)


def merged(figures: Iterable[dict[str, tuple[float, float]]]) -> dict[str, float]:
    """Return each figure, put together from those of the workers."""
    pairs: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for each in figures:
        for name, pair in each.items():
            pairs[name].append(pair)
    sums = {name: np.sum(found, axis=0) for name, found in pairs.items()}
    # no row may count, where the labels of all are ignored
    return {name: float(total / n) if n else 0.0 for name, (total, n) in sums.items()}
