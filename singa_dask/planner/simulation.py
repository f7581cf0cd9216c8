"""Simulate training steps of a job on a cluster in virtual time, with the code of the runtime.

Routers, stubs, servers, exchanges, algorithms and bridges run the same code as in a job, so messages are the same as in
a job. Only the parts below them are simulated: arrays are phantoms, layers and updates take the time in `Costs`, and
`virtual_time` provides threads, cores and the network.

Not simulated are snapshots, the loss of processes (see `failures`), and GPUs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import pairwise
from statistics import mean
from typing import Any, cast

import numpy as np

from singa_dask.comm.message import Address, Message
from singa_dask.comm.stub import Stub
from singa_dask.conf import JobConf, Phase
from singa_dask.errors import ClusterError
from singa_dask.layers import Layer
from singa_dask.layers.feature import RecordIds
from singa_dask.planner.many import Many, is_for_many
from singa_dask.planner.model import Cluster, Costs, Link, Prediction
from singa_dask.planner.phantoms import Meter, Phantom, PhantomOps, PhantomUpdater, replace_layers
from singa_dask.planner.reading import N_AHEAD, rows_read
from singa_dask.planner.virtual_time import CodeThread, Cores, Network, SerialThread, Thread, VirtualClock, VirtualWait
from singa_dask.runtime.planning import machine
from singa_dask.runtime.planning.job_plan import JobPlan
from singa_dask.runtime.planning.nets import build_net
from singa_dask.runtime.units.barrier_coordinator import BarrierCoordinator
from singa_dask.runtime.units.lockstep import Lockstep
from singa_dask.runtime.units.mailbox import Mailbox
from singa_dask.runtime.units.router import Router
from singa_dask.runtime.units.server import UpdateCounts
from singa_dask.runtime.units.unit_host import calls_server, make_server, make_stub
from singa_dask.runtime.units.worker_metrics import group_rows
from singa_dask.runtime.units.worker_params import WorkerParams
from singa_dask.training import ALGORITHMS

MAX_PROCESSES = 64
"""Jobs with more processes are simulated by `Many`, without single messages, if `Many` supports them."""
FIRST_STEPS = 1
"""Number of steps that are not counted, because the first step of a job may send more messages."""


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
    """Predict the steps of a job on a cluster.

    Parameters
    ----------
    plan : JobPlan
        Plan of the job.
    n_steps : int
        Number of steps, at least 4. The first quarter of the steps is not timed.
    threads : int, optional
        Number of threads of each worker. By default, the number that the runtime would choose.
    trace : bool
        Whether to return the events of the last step. Each message is then simulated, even if there are many
        processes.

    Raises
    ------
    ClusterError
        The cluster has fewer processes than the job.
    """
    n_processes = len(plan.layout.processes)
    if n_steps < 4:
        raise ValueError(f"n_steps: expected at least 4, got {n_steps}.")
    if len(cluster.host_of) < n_processes:
        raise ClusterError(f"the job needs {n_processes} processes, and the cluster has {len(cluster.host_of)}.")
    if n_processes > MAX_PROCESSES and is_for_many(job, plan) and not trace:
        found = Many(job, plan, cluster, costs, threads).run(n_steps)
    else:
        simulation = _Simulation(job, plan, cluster, VirtualClock(costs, Meter(), trace), n_steps, threads)
        try:
            found = simulation.run()
        finally:
            for worker in simulation.workers:
                worker.thread.stop()
    is_crowded = _is_crowded(job, plan, cluster, threads)
    factor = costs.crowding(job.cluster.nworker_groups) if is_crowded else 1.0
    return replace(found, step_s=factor * found.step_s, samples_per_s=found.samples_per_s / factor)


def _is_crowded(job: JobConf, plan: JobPlan, cluster: Cluster, threads: int | None) -> bool:
    """Return whether any host has several processes whose workers use all cores of the host."""
    n_processes = Counter(cluster.host_of[: len(plan.layout.processes)])

    def has_all_cores(home: int, n: int) -> bool:
        n_cores = cluster.hosts[home].n_cores
        return n * (threads or machine.n_threads(job, n, n_cores=n_cores)) >= n_cores

    return any(n_processes[home] > 1 and has_all_cores(home, n) for home, n in cluster.n_workers(plan.layout).items())


class _Stub(Stub):
    """A stub that counts the messages that it handles."""

    meter: Meter

    def handle(self, message: Message) -> list[Message]:
        self.meter.n_messages += max(len(message.parts), 1)
        return super().handle(message)


class _Process:
    """A simulated process with its stub, its router and its message thread.

    The object is also the router's `Transport`.

    ``n_sent`` has the numbers of bytes and of messages sent to other processes so far.
    """

    def __init__(self, index: int, job: JobConf, plan: JobPlan, cores: Cores, network: Network) -> None:
        self.index, self.cores, self.clock, self.n_sent = index, cores, cores.clock, np.zeros(2, np.int64)
        self.thread = SerialThread("messages", index, cores)
        self.stub = make_stub(_Stub, index, job, plan, self.clock.meter.array)
        self.stub.meter = self.clock.meter
        self.router = Router(index, plan.layout, self.stub, {}, BarrierCoordinator({}), _fail, tree=plan.way)
        self.router.connect([str(process) for process in range(len(plan.layout.processes))])
        self.router.transport = cast(Any, self)
        self.peers: list[_Process] = []
        self.network = network

    def send(self, address: str, message: Message) -> None:
        """Send a message to another process, as `Transport.send` does."""
        to, n_bytes = int(address), message.n_bytes
        self.n_sent += n_bytes, 1
        link, clock = self.network.link(self.index, to), self.clock
        wake_s = 0.0 if clock.thread is self.thread else clock.costs.woken_s
        left = [1, 2]

        def arrive() -> None:
            left.pop()
            if not left:
                self.peers[to].receive(message, link, n_bytes)

        # a message has arrived once its last byte, which leaves at the end of the transfer, has arrived
        begin = partial(self.network.carry, self.index, to, n_bytes, arrive)
        end = partial(clock.after, link.latency_s, arrive)
        clock.effect(partial(self.thread.put, "send", link.sent_s + n_bytes * link.sent_byte_s, begin, end, wake_s))

    def receive(self, message: Message, link: Link, n_bytes: int) -> None:
        """Spend the time to read a message that has arrived, then deliver it."""
        seconds = link.received_s + n_bytes * link.received_byte_s
        self.thread.put("receive", seconds, _nothing, lambda: self.router.receive(self._read(message)))

    def _read(self, message: Message) -> Message:
        """Return a message whose arrays are in the receive buffers of the stub, as `Message.from_header` does."""
        meter, parts = self.clock.meter, tuple(map(self._read, message.parts))
        arrays: tuple[Any, ...] = tuple(meter.array(array.shape, array.dtype) for array in message.arrays)
        bare = replace(message, parts=parts, arrays=())
        if len(arrays) == 1 and isinstance(buffer := self.stub.receive_buffer(bare), Phantom):
            arrays = (buffer,)
        return replace(bare, arrays=arrays)


def _fail(failure: Mapping[str, Any], tell: bool) -> None:
    raise RuntimeError(f"a simulated process failed: {failure['reason']}")


def _nothing() -> None:
    pass


class _Server:
    """A simulated server and its thread. The object is also the inbox of the server."""

    def __init__(self, address: Address, job: JobConf, plan: JobPlan, process: _Process) -> None:
        self._clock, self._router, meter = process.clock, process.router, process.clock.meter
        self.server = make_server(address, job, plan, process.stub, PhantomOps(meter))
        self.server.updater = PhantomUpdater(job.updater, meter)
        self.thread = SerialThread(str(address), process.index, process.cores)
        process.router.inboxes[address] = cast(Any, self)
        for group in range(job.cluster.nworker_groups):  # send initial values
            for piece in plan.slices if plan.layout.server_group_of(group) == address.group else ():
                if piece.server == address.id:
                    info = {"group": group, "in_place": True}
                    self.server.handle(Message("put", address, address, slice=piece.id, version=0, info=info))

    def put(self, message: Message) -> None:
        """Handle a message once the thread of the server is free."""
        code, wake_s = partial(self._handle, message), self._clock.costs.woken_s
        self._clock.effect(partial(self.thread.put, "update", 0.0, _nothing, code, wake_s))

    def _handle(self, message: Message) -> None:
        self._clock.meter.n_messages += max(len(message.parts), 1)
        for answer in self.server.handle(message):
            self._router.post(answer)


class _Reader:
    """Reads the records of a worker ahead, in a simulated thread, which takes the time in `Costs`."""

    def __init__(self, name: str, rows: int, process: _Process, wait: VirtualWait) -> None:
        self.thread = SerialThread(f"prefetch-{name}", process.index, process.cores)
        self._rows, self._network, self._wait, self._clock = rows, process.network, wait, process.clock
        self._n_asked = self._n_read = self._n_taken = 0

    def take(self) -> None:
        """Wait for the records of a batch. The thread of the worker calls this method."""
        if self._rows and (self._clock.costs.record_bytes or self._clock.costs.read_s(self._rows, 1)):
            self._ask()
            self._wait.wait(lambda: self._n_read > self._n_taken, "records")
            self._n_taken += 1
            self._ask()

    def _ask(self) -> None:
        while self._n_asked < self._n_taken + N_AHEAD:
            self._n_asked += 1
            self._network.read(self.thread.cores, self._rows * self._clock.costs.record_bytes, self._decode)

    def _decode(self) -> None:
        seconds = self._clock.costs.read_s(self._rows, self.thread.cores.n_busy(1))
        self.thread.put("read", seconds, _nothing, self._add)

    def _add(self) -> None:
        self._n_read += 1
        self._wait.notify_all()


class _Worker:
    """A simulated worker and its thread.

    ``ends`` has the end time of each step, and ``waited_s`` the total waits up to these times, by cause.
    """

    def __init__(
        self,
        address: Address,
        job: JobConf,
        plan: JobPlan,
        process: _Process,
        n_threads: int,
        server: _Server,
    ) -> None:
        self.address, self._clock, self._router = address, process.clock, process.router
        self.ends: list[float] = []
        self._rest_s = 0.0
        self.waited_s: list[dict[str, float]] = []
        self.waits = {name: VirtualWait(self._clock) for name in ("params", "records", "group")}
        self._n_threads, self.n_due = n_threads, 0
        ops = PhantomOps(self._clock.meter)
        self.net = net = build_net(job, Phase.TRAIN, ops, address.group, address.id, self.waits["params"])
        self._router.mailboxes[address] = net.context.exchange = Mailbox(address, self._post, self.waits["group"])
        net.allocate()
        for feature in (feature for layer in net.layers for feature in layer.features):
            labels, ids = (ops.empty((feature.shape[0],), dtype) for dtype in (np.int32, np.int64))
            feature.records = RecordIds(labels, ids, ids)
            if not feature.has_data:  # a real layer would set its data itself
                feature.data = ops.features(feature.shape, feature.dtype)
        replace_layers(net, self._compute)
        own_server = server.server if calls_server(job, plan, sum(owner.size for owner in net.owners)) else None
        self._params = WorkerParams(address, net, plan, process.stub, self._post, own_server=lambda: own_server)
        for owner in net.owners:
            owner.version = 0
        conf = job.train_one_batch
        self._algorithm = ALGORITHMS.find(conf.alg)(net, self._params.collect, self._params.update, conf)
        self._lockstep = Lockstep(net)
        self.reader = _Reader(str(address), rows_read(net), process, self.waits["records"])
        self.thread = CodeThread(str(address), process.index, process.cores, self._live)
        for wait in self.waits.values():
            wait.thread = self.thread

    def _post(self, message: Message) -> None:
        self.thread.play(partial(self._router.post, message))

    def _compute(self, layer: Layer, verb: str) -> None:
        if verb == "backward":
            self._compute_rest()
        n = self._n_threads
        costs, n_beside = self._clock.costs, self._clock.n_running[self.thread.process]
        seconds = costs.layer_s(layer, verb, n, self.thread.cores.n_busy(n)) + n_beside * costs.pass_s
        self.thread.compute(f"{layer.name} {verb}", n, seconds)

    def _compute_rest(self) -> None:
        """Spend the time of a step outside of layers, once in each step, before gradients are sent."""
        rest_s, self._rest_s = self._rest_s, 0.0
        self.thread.compute("step", 1, rest_s)

    def _live(self) -> None:
        while True:
            while len(self.ends) == self.n_due:
                self.thread.pause()
            self._lockstep.step()
            self.reader.take()
            self._rest_s = self._clock.costs.step_s
            self._algorithm.train_one_batch(len(self.ends))
            self._params.flush()
            self._compute_rest()
            self.ends.append(self._clock.now)
            self.waited_s.append({name: wait.waited_s for name, wait in self.waits.items()})


class _Simulation:
    """Simulates all units of a job."""

    def __init__(
        self, job: JobConf, plan: JobPlan, cluster: Cluster, clock: VirtualClock, n_steps: int, n_threads: int | None
    ) -> None:
        self._layout, self._n_steps, self._clock = plan.layout, n_steps, clock
        self._network = Network(clock, cluster)
        cores = [Cores(clock, host) for host in cluster.hosts]
        homes = [cores[host] for host in cluster.host_of[: len(plan.layout.processes)]]
        self._processes = [_Process(i, job, plan, home, self._network) for i, home in enumerate(homes)]
        for process in self._processes:
            process.peers = self._processes
        units = [(unit, self._processes[index]) for unit, index in plan.layout.process_of.items()]
        self._servers = [_Server(unit, job, plan, process) for unit, process in units if unit.kind == "server"]
        workers = [(unit, process) for unit, process in units if unit.kind == "worker"]
        n_workers = cluster.n_workers(plan.layout)
        self.workers: list[_Worker] = []
        for unit, process in workers:
            home, n_cores = cluster.host_of[process.index], process.cores.host.n_cores
            n = n_threads or machine.n_threads(job, n_workers[home], n_cores=n_cores)
            self.workers.append(_Worker(unit, job, plan, process, n, self._servers[0]))
        clock.meter.clear()

    def run(self) -> Prediction:
        """Simulate the steps."""
        self._do_steps(FIRST_STEPS)
        started, before = self._clock.now, [process.n_sent.copy() for process in self._processes]
        self._network.busy_s.clear()
        for some in self._threads().values():
            for thread in some:
                thread.busy_s = 0.0
        for server in self._servers:
            server.server.counts = UpdateCounts()
        if self._clock.events:
            self._clock.events.clear()
        self._do_steps(self._n_steps)
        sent = np.array([now.n_sent - then for now, then in zip(self._processes, before, strict=True)]) / self._n_steps
        n_bytes, n_messages = np.rint(sent).astype(int).T.tolist()
        n_skipped = FIRST_STEPS + self._n_steps // 4
        durations, rate = list[float](), 0.0
        for group in range(self._layout.cluster.nworker_groups):
            workers = [worker for worker in self.workers if worker.address.group == group]
            ends = np.max([worker.ends[n_skipped - 1 :] for worker in workers], axis=0).tolist()
            durations += [end - start for start, end in pairwise(ends)]
            seconds = ends[-1] - ends[0]
            rate += group_rows(workers[0].net) * (len(ends) - 1) / seconds if seconds else math.inf
        slowest = max(self.workers, key=lambda worker: worker.thread.busy_s)
        waited, n_timed = slowest.waited_s, len(slowest.ends) - n_skipped
        return Prediction(
            step_s=mean(durations),
            samples_per_s=rate,
            bytes_sent=tuple(n_bytes),
            messages_sent=tuple(n_messages),
            busy=self._busy(self._clock.now - started),
            waits={name: (waited[-1][name] - waited[n_skipped - 1][name]) / n_timed for name in waited[-1]},
            staleness=self._staleness(),
            trace=tuple(self._last_step()),
        )

    def _do_steps(self, n: int) -> None:
        """Simulate ``n`` steps of all workers, until no events are left."""
        for worker in self.workers:
            worker.n_due += n
            self._clock.after(0.0, worker.thread.resume)
        self._clock.run()
        if stuck := [str(worker.address) for worker in self.workers if len(worker.ends) < worker.n_due]:
            raise RuntimeError(f"the simulated job hangs: {', '.join(stuck)} wait for messages that nobody sends.")

    def _threads(self) -> dict[str, list[Thread]]:
        threads: dict[str, list[Thread]] = {"compute": [worker.thread for worker in self.workers]}
        threads["update"] = [server.thread for server in self._servers]
        threads["reading"] = [worker.reader.thread for worker in self.workers]
        return threads | {"messages": [process.thread for process in self._processes]}

    def _busy(self, seconds: float) -> dict[str, float]:
        times = {name: [thread.busy_s for thread in some] for name, some in self._threads().items()}
        times["network"] = []
        for (way, *_), busy_s in self._network.busy_s.items():
            times["reading" if way == "read" else "network"].append(busy_s)
        return {name: max(busy, default=0.0) / seconds if seconds else 0.0 for name, busy in times.items()}

    def _staleness(self) -> float:
        reports = [each.server.counts.report() for each in self._servers]
        n = sum(sum(report["staleness"].values()) for report in reports)
        return sum(report["staleness_sum"] for report in reports) / n if n else 0.0

    def _last_step(self) -> Iterator[dict[str, Any]]:
        """Yield the events of the last step of the first worker."""
        start, end = self.workers[0].ends[-2:]
        for thread, what, since, until in self._clock.events or ():
            if since < end and until > start:
                times = {"ts": 1e6 * (since - start), "dur": 1e6 * (until - since)}
                yield {"name": what, "ph": "X", **times, "pid": thread.process, "tid": thread.name}
