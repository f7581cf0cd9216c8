"""Simulate jobs with very many processes.

The module `simulation` simulates each message. In this module, one event stands for many messages: all messages of a
bucket (gradients that are sent together) at one height of the process tree. Times are arrays with an element for each
process.

Both modules compute the same bytes and numbers of messages, except for a bucket with small and large slices, whose
number of messages depends on their order. Times differ, because here the messages of an event are sequential, all
processes send in the same order, and message threads have cores of their own.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from itertools import count
from statistics import mean
from typing import Any, NamedTuple, cast

import numpy as np

from singa_dask.comm.exchange import PartialSum
from singa_dask.comm.message import Address, Message
from singa_dask.comm.tree import FUSED_BYTES, ProcessTree, TreeExchange
from singa_dask.conf import JobConf, Phase
from singa_dask.layers import Layer, Param
from singa_dask.net import NeuralNet
from singa_dask.planner.model import Cluster, Costs, Prediction
from singa_dask.planner.phantoms import Meter, PhantomOps, replace_layers
from singa_dask.planner.reading import N_AHEAD, rows_read
from singa_dask.runtime.planning import machine
from singa_dask.runtime.planning.job_plan import JobPlan
from singa_dask.runtime.planning.nets import build_net
from singa_dask.runtime.units.worker_metrics import group_rows
from singa_dask.training import ALGORITHMS

Vector = np.ndarray[Any, Any]


def is_for_many(job: JobConf, plan: JobPlan) -> bool:
    """Return whether `Many` supports a job: one worker per process, a tree, and no clipped gradients."""
    has_tree = plan.tree is not None and plan.tree.n_processes == job.cluster.nworkers_per_group
    return has_tree and not job.updater.clip_norm


class _Sends(NamedTuple):
    """Messages that are sent at one height of the tree. Arrays have an element for each pair of processes.

    ``src`` and ``dst`` are the senders and the receivers. A pack is one message that contains several; ``n_parts`` is
    the number of these. ``n_fused`` is the number of bytes of small slices, which are copied into one array.
    """

    src: Vector
    dst: Vector
    n_bytes: Vector
    n_messages: Vector
    n_parts: Vector
    n_fused: Vector

    @classmethod
    def of(cls, src: Vector, dst: Vector, n_bytes: Vector, source: Vector) -> _Sends:
        """Group slices by pairs of processes.

        For each pair, the large slices of one ``source`` are sent in one message. All small slices are copied into one
        array, which is sent together with large slices if they have the same source.
        """
        n = max(src.max(initial=0), dst.max(initial=0), source.max(initial=0)) + 1
        pairs, place = np.unique(src * n + dst, return_inverse=True)
        is_alone = n_bytes >= FUSED_BYTES
        n_alone, n_small, total, fused = (
            np.bincount(place, weights, len(pairs)).astype(np.int64)
            for weights in (is_alone, ~is_alone, n_bytes, n_bytes * ~is_alone)
        )
        n_messages = np.ones(len(pairs), np.int64)
        if is_alone.any():
            of_alone, of_small = (np.unique(place[which] * n + source[which]) for which in (is_alone, ~is_alone))
            n_messages = np.bincount(of_alone // n, minlength=len(pairs))
            n_messages[np.unique(np.setdiff1d(of_small, of_alone) // n)] += 1
        return cls(*np.divmod(pairs, n), total, n_messages, n_alone + (n_small > 0), fused * (n_small > 1))


class _Bucket:
    """Slices whose gradients leave a process together.

    Attributes
    ----------
    up : list of _Sends
        Messages with sums, for each height of the tree from the bottom.
    down : list of _Sends
        Messages with new values, for each height from the top.
    served : dict of (int, int) to list of int
        Sizes of slices, by (process at which their gradients are completely summed, process of their server).
    """

    def __init__(self, plan: JobPlan, tree: ProcessTree, numbers: Sequence[int]) -> None:
        slices = [plan.slices[number] for number in numbers]
        n_bytes = np.array([piece.size for piece in slices]) * plan.dtype.itemsize
        homes = [plan.layout.process_of[Address.server(0, piece.server)] for piece in slices]
        roots = [tree.root(piece.id, home) for piece, home in zip(slices, homes, strict=True)]
        self.served: dict[tuple[int, int], list[int]] = defaultdict(list)
        for piece, pair in zip(slices, zip(roots, homes, strict=True), strict=True):
            self.served[pair].append(piece.size)
        climbs = list(tree.climb(np.array(roots)))
        source = np.array(roots) * (max(homes) + 1) + homes
        self.up = [_Sends.of(here, to, n_bytes[index], 0 * index) for index, here, to in climbs]
        self.down = [_Sends.of(to, here, n_bytes[index], source[index]) for index, here, to in reversed(climbs)]


class _Recorder(TreeExchange):
    """Runs a worker's training algorithm for one step, and records actions instead of sending messages.

    Attributes
    ----------
    actions : list of (str, object)
        The actions of the step, in order: ``"compute"`` with a layer and a direction, ``"collect"`` with the index of a
        param, ``"send"`` with the index of a bucket.
    buckets : list of list of int
        The slices of each bucket.
    """

    def __init__(self, job: JobConf, plan: JobPlan, tree: ProcessTree, net: NeuralNet) -> None:
        n_bytes = [piece.size * plan.dtype.itemsize for piece in plan.slices]
        super().__init__(0, tree, [0] * len(n_bytes), n_bytes, n_bytes.__getitem__, Message)
        self.actions: list[tuple[str, Any]] = []
        self.buckets: list[list[int]] = []
        self._index = {name: index for index, name in enumerate(plan.names)}
        self._n_missing = {self._index[owner.key]: len(net.sharers(owner)) for owner in net.owners}
        self._slices: dict[int, dict[int, Any]] = defaultdict(dict)
        for piece in plan.slices:
            self._slices[piece.param][piece.id] = None
        replace_layers(net, lambda *work: self.actions.append(("compute", work)))
        conf = job.train_one_batch
        ALGORITHMS.find(conf.alg)(net, self._collect, self._take, conf).train_one_batch(0)
        self.flush(0)

    def _collect(self, param: Param) -> None:
        self.actions.append(("collect", self._index[param.owner.key]))

    def _take(self, step: int, param: Param) -> None:
        index = self._index[param.owner.key]
        self._n_missing[index] -= 1
        if not self._n_missing[index]:
            self.update(0, step, [PartialSum(1, [], self._slices[index], 1)])

    def _send(self, kind: str, step: int, totals: Mapping[int, Any]) -> list[Message]:
        if totals:
            self.actions.append(("send", len(self.buckets)))
            self.buckets.append(list(totals))
        return []


class Many:
    """Simulates all processes of a job for which `is_for_many` is true.

    See `simulate` for the parameters. All workers have the same share of the batch as the first one.
    """

    # arrays have one element per process, or one per host

    def __init__(self, job: JobConf, plan: JobPlan, cluster: Cluster, costs: Costs, threads: int | None) -> None:
        tree = plan.tree
        assert tree is not None
        self._n, self._way, self._costs, self._cluster = tree.n_processes, plan.way, costs, cluster
        self._net = build_net(job, Phase.TRAIN, PhantomOps(Meter()))
        self._net.allocate()
        recorder = _Recorder(job, plan, tree, self._net)
        self._buckets = [_Bucket(plan, tree, numbers) for numbers in recorder.buckets]
        self._bucket_of: dict[int, int] = {
            plan.slices[i].param: k for k, numbers in enumerate(recorder.buckets) for i in numbers
        }
        n_processes, n_hosts = len(plan.layout.processes), len(cluster.hosts)
        self._host = np.array(cluster.host_of[:n_processes])
        self._speed = np.array([cluster.hosts[host].speed for host in self._host])
        n_workers = cluster.n_workers(plan.layout)
        self._threads, share = [], np.ones(self._n)
        for process, host in enumerate(cluster.host_of[: self._n]):
            n_cores = cluster.hosts[host].n_cores
            n = threads or machine.n_threads(job, n_workers[host], n_cores=n_cores)
            self._threads.append((n, min(n * n_workers[host], n_cores)))
            share[process] = min(1.0, n_cores / (n * n_workers[host]))
        self._worker_speed = self._speed[: self._n] * share
        self._actions = [(what, self._seconds(*x) if what == "compute" else x) for what, x in recorder.actions]
        # the time of a step outside of layers is spent before the first backward pass, before gradients are sent
        turn = next((i for i, (what, x) in enumerate(recorder.actions) if what == "compute" and x[1] == "backward"), 0)
        self._actions.insert(turn, ("compute", costs.step_s / self._worker_speed))
        self._free, self._server_free, self._messages_s, self._update_s = np.zeros((4, n_processes))
        self._out_free, self._in_free, self._network_s = np.zeros((3, n_hosts))
        self._now, self._computed_s = np.zeros((2, self._n))
        self._waits = {name: np.zeros(self._n) for name in ("params", "records")}
        self._values_at = np.zeros((len(self._buckets), n_processes))
        rows, rate = rows_read(self._net), cluster.read_bytes_per_s
        n_bytes = rows * costs.record_bytes * np.array([n_workers[host] for host in self._host[: self._n]])
        seconds = np.array([costs.read_s(rows, kind[1]) for kind in self._threads]) / self._speed[: self._n]
        self._read_s = np.maximum(seconds, n_bytes / rate if rate else 0.0)
        self._taken, self._records_at = np.zeros((N_AHEAD, self._n)), np.zeros(self._n)

    def _seconds(self, layer: Layer, verb: str) -> Vector:
        """Return the time of a pass of a layer in each process."""
        seconds = {kind: self._costs.layer_s(layer, verb, *kind) for kind in set(self._threads)}
        return np.array([seconds[kind] for kind in self._threads]) / self._worker_speed

    def run(self, n_steps: int) -> Prediction:
        """Simulate ``n_steps`` steps."""
        ends = [self._do_step() for _ in range(n_steps)]
        n_skipped = max(n_steps // 4, 1)
        step_s = mean(np.diff(ends[n_skipped - 1 :]).tolist())
        n_sent = np.zeros((2, len(self._host)), np.int64)
        for bucket in self._buckets:
            for sends in (*bucket.up, *bucket.down, *self._served(bucket)):
                for which, here, _ in self._hops(sends):
                    np.add.at(n_sent[0], here, sends.n_bytes[which])
                    np.add.at(n_sent[1], here, sends.n_messages[which])
        slowest = int(self._computed_s.argmax())
        busy = {"compute": self._computed_s, "update": self._update_s, "messages": self._messages_s}
        busy |= {"network": self._network_s, "reading": self._read_s * n_steps}
        return Prediction(
            step_s=step_s,
            samples_per_s=group_rows(self._net) / step_s if step_s else np.inf,
            bytes_sent=tuple(n_sent[0].tolist()),
            messages_sent=tuple(n_sent[1].tolist()),
            busy={name: float(times.max()) / ends[-1] if ends[-1] else 0.0 for name, times in busy.items()},
            waits={name: float(waited_s[slowest]) / n_steps for name, waited_s in self._waits.items()} | {"group": 0.0},
        )

    def _do_step(self) -> float:
        """Simulate a step; return the time at which the last worker ends it."""
        begin = np.zeros((len(self._buckets), len(self._host)))
        self._take_records()
        for what, about in self._actions:
            if what == "compute":
                self._now += about
                self._computed_s += about
            elif what == "send":
                begin[about, : self._n] = self._now
            elif (bucket := self._bucket_of.get(cast(int, about))) is not None:  # None for an untrained param
                at = self._values_at[bucket, : self._n]
                at = np.where(at > self._now, at + self._costs.woken_s, self._now)
                self._waits["params"] += at - self._now
                self._now = at
        self._exchange(begin)
        return float(self._now.max())

    def _take_records(self) -> None:
        """Make workers wait for the records of a batch. Records are read at most `N_AHEAD` batches ahead."""
        self._records_at = np.maximum(self._records_at, self._taken[0]) + self._read_s
        started, self._now = self._now, np.maximum(self._now, self._records_at)
        self._waits["records"] += self._now - started
        self._taken = np.vstack([self._taken[1:], self._now])

    def _exchange(self, at: Vector) -> None:
        """Simulate sending gradients up the tree and values down, in the order in which they are ready.

        ``at`` has the time at which each bucket leaves each process.
        """
        self._values_at, number = at, count()
        events = [(at[k, : self._n].mean(), next(number), k, 0) for k in range(len(at))]
        heapq.heapify(events)
        at += self._costs.woken_s
        while events:
            _, _, k, stage = heapq.heappop(events)
            bucket = self._buckets[k]
            if stage < len(bucket.up):
                self._carry(bucket.up[stage], at[k], adds=True)
            elif stage == len(bucket.up):
                self._serve(bucket, at[k])
            else:
                self._carry(bucket.down[stage - len(bucket.up) - 1], at[k])
            if stage < 2 * len(bucket.up):
                heapq.heappush(events, (at[k, : self._n].mean(), next(number), k, stage + 1))

    def _serve(self, bucket: _Bucket, at: Vector) -> None:
        """Simulate the updates of a bucket's slices on servers, in the order in which their sums arrive."""
        to, back = self._served(bucket)
        came = {(src, dst): time for src, dst, time in zip(to.src, to.dst, self._carry(to, at), strict=True)}
        ready = {pair: came.get(pair, at[pair[0]]) + self._costs.woken_s for pair in bucket.served}
        for pair in sorted(ready, key=ready.__getitem__):
            (root, home), sizes = pair, bucket.served[pair]
            seconds = len(sizes) * self._costs.handled_s + self._costs.update_s(sizes, 1)
            seconds /= self._speed[home]
            self._server_free[home] = ready[pair] = max(ready[pair], self._server_free[home]) + seconds
            self._update_s[home] += seconds
            at[root] = max(at[root] if root == home else 0.0, ready[pair] + self._costs.woken_s)
        if len(to.src):
            at[back.src] = [ready[root, home] for home, root in zip(back.src, back.dst, strict=True)]
            self._carry(back, at)

    def _served(self, bucket: _Bucket) -> tuple[_Sends, _Sends]:
        """Return the messages of a bucket to servers that are in other processes, and the answers."""
        apart = [(*pair, sizes) for pair, sizes in bucket.served.items() if pair[0] != pair[1]]
        itemsize = self._net.context.param_dtype.itemsize
        rows = [(root, home, itemsize * sum(sizes), 1, len(sizes), 0) for root, home, sizes in apart]
        src, dst, *more = np.array(rows, np.int64).reshape(-1, 6).T
        return _Sends(src, dst, *more), _Sends(dst, src, *more)

    def _carry(self, sends: _Sends, at: Vector, adds: bool = False) -> Vector:
        """Simulate messages; return the time at which each message arrives.

        Messages of one process, or over one network interface, are sequential.

        Parameters
        ----------
        at : (n_processes,) float64
            The time at which each process is ready to send. For receivers, updated in place to the time at which all
            messages have arrived.
        adds : bool
            Whether receivers add up the arrays.
        """
        copied_s = self._costs.copied_byte_s(1)
        handled_s = sends.n_parts * self._costs.handled_s + (sends.n_bytes if adds else sends.n_fused) * copied_s
        came: Vector = at[sends.src] + sends.n_fused * copied_s / self._speed[sends.src]
        for which, here, to in self._hops(sends):
            leg = _Sends(here, to, *(each[which] for each in sends[2:]))
            came[which] = self._hop(leg, came[which], handled_s[which] * (to == sends.dst[which]))
        np.maximum.at(at, sends.dst, came)
        return came

    def _hops(self, sends: _Sends) -> Iterator[tuple[Vector, Vector, Vector]]:
        """Yield, for each hop, the indices of the messages under way, where they are, and where they go next."""
        which, here = np.arange(len(sends.src)), sends.src
        while len(which):
            last = sends.dst[which]
            to = last if self._way is None else self._way.hop(here, last)
            yield which, here, to
            which, here = which[to != last], to[to != last]

    def _hop(self, sends: _Sends, ready: Vector, handled_s: Vector) -> Vector:
        src, dst, n_bytes, n_messages, *_ = sends
        within, between = self._cluster.within, self._cluster.between
        hosts = self._host[src], self._host[dst]
        is_within = hosts[0] == hosts[1]

        latency_s, bytes_per_s, sent_s, received_s, sent_byte_s, received_byte_s = (
            np.where(is_within, *pair) for pair in zip(astuple(within), astuple(between), strict=True)
        )
        seconds = n_messages * sent_s + n_bytes * sent_byte_s
        begin, written = _in_turn(src, ready, seconds / self._speed[src], self._free, self._messages_s)
        on_way = n_bytes / bytes_per_s
        arrived = begin + on_way + within.latency_s
        out, into = (each[~is_within] for each in hosts)
        start, _ = _in_turn(out, begin[~is_within], on_way[~is_within], self._out_free, self._network_s)
        start += between.latency_s
        into_s = np.zeros_like(self._in_free)
        arrived[~is_within] = _in_turn(into, start, on_way[~is_within], self._in_free, into_s)[1]
        arrived = np.maximum(arrived, written + latency_s)
        seconds = n_messages * received_s + n_bytes * received_byte_s + handled_s
        return _in_turn(dst, arrived, seconds / self._speed[dst], self._free, self._messages_s)[1]


def _in_turn(who: Vector, ready: Vector, seconds: Vector, free: Vector, busy_s: Vector) -> tuple[Vector, Vector]:
    """Assign resources to jobs, one after the other in the order of ``ready``; return start and end times.

    Parameters
    ----------
    who : (n_jobs,) int
        The resource that each job needs.
    ready : (n_jobs,) float64
        The time at which each job is ready.
    seconds : (n_jobs,) float64
        The duration of each job.
    free : (n_resources,) float64
        The time from which each resource is free; updated in place.
    busy_s : (n_resources,) float64
        The total time for which each resource was busy; updated in place.
    """
    order = np.lexsort((ready, who))
    begin, end = np.empty_like(ready), np.empty_like(ready)
    first = np.searchsorted(who[order], who[order])
    rank = np.arange(len(who)) - first
    for k in range(int(rank.max(initial=-1)) + 1):
        those = order[rank == k]
        begin[those] = np.maximum(ready[those], free[who[those]])
        end[those] = free[who[those]] = begin[those] + seconds[those]
        busy_s[who[those]] += seconds[those]
    return begin, end
