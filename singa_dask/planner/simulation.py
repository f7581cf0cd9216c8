"""Simulation: training steps of a job on a cluster in virtual time, by the code of the run time itself.

Routers, stubs, servers, exchanges, algorithms and bridges are those of a job. What is simulated is below them: arrays are
phantoms, layers and updates take the time that `Costs` says, and threads, cores and the network are those of
`virtual_time`. So who sends what to whom, and when, cannot differ from what a job does.

Reading, snapshots and the loss of processes are not simulated, nor are GPUs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from statistics import median
from typing import Any, cast

import numpy as np

from singa_dask.comm.message import Address, Message
from singa_dask.comm.stub import Stub
from singa_dask.comm.transport import Transport
from singa_dask.conf import JobConf, Phase
from singa_dask.errors import ClusterError
from singa_dask.layers import Layer
from singa_dask.layers.base import run_verb
from singa_dask.layers.connection import Bridge
from singa_dask.layers.feature import RecordIds
from singa_dask.net import NeuralNet
from singa_dask.planner.model import Cluster, Costs, Link, Prediction
from singa_dask.planner.phantoms import Meter, Phantom, PhantomOps, PhantomUpdater
from singa_dask.planner.virtual_time import Clock, CodeThread, Cores, Network, SerialThread, Thread, VirtualWait
from singa_dask.runtime.planning import placement
from singa_dask.runtime.planning.nets import build_net
from singa_dask.runtime.planning.placement import JobPlan
from singa_dask.runtime.units.router import Coordinator, Mailbox, Router
from singa_dask.runtime.units.server import Server, UpdateCounts
from singa_dask.runtime.units.trainer import group_rows
from singa_dask.runtime.units.unit_host import MAX_OWN_VALUES, is_own_server, make_server, make_stub
from singa_dask.runtime.units.worker import Lockstep
from singa_dask.runtime.units.worker_params import WorkerParams
from singa_dask.training import ALGORITHMS

FIRST_STEPS = 1
"""Steps before those that are counted: the first one of a job may send more."""


def simulate(
    job: JobConf,
    plan: JobPlan,
    cluster: Cluster,
    costs: Costs,
    *,
    n_steps: int = 20,
    threads: int | None = None,
    trace: bool = False,
) -> Prediction:
    """Predict what the steps of a job take on a cluster.

    Parameters
    ----------
    job : JobConf
    plan : JobPlan
        Of the job.
    cluster : Cluster
    costs : Costs
    n_steps : int
        Number of steps, at least 2. The first quarter of them is not timed.
    threads : int, optional
        Of each worker, as the run time chooses them if not given.
    trace : bool
        Whether to return the events of the last step.

    Raises
    ------
    ClusterError
        The cluster has fewer processes than the job.
    ConfigError
        The net is mistaken.
    """
    if n_steps < 2:
        raise ValueError(f"n_steps: expected at least 2, got {n_steps}.")
    n_processes = len(plan.layout.processes)
    if len(cluster.host_of) < n_processes:
        raise ClusterError(f"the job needs {n_processes} processes, and the cluster has {len(cluster.host_of)}.")
    simulation = _Simulation(job, plan, cluster, costs, n_steps, threads, trace)
    try:
        return simulation.run()
    finally:
        for worker in simulation.workers:
            worker.thread.stop()


class _Stub(Stub):
    """A stub whose messages are counted."""

    meter: Meter

    def handle(self, message: Message) -> list[Message]:
        self.meter.n_messages += max(len(message.parts), 1)
        return super().handle(message)


class _Process:
    """A process of the job: its stub and router, and the thread for its messages, which is its `Transport`, too.

    Attributes
    ----------
    sent_bytes, n_sent : int
        To other processes.
    """

    peers: list[_Process]

    def __init__(
        self, index: int, job: JobConf, plan: JobPlan, cores: Cores, cluster: Cluster, network: Network
    ) -> None:
        self.index, self.clock = index, cores.clock
        self.sent_bytes = self.n_sent = 0
        self.thread = SerialThread("messages", index, cores)
        self.stub = make_stub(_Stub, index, job, plan, self.clock.meter.array)
        self.stub.meter = self.clock.meter
        layout = plan.layout
        self.router = Router(index, layout, self.stub, {}, Coordinator({}), _fail, tree=plan.way)
        self.router.connect([str(process) for process in range(len(layout.processes))])
        self.router.transport = cast(Transport, self)
        self._cluster, self._network = cluster, network

    def send(self, address: str, message: Message) -> None:
        """Send a message to another process."""
        n_bytes = message.n_bytes
        self.sent_bytes += n_bytes
        self.n_sent += 1
        is_own = self.clock.thread is self.thread  # which need not be woken
        self.clock.effect(partial(self._write, int(address), message, n_bytes, is_own))

    def _write(self, to: int, message: Message, n_bytes: int, is_own: bool) -> None:
        hosts, clock = self._cluster.host_of, self.clock
        link = self._cluster.within if hosts[self.index] == hosts[to] else self._cluster.between
        left = [1, 2]

        def arrive() -> None:
            left.pop()
            if not left:
                self.peers[to].receive(message, link, n_bytes)

        # bytes travel while they are written; the last one leaves at the end
        self.thread.put(
            "send",
            link.sent_s + n_bytes * link.sent_byte_s,
            lambda: clock.after(link.latency_s, arrive),
            0.0 if is_own else clock.costs.woken_s,
            lambda: self._network.carry(self.index, to, n_bytes, arrive),
        )

    def receive(self, message: Message, link: Link, n_bytes: int) -> None:
        """Read a message that has come, and deliver it."""
        seconds = link.received_s + n_bytes * link.received_byte_s
        self.thread.put("receive", seconds, lambda: self.router.receive(self._read(message)), 0.0)

    def _read(self, message: Message) -> Message:
        """Return a message with its arrays where the stub wants them, as `Message.from_header` does."""
        meter, parts = self.clock.meter, tuple(map(self._read, message.parts))
        arrays: tuple[Any, ...] = tuple(meter.array(array.shape, array.dtype) for array in message.arrays)
        bare = replace(message, parts=parts, arrays=())
        if len(arrays) == 1 and isinstance(buffer := self.stub.receive_buffer(bare), Phantom):
            arrays = (buffer,)
        return replace(bare, arrays=arrays)


def _fail(failure: Mapping[str, Any], tell: bool) -> None:
    raise RuntimeError(f"a simulated process failed: {failure['reason']}")


class _ServerThread:
    """The thread of a server, which is its inbox, too."""

    def __init__(self, address: Address, job: JobConf, plan: JobPlan, process: _Process, cores: Cores) -> None:
        meter = cores.clock.meter
        self.server = make_server(address, job, plan, process.stub, PhantomOps(meter))
        self.server.updater = PhantomUpdater(job.updater, meter)
        self.thread = SerialThread(str(address), process.index, cores)
        self._clock, self._process = cores.clock, process
        process.router.inboxes[address] = cast(Any, self)

    def begin(self, groups: Collection[int], plan: JobPlan) -> None:
        """Take initial values from each of the worker groups, in no time."""
        address = self.server.address
        for group in groups:
            for piece in plan.slices:
                if piece.server == address.id:
                    info = {"group": group, "in_place": True}
                    self.server.handle(Message("put", address, address, slice=piece.id, version=0, info=info))

    def put(self, message: Message) -> None:
        """Take a message once the thread is free."""
        self._clock.effect(
            lambda: self.thread.put("update", 0.0, lambda: self._handle(message), self._clock.costs.woken_s)
        )

    def _handle(self, message: Message) -> None:
        self._clock.meter.n_messages += max(len(message.parts), 1)
        for answer in self.server.handle(message):
            self._process.router.post(answer)


class _TimedNet:
    """A net whose layers only take time, but for the bridges to other workers."""

    def __init__(self, net: NeuralNet, worker: _Worker) -> None:
        self._net, self._worker = net, worker

    def __getattr__(self, name: str) -> Any:
        return getattr(self._net, name)

    def forward(self, layer: Layer, phase: Phase) -> None:
        """Run a layer forward."""
        self._run(layer, phase, "forward")

    def backward(self, layer: Layer, phase: Phase) -> None:
        """Run a layer backward."""
        self._run(layer, phase, "backward")

    def _run(self, layer: Layer, phase: Phase, verb: str) -> None:
        if isinstance(layer, Bridge):
            run_verb(layer, phase, verb)
        else:
            self._worker.compute(layer, verb)


class _Worker:
    """A worker: its thread, and what it does there.

    Attributes
    ----------
    ends : list of float
        Time of the end of each step.
    waits : dict of str to VirtualWait
        Where it waits, by what for.
    """

    def __init__(
        self,
        address: Address,
        job: JobConf,
        plan: JobPlan,
        process: _Process,
        cores: Cores,
        n_threads: int,
        n_steps: int,
        own_server: Server | None,
    ) -> None:
        self.address = address
        self.ends: list[float] = []
        self._clock, self._router, self._n_threads, self._n_steps = cores.clock, process.router, n_threads, n_steps
        self.waits = {name: VirtualWait(cores.clock) for name in ("params", "group")}
        meter, params_wait = cores.clock.meter, self.waits["params"]
        self.net = build_net(job, Phase.TRAIN, PhantomOps(meter), address.group, address.id, params_wait)
        mailbox = Mailbox(address, self._post, self.waits["group"])
        self.net.context.exchange = process.router.mailboxes[address] = mailbox
        self.net.allocate()
        for feature in (feature for layer in self.net.layers for feature in layer.features):
            labels, ids = (meter.array(feature.shape[0], dtype) for dtype in (np.int32, np.int64))
            feature.records = RecordIds(labels, ids, ids)
            if not feature.has_data:  # its layer would set it
                feature.data = self.net.ops.features(feature.shape, feature.dtype)
        is_own = own_server is not None and sum(owner.size for owner in self.net.owners) <= MAX_OWN_VALUES
        find = (lambda: own_server) if is_own else (lambda: None)
        self._params = WorkerParams(address, self.net, plan, process.stub, self._post, own_server=find)
        for owner in self.net.owners:
            owner.version = 0
        net, conf = cast(NeuralNet, _TimedNet(self.net, self)), job.train_one_batch
        self._algorithm = ALGORITHMS.find(conf.alg)(net, self._params.collect, self._params.update, conf)
        self._lockstep = Lockstep(self.net)
        self.thread = CodeThread(str(address), process.index, cores, self._live)
        for wait in self.waits.values():
            wait.thread = self.thread

    def _post(self, message: Message) -> None:
        self.thread.play(partial(self._router.post, message))

    def compute(self, layer: Layer, verb: str) -> None:
        """Spend the time of a layer."""
        n = self._n_threads
        seconds = self._clock.costs.layer_s(layer, verb, n, self.thread.cores.n_busy(n))
        self.thread.compute(f"{layer.name} {verb}", n, seconds)

    def _live(self) -> None:
        for step in range(FIRST_STEPS + self._n_steps):
            if step == FIRST_STEPS:
                self.thread.pause()
            self._lockstep.step()
            self._algorithm.train_one_batch(step)
            self._params.flush()
            self.thread.compute("step", 1, self._clock.costs.step_s)
            self.ends.append(self._clock.now)


class _Simulation:
    """All units of a job."""

    def __init__(
        self,
        job: JobConf,
        plan: JobPlan,
        cluster: Cluster,
        costs: Costs,
        n_steps: int,
        n_threads: int | None,
        trace: bool,
    ) -> None:
        self.workers: list[_Worker] = []
        self._plan, self._n_steps, self._meter = plan, n_steps, Meter()
        self._clock = clock = Clock(costs, self._meter, trace)
        self._network = Network(clock, cluster)
        layout, hosts = plan.layout, cluster.host_of
        cores = [Cores(clock, host) for host in cluster.hosts]
        self._processes: list[_Process] = []
        for index in range(len(layout.processes)):
            process = _Process(index, job, plan, cores[hosts[index]], cluster, self._network)
            process.peers = self._processes
            self._processes.append(process)
        self._servers: list[_ServerThread] = []
        for address, index in layout.process_of.items():
            if address.kind == "server":
                process = self._processes[index]
                self._servers.append(_ServerThread(address, job, plan, process, cores[hosts[index]]))
        n_workers = Counter(hosts[index] for unit, index in layout.process_of.items() if unit.kind == "worker")
        own_server = self._servers[0].server if is_own_server(job, plan) else None
        for address, index in layout.process_of.items():
            if address.kind == "worker":
                host = hosts[index]
                n = n_threads or placement.n_threads(job, n_workers[host], n_cores=cluster.hosts[host].n_cores)
                process = self._processes[index]
                self.workers.append(_Worker(address, job, plan, process, cores[host], n, n_steps, own_server))

    def run(self) -> Prediction:
        """Do the steps."""
        layout, groups = self._plan.layout, range(self._plan.layout.cluster.nworker_groups)
        for each in self._servers:
            served = [group for group in groups if layout.server_group_of(group) == each.server.address.group]
            each.begin(served, self._plan)
        self._meter.clear()
        self._do_steps(FIRST_STEPS)
        started = self._clock.now
        before = [(process.sent_bytes, process.n_sent) for process in self._processes]
        self._forget()
        self._do_steps(FIRST_STEPS + self._n_steps)
        sent = [
            (round((process.sent_bytes - n_bytes) / self._n_steps), round((process.n_sent - n) / self._n_steps))
            for process, (n_bytes, n) in zip(self._processes, before, strict=True)
        ]
        n_skipped = FIRST_STEPS + max(self._n_steps // 4, 1)
        durations, rate = list[float](), 0.0
        for group in groups:
            workers = [worker for worker in self.workers if worker.address.group == group]
            ends = [max(times) for times in zip(*(worker.ends for worker in workers), strict=True)][n_skipped - 1 :]
            durations += [end - start for start, end in pairwise(ends)]
            seconds = ends[-1] - ends[0]
            rate += group_rows(workers[0].net) * (len(ends) - 1) / seconds if seconds else math.inf
        slowest = max(self.workers, key=lambda worker: worker.thread.busy_s)
        return Prediction(
            step_s=median(durations),
            samples_per_s=rate,
            bytes_sent=tuple(n_bytes for n_bytes, _ in sent),
            messages_sent=tuple(n for _, n in sent),
            busy=self._busy(max(worker.ends[-1] for worker in self.workers) - started),
            waits={name: wait.waited_s / self._n_steps for name, wait in slowest.waits.items()},
            staleness=self._staleness(),
            trace=tuple(self._last_step()),
        )

    def _do_steps(self, n: int) -> None:
        """Have all workers do steps until they have done ``n``, and all that follows from these."""
        for worker in self.workers:
            self._clock.after(0.0, worker.thread.resume)
        self._clock.run()
        if stuck := [str(worker.address) for worker in self.workers if len(worker.ends) < n]:
            raise RuntimeError(f"the simulated job hangs: {', '.join(stuck)} wait for what nobody sends.")

    def _forget(self) -> None:
        """Forget what was measured so far."""
        self._network.busy_s.clear()
        for thread in self._threads():
            thread.busy_s = 0.0
        for worker in self.workers:
            for wait in worker.waits.values():
                wait.waited_s = 0.0
        for each in self._servers:
            each.server.counts = UpdateCounts()
        if self._clock.events is not None:
            self._clock.events.clear()

    def _threads(self) -> Iterator[Thread]:
        for each in (*self.workers, *self._servers, *self._processes):
            yield each.thread

    def _busy(self, seconds: float) -> dict[str, float]:
        times = {
            "compute": [worker.thread.busy_s for worker in self.workers],
            "update": [each.thread.busy_s for each in self._servers],
            "messages": [process.thread.busy_s for process in self._processes],
            "network": list(self._network.busy_s.values()),
        }
        return {name: max(busy, default=0.0) / seconds if seconds else 0.0 for name, busy in times.items()}

    def _staleness(self) -> float:
        reports = [each.server.counts.report() for each in self._servers]
        n = sum(sum(report["staleness"].values()) for report in reports)
        return sum(report["staleness_sum"] for report in reports) / n if n else 0.0

    def _last_step(self) -> Iterator[dict[str, object]]:
        """Yield the events of the last step of the first worker."""
        start, end = self.workers[0].ends[-2:]
        for thread, what, since, until in self._clock.events or ():
            if since < end and until > start:
                times = {"ts": 1e6 * (since - start), "dur": 1e6 * (until - since)}
                yield {"name": what, "ph": "X", **times, "pid": thread.process, "tid": thread.name}
