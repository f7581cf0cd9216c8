"""Search: the topologies and partitions that a job can have on a cluster, and the best of them by simulation.

Each has a bound that is quickly computed: a step takes no less than its slowest worker computes, and than the network
interfaces of hosts need for the params. They are simulated in the order of their bounds, until none that is left can be
among the best.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

from singa_dask.conf import ClusterConf, JobConf, Phase
from singa_dask.errors import ConfigError
from singa_dask.layers import LAYERS, Connection, InputLayer
from singa_dask.net import NeuralNet
from singa_dask.planner.model import Cluster, Costs, Prediction
from singa_dask.runtime.planning.nets import build_nets
from singa_dask.runtime.planning.placement import JobPlan, Layout, plan_processes
from singa_dask.training import UPDATERS

MAX_PARTED = 8
"""Most workers of a group whose net is cut by features: bridges grow with the square of their number."""
MAX_UNITS, N_STEPS = 400, 8
"""Workers and servers of each kind of candidates that are simulated, beside one of each power of two of processes."""

CostsOf = Callable[[JobConf], Costs]
Simulate = Callable[..., Prediction]


@dataclass(frozen=True)
class Candidate:
    """A topology and partition of a job, and what they take.

    Attributes
    ----------
    job : JobConf
        With its ``cluster``, ``threads`` and ``partition_dim`` of layers.
    layout : Layout
    partition : str
        What the partition is called; empty if it is what the job says.
    threads : int
        Of each worker.
    n_hosts : int
    memory : int
        Bytes of the process that needs most.
    prediction : Prediction
    limit : str
        What a step waits for most.
    efficiency : float
        Samples per second and core, by those of the best candidate with one process.
    lost : float, optional
        Part of the time that processes which end, and snapshots, cost.
    """

    job: JobConf
    layout: Layout
    partition: str
    threads: int
    n_hosts: int
    memory: int
    prediction: Prediction
    limit: str
    efficiency: float = 1.0
    lost: float | None = None

    @property
    def is_synchronous(self) -> bool:
        """Whether one worker group trains, so that no gradient is stale."""
        return self.job.cluster.nworker_groups == 1

    @property
    def rate(self) -> float:
        """Samples per second and core that computes."""
        n_workers = sum(unit.kind == "worker" for unit in self.layout.units)
        return self.prediction.samples_per_s / (n_workers * self.threads)

    @property
    def topology(self) -> str:
        """Groups x workers, groups x servers, and whether these are apart."""
        conf = self.job.cluster
        workers = f"{conf.nworker_groups} x {conf.nworkers_per_group} workers"
        servers = f"{conf.nserver_groups} x {conf.nservers_per_group} servers"
        return f"{workers}, {servers}{' apart' if conf.server_worker_separate else ''}"


class _Draft(NamedTuple):
    """A candidate that is not simulated yet; ``bound_s`` are seconds of a step, by worker groups."""

    bound_s: float
    partition: str
    job: JobConf
    plan: JobPlan
    threads: int
    memory: int


def search(
    job: JobConf, cluster: Cluster, costs: CostsOf, *, simulate: Simulate, n_best: int = 10
) -> list[Candidate]:
    """Return candidates that were simulated, the best first: synchronous ones by the time of a step, then the others.

    All have the batch that the job says in each worker group. Of each number of processes one at least is simulated.

    Parameters
    ----------
    job : JobConf
        One that trains on CPUs.
    cluster : Cluster
    costs : callable
        (job with another cluster or partition) -> `Costs`.
    simulate : callable
        See `singa_dask.planner.simulation.simulate`.
    n_best : int
        How many of each kind are to be the best ones there are.

    Raises
    ------
    ConfigError
        Nothing fits the cluster.
    """
    drafts = sorted(_Drafts(job, cluster, costs).all(), key=lambda draft: draft.bound_s)
    candidates: list[Candidate] = []
    for is_synchronous in (True, False):
        steps: list[float] = []
        seen: set[int] = set()
        n_units = 0
        for draft in drafts:
            conf, n = draft.job.cluster, len(draft.plan.layout.processes)
            enough = len(steps) >= n_best and draft.bound_s >= sorted(steps)[n_best - 1]
            is_first = n not in seen and n & (n - 1) == 0
            if (conf.nworker_groups == 1) != is_synchronous or (
                not is_first and (enough or n_units > MAX_UNITS)
            ):
                continue
            seen.add(n)
            n_units += len(draft.plan.layout.units)
            found = simulate(
                draft.job, draft.plan, cluster, costs(draft.job), n_steps=N_STEPS, threads=draft.threads
            )
            steps.append(found.step_s / conf.nworker_groups)
            layout, n_hosts = draft.plan.layout, len(set(cluster.host_of[:n]))
            limit = limit_of(found, layout, {cluster.hosts[host].speed for host in cluster.host_of[:n]})
            candidates.append(Candidate(draft.job, layout, draft.partition, draft.threads, n_hosts, draft.memory, found, limit))
    if not candidates:
        raise ConfigError("no topology of this job fits the cluster: its hosts have too few cores, or too little memory.")
    alone = max((each.rate for each in candidates if len(each.layout.processes) == 1), default=0.0)
    candidates = [replace(each, efficiency=each.rate / (alone or each.rate)) for each in candidates]
    return sorted(candidates, key=lambda each: (not each.is_synchronous, each.prediction.step_s / each.job.cluster.nworker_groups))


def limit_of(prediction: Prediction, layout: Layout, speeds: set[float]) -> str:
    """Return what a step waits for most, in words; ``speeds`` are those of the hosts."""
    what = max(prediction.busy, key=lambda name: prediction.busy[name], default="compute")
    if prediction.waits.get("records", 0.0) > prediction.step_s / 4:
        return "reading"
    if what == "compute":
        return "straggler" if max(speeds) > 1.1 * min(speeds) else what
    sent = prediction.bytes_sent
    units = layout.processes[max(range(len(sent)), key=sent.__getitem__)] if sent else ()
    kind = "server" if any(unit.kind == "server" for unit in units) else "worker"
    names = {"network": "network interface", "messages": "message thread", "update": "updates"}
    return f"{names[what]} of a {kind}" if what in names else what


class _Drafts:
    """All candidates of a job on a cluster, with their bounds."""

    def __init__(self, job: JobConf, cluster: Cluster, costs: CostsOf) -> None:
        self._job, self._cluster, self._costs = job, cluster, costs
        self._values = job.model_dump(mode="json")
        self._compute = cache(self._computed)

    def all(self) -> Iterator[_Draft]:
        """Yield those that fit the cluster."""
        partitions = dict(partitions_of(self._job))
        for conf in topologies(self._job.cluster, self._cluster, self._batch()):
            values = {**self._values, "cluster": conf.model_dump(mode="json")}
            if next(iter(JobConf.rules(values)), None):
                continue
            for partition in partitions if conf.nworkers_per_group > 1 else [""]:
                if partition and conf.nworkers_per_group > MAX_PARTED:
                    continue
                try:
                    yield from self._drafts(partition, with_dims(self._job, partitions[partition]), conf)
                except ConfigError:
                    continue  # the net cannot be cut so

    def _batch(self) -> int:
        net = build_nets(self._job.model_copy(update={"cluster": ClusterConf()}))[Phase.TRAIN]
        return max(layer.features[0].shape[0] for layer in net.all_layers if isinstance(layer, InputLayer))

    def _drafts(self, partition: str, job: JobConf, conf: ClusterConf) -> Iterator[_Draft]:
        """Yield a topology with some numbers of threads, if it fits."""
        job = job.model_copy(update={"cluster": conf})
        net = self._nets(partition, conf.nworkers_per_group)[0]
        plan = JobPlan.make(job, net)
        hosts, n_workers = self._cluster.hosts, Counter[int]()
        memory: dict[int, int] = defaultdict(int)
        largest = 0
        for host, units in zip(self._cluster.host_of, plan.layout.processes, strict=False):
            n_bytes = sum(self._bytes_of(unit.kind, unit.id, partition, job, plan) for unit in units)
            n_workers[host] += sum(unit.kind == "worker" for unit in units)
            memory[host] += n_bytes
            largest = max(largest, n_bytes)
        if any(n > hosts[host].n_cores or memory[host] > (hosts[host].memory or memory[host]) for host, n in n_workers.items()):
            return
        share = min(hosts[host].n_cores // n for host, n in n_workers.items() if n)
        share = min(share, self._job.threads or share)
        bounds = {threads: self._bound_s(partition, plan, threads) for threads in {share, max(share // 2, 1), 1}}
        threads = min(bounds, key=lambda n: (bounds[n], n))
        said = job if threads == share else job.model_copy(update={"threads": threads})
        yield _Draft(bounds[threads] / conf.nworker_groups, partition, said, plan, threads, largest)

    @cache
    def _nets(self, partition: str, n_workers: int) -> list[NeuralNet]:
        """Return the nets of the workers of a group; of one if all have the same layers."""
        job = with_dims(self._job, dict(partitions_of(self._job))[partition])
        job = job.model_copy(update={"cluster": ClusterConf(nworkers_per_group=n_workers), "test_freq": 0, "validate_freq": 0})
        first = build_nets(job)[Phase.TRAIN]
        others = range(1, n_workers) if first.is_partitioned or first.context.shares else ()
        return [first, *(build_nets(job, 0, worker)[Phase.TRAIN] for worker in others)]

    def _bytes_of(self, kind: str, index: int, partition: str, job: JobConf, plan: JobPlan) -> int:
        """Return the memory of a worker, or of a server beside the params: the state of its slices."""
        nets = self._nets(partition, job.cluster.nworkers_per_group)
        if kind == "worker":
            return nets[index % len(nets)].memory_bytes()
        n_states = len(UPDATERS.find(job.updater.type)(job.updater).state_names) + 1
        n_states += (job.updater.accumulate > 1) + (job.updater.ema_decay > 0)
        return plan.dtype.itemsize * n_states * sum(piece.size for piece in plan.slices if piece.server == index)

    def _computed(self, partition: str, n_workers: int, worker: int, threads: int) -> float:
        """Return the time of the layers of a worker with no other beside."""
        net = self._nets(partition, n_workers)[worker]
        costs = self._costs(with_dims(self._job, dict(partitions_of(self._job))[partition]))
        return sum(costs.layer_s(layer, verb, threads, threads) for layer in net.layers for verb in ("forward", "backward"))

    def _bound_s(self, partition: str, plan: JobPlan, threads: int) -> float:
        layout, cluster = plan.layout, self._cluster
        conf = layout.cluster
        n_nets = len(self._nets(partition, conf.nworkers_per_group))
        host_of = {unit: cluster.host_of[process] for unit, process in layout.process_of.items()}
        compute = max(
            self._compute(partition, conf.nworkers_per_group, unit.id % n_nets, threads) / cluster.hosts[host].speed
            for unit, host in host_of.items()
            if unit.kind == "worker"
        )
        if plan.tree is None and n_nets > 1:
            return compute
        # values of each slice have to reach, once, each host with a worker group that its server is not on
        bytes_in: Counter[int] = Counter()
        groups = {(host, unit.group) for unit, host in host_of.items() if unit.kind == "worker"}
        of_server: Counter[int] = Counter()
        for piece in plan.slices:
            of_server[piece.server] += piece.size * plan.dtype.itemsize
        for unit, home in host_of.items():
            if unit.kind != "server":
                continue
            served = {(host, group) for host, group in groups if layout.server_group_of(group) == unit.group}
            for host, _ in served:
                bytes_in[host] += of_server[unit.id] if host != home else 0
            # and its gradient this one
            bytes_in[home] += of_server[unit.id] * len({group for host, group in served if host != home})
        return max(compute, max(bytes_in.values(), default=0) / cluster.between.bytes_per_s)


def with_dims(job: JobConf, dims: Mapping[int, int]) -> JobConf:
    """Return a job with another ``partition_dim`` of some layers, by their place."""
    layers = [
        layer.model_copy(update={"partition_dim": dims[i]}) if i in dims else layer
        for i, layer in enumerate(job.neuralnet.layer)
    ]
    return job.with_layers(layers) if dims else job


def partitions_of(job: JobConf) -> Iterator[tuple[str, dict[int, int]]]:
    """Yield names of partitions, and in them the ``partition_dim`` of the layers, by place, that the job does not have so.

    ``""`` is that of the job. In ``feature`` the layers are cut by features that have most of the params, fully
    connected ones, and those that work value by value on what they give; the others by records, as Krizhevsky (2014)
    has it, "One weird trick for parallelizing convolutional neural networks".
    """
    yield "", {}
    layers = job.neuralnet.layer
    if any(layer.location is not None for layer in layers):
        return
    dims = [job.neuralnet.partition_dim if layer.partition_dim is None else layer.partition_dim for layer in layers]
    large = {layer.conf_name for layer in _large_layers(job)}
    for _ in layers:  # what follows them, layer by layer
        large |= {
            layer.name
            for layer in layers
            if LAYERS.find(layer.type).traits.feature_parallel is Connection.ONE_TO_ONE and {*layer.srclayers} & large
        }
    wanted = {"batch": [0] * len(layers), "feature": [int(layer.name in large) for layer in layers]}
    for name, chosen in wanted.items():
        changed = {i: dim for i, (dim, before) in enumerate(zip(chosen, dims, strict=True)) if dim != before}
        if changed and (name == "batch" or large):
            yield name, changed


def _large_layers(job: JobConf) -> list[Any]:
    """Return the layers that can be cut by features and have more params than they read and write values."""
    net = build_nets(job.model_copy(update={"cluster": ClusterConf(), "test_freq": 0, "validate_freq": 0}))[Phase.TRAIN]
    return [
        layer
        for layer in net.all_layers
        if layer.traits.feature_parallel is Connection.ONE_TO_ALL
        and sum(param.size for param in layer.params)
        > sum(feature.shape[0] * feature.size for feature in (*layer.sources, *layer.features))
    ]


def topologies(conf: ClusterConf, cluster: Cluster, batch: int) -> Iterator[ClusterConf]:
    """Yield the ``cluster`` blocks to look at: the keys of a topology, the others as they are.

    Groups share the batch among numbers of workers that divide it; worker groups and servers apart are powers of two.
    """
    n_slots, cores = len(cluster.host_of), max(host.n_cores for host in cluster.hosts)
    n_cores = sum(host.n_cores for host in cluster.hosts)
    powers = [1 << i for i in range(n_slots.bit_length())]
    sizes = [n for n in range(1, min(batch, n_cores) + 1) if batch % n == 0]
    groups = sorted({*powers, len(cluster.hosts)})
    for n_groups in groups:
        for n in sizes if n_groups == 1 else [n for n in sizes if n <= 4]:
            total = n_groups * n
            for per_process in [k for k in range(1, min(total, cores) + 1) if total % k == 0 and total <= n_cores]:
                n_processes = total // per_process
                keys = {"nworker_groups": n_groups, "nworkers_per_group": n, "nworkers_per_procs": per_process}
                beside = [(1, m, False) for m in sorted({1, n_processes})]
                apart = [(1, m, True) for m in powers if m <= n_processes]
                own = [(n_groups, 1, False)] if n_groups > 1 and n_processes == n_groups else []
                for n_server_groups, n_servers, separate in (*beside, *apart, *own):
                    if n_processes + separate * n_servers > n_slots:
                        continue
                    servers = {"nserver_groups": n_server_groups, "nservers_per_group": n_servers, "nservers_per_procs": 1}
                    yield conf.model_copy(update={**keys, **servers, "server_worker_separate": separate})
