"""Search for the best topologies and partitions of a job on a cluster, by simulation.

First a lower bound of each candidate's step time is computed, which is fast. The bound takes into account the
computation of the slowest worker, the updates of the busiest server, and the bytes of params on the network interfaces
of hosts. Then candidates are simulated in the order of their bounds, until no other candidate can be among the best.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple

from singa_dask.comm.message import Address
from singa_dask.conf import ClusterConf, JobConf, Phase
from singa_dask.errors import ConfigError
from singa_dask.inputs import InputLayer
from singa_dask.layers import LAYERS, Connection
from singa_dask.net import NeuralNet
from singa_dask.planner.model import Cluster, Costs, Prediction
from singa_dask.runtime.planning.job_plan import JobPlan
from singa_dask.runtime.planning.layout import Layout, plan_processes
from singa_dask.runtime.planning.nets import build_nets
from singa_dask.runtime.units.server import state_names
from singa_dask.training import UPDATERS

MAX_PARTED = 4
"""Maximum number of workers in a group whose net is partitioned by features. The number of bridges grows with its
square."""
MAX_STALE, MAX_GROUPS = 4, 16
"""With several worker groups: maximum number of workers in a group, and maximum number of groups (or the number of
hosts, if there are more)."""
MAX_UNITS = 256
"""The search simulates candidates of a kind until they have this many workers and servers together. In addition, it
simulates one candidate for each number of processes that is a power of two."""
N_STEPS = {True: 4, False: 8}
"""Number of simulated steps: of a synchronous candidate (True), whose steps are alike, and of other candidates
(False)."""
LIMITS = {"network": "network interface", "messages": "message thread", "update": "updates"}

CostsOf = Callable[[JobConf], Costs]


@dataclass(frozen=True)
class Candidate:
    """A topology and partition of a job, with its prediction.

    Attributes
    ----------
    job : JobConf
        The job with the candidate's ``cluster``, ``threads`` and ``partition_dim`` of layers.
    partition : str
        Name of the partition; see `partitions_of`.
    threads : int
        Number of threads of each worker.
    memory : int
        Bytes of memory that the largest process needs.
    limit : str
        The main bottleneck of a step.
    efficiency : float
        Samples per second per computing core, divided by this rate of the best synchronous candidate with one process.
    lost : float, optional
        Share of the time that is lost to failing processes and snapshots.
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
        """Whether there is only one worker group, so that no gradient is stale."""
        return self.job.cluster.nworker_groups == 1

    @property
    def rate(self) -> float:
        """Samples per second per computing core."""
        conf = self.job.cluster
        return self.prediction.samples_per_s / (conf.nworker_groups * conf.nworkers_per_group * self.threads)

    @property
    def topology(self) -> str:
        """The topology in words, e.g. ``1 x 4 workers, 1 x 2 servers apart``.

        "apart" means that servers have processes of their own.
        """
        conf = self.job.cluster
        workers = f"{conf.nworker_groups} x {conf.nworkers_per_group} workers"
        apart = " apart" if conf.server_worker_separate else ""
        return f"{workers}, {conf.nserver_groups} x {conf.nservers_per_group} servers{apart}"


class _Draft(NamedTuple):
    """A candidate before its simulation. ``bound_s`` is a lower bound of its step time in seconds."""

    bound_s: float
    partition: str
    job: JobConf
    plan: JobPlan
    threads: int
    memory: int


def search(
    job: JobConf, cluster: Cluster, costs: CostsOf, *, simulate: Callable[..., Prediction], n_best: int = 10
) -> list[Candidate]:
    """Return the simulated candidates, the best first.

    Synchronous candidates come first, by step time, then all others by samples per second.

    In all candidates, each worker group has the batch size of the job.

    Parameters
    ----------
    job : JobConf
        A job that trains on CPUs.
    costs : callable
        Takes the job with another cluster or partition; returns its `Costs`.
    simulate : callable
        The function `singa_dask.planner.simulation.simulate`.
    n_best : int
        For each kind, the search continues until the ``n_best`` best candidates are certain, or `MAX_UNITS` is
        exceeded.

    Raises
    ------
    ConfigError
        No candidate fits the cluster.
    """
    drafts, candidates = sorted(_Drafts(job, cluster, costs).all(), key=lambda draft: draft.bound_s), list[Candidate]()
    for is_synchronous in (True, False):
        times, seen, n_units = list[float](), set[int](), 0
        for draft in drafts:
            n, n_groups, layout = len(draft.plan.layout.processes), draft.job.cluster.nworker_groups, draft.plan.layout
            is_first = n not in seen and n & (n - 1) == 0
            is_over = n_units > MAX_UNITS or (len(times) >= n_best and draft.bound_s >= sorted(times)[n_best - 1])
            if (n_groups == 1) != is_synchronous or (is_over and not is_first):
                continue
            how = {"n_steps": N_STEPS[is_synchronous], "threads": draft.threads}
            found = simulate(draft.job, draft.plan, cluster, costs(draft.job), **how)
            seen.add(n)
            n_units += len(layout.units)
            times.append(found.step_s / n_groups)
            hosts = set(cluster.host_of[:n])
            limit = limit_of(found, layout, {cluster.hosts[host].speed for host in hosts})
            facts = (draft.job, layout, draft.partition, draft.threads, len(hosts), draft.memory)
            candidates.append(Candidate(*facts, found, limit))
    if not candidates:
        raise ConfigError(
            "no topology of this job fits the cluster: its hosts have too few cores or too little memory, or its "
            "Dask workers too few threads. A worker and a server together need a Dask worker with 2 threads "
            "(dask-worker --nthreads 2)."
        )
    alone = max(
        (each.rate for each in candidates if each.is_synchronous and len(each.layout.processes) == 1), default=0.0
    )
    candidates = [replace(each, efficiency=each.rate / (alone or each.rate)) for each in candidates]
    return sorted(
        candidates,
        key=lambda each: (
            not each.is_synchronous,
            each.prediction.step_s if each.is_synchronous else -each.prediction.samples_per_s,
        ),
    )


def limit_of(prediction: Prediction, layout: Layout, speeds: set[float]) -> str:
    """Return the main bottleneck of a step, in words. ``speeds`` are the different speeds of the hosts."""
    what = max(prediction.busy, key=lambda name: prediction.busy[name], default="compute")
    if prediction.waits.get("records", 0.0) > prediction.step_s / 4:
        return "reading"
    if what == "compute":
        return "straggler" if max(speeds) > 1.1 * min(speeds) else what
    busiest = layout.processes[prediction.bytes_sent.index(max(prediction.bytes_sent))]
    kind = "server" if any(unit.kind == "server" for unit in busiest) else "worker"
    return f"{LIMITS[what]} of a {kind}" if what in LIMITS else what


class _Drafts:
    """All candidates of a job on a cluster, with the lower bounds of their step times."""

    def __init__(self, job: JobConf, cluster: Cluster, costs: CostsOf) -> None:
        self._cluster, self._costs = cluster, costs
        self._job = job.model_copy(update={"test_freq": 0, "validate_freq": 0, "cluster": ClusterConf()})
        self._whole = build_nets(self._job)[Phase.TRAIN]
        self._jobs = {name: with_dims(job, dims) for name, dims in partitions_of(job, self._whole)}
        self._nets, self._compute_s = cache(self._build), cache(self._computed_s)

    def all(self) -> Iterator[_Draft]:
        """Yield the candidates that fit the cluster."""
        job = self._jobs[""]
        batch = max(layer.features[0].shape[0] for layer in self._whole.layers if isinstance(layer, InputLayer))
        for conf in topologies(job.cluster, self._cluster, batch):
            if [*conf.rules(), *job.model_copy(update={"cluster": conf}).rules()]:
                continue
            n_workers = conf.nworkers_per_group
            for partition in self._jobs if 1 < n_workers <= MAX_PARTED else [""]:
                try:
                    draft = self._draft(partition, self._jobs[partition].model_copy(update={"cluster": conf}))
                except ConfigError:
                    continue  # the net cannot be partitioned in this way
                if draft:
                    yield draft

    def _build(self, partition: str, n_workers: int) -> tuple[list[NeuralNet], list[int]]:
        """Return the nets of a group's workers, and the bytes of memory of each net.

        If all workers have equal nets, return one net.
        """
        layers, block = self._jobs[partition].neuralnet.layer, ClusterConf(nworkers_per_group=n_workers)
        job = self._job.with_layers(list(layers)).model_copy(update={"cluster": block})
        first = build_nets(job)[Phase.TRAIN]
        others = range(1, n_workers) if first.is_partitioned or first.context.proportions else ()
        nets = [first, *(build_nets(job, 0, worker)[Phase.TRAIN] for worker in others)]
        return nets, [net.memory_bytes() for net in nets]

    def _draft(self, partition: str, job: JobConf) -> _Draft | None:
        """Return the candidate for a job, with the number of threads that gives the lowest bound.

        Return None if the topology does not fit.
        """
        hosts, n = self._cluster.hosts, job.cluster.nworkers_per_group
        nets, n_bytes_of = self._nets(partition, n)
        plan = JobPlan.make(job, nets[0])
        n_arrays = 1 + len(state_names(UPDATERS.find(job.updater.type)(job.updater)))
        held = Counter[int]()  # server -> number of values that it holds
        for piece in plan.slices:
            held[piece.server] += piece.size
        n_workers, memory, largest = self._cluster.n_workers(plan.layout), Counter[int](), 0
        for host, units in zip(self._cluster.host_of, plan.layout.processes, strict=False):
            workers = [unit for unit in units if unit.kind == "worker"]
            n_bytes = sum(n_bytes_of[unit.id % len(nets)] for unit in workers)
            n_bytes += sum(n_arrays * plan.dtype.itemsize * held[unit.id] for unit in units[len(workers) :])
            memory[host] += n_bytes
            largest = max(largest, n_bytes)
        if any(n_workers[i] > hosts[i].n_cores or 0 < hosts[i].memory < memory[i] for i in memory):
            return None
        share = min(hosts[i].n_cores // k for i, k in n_workers.items())
        share = min(share, job.threads or share)
        placed = {(host, unit.id % len(nets)) for unit, host in self._workers(plan)}
        computed = {
            threads: max(self._compute_s(partition, n, i, threads) / hosts[host].speed for host, i in placed)
            for threads in {1, max(share // 2, 1), share}
        }
        threads = min(sorted(computed), key=computed.__getitem__)
        bound_s = max(computed[threads], self._served_s(nets[0], job, plan))
        job = job if threads == share else job.model_copy(update={"threads": threads})
        return _Draft(bound_s / job.cluster.nworker_groups, partition, job, plan, threads, largest)

    def _workers(self, plan: JobPlan) -> list[tuple[Address, int]]:
        """Return each worker with the index of its host."""
        of_process = zip(self._cluster.host_of, plan.layout.processes, strict=False)
        return [(unit, host) for host, units in of_process for unit in units if unit.kind == "worker"]

    def _computed_s(self, partition: str, n_workers: int, index: int, threads: int) -> float:
        """Return the time of a step of a worker, without waits."""
        net, costs = self._nets(partition, n_workers)[0][index], self._costs(self._jobs[partition])
        passes = [(layer, verb) for layer in net.layers for verb in ("forward", "backward")]
        return costs.step_s + sum(costs.layer_s(layer, verb, threads, threads) for layer, verb in passes)

    def _served_s(self, net: NeuralNet, job: JobConf, plan: JobPlan) -> float:
        """Return the longest time in a step for which any server or network interface is busy."""
        layout, cluster, bytes_in, update_s = plan.layout, self._cluster, Counter[int](), 0.0
        users = [frozenset(each.workers) for each in net.logical.values()]
        sizes: dict[int, dict[frozenset[int], list[int]]] = {}
        for piece in plan.slices:
            sizes.setdefault(piece.server, {}).setdefault(users[piece.param], []).append(piece.size)
        workers: dict[int, list[tuple[int, int]]] = {}
        for unit, host in self._workers(plan):
            workers.setdefault(unit.group, []).append((unit.id, host))
        for server in (unit for unit in layout.units if unit.kind == "server"):
            home = cluster.host_of[layout.process_of[server]]
            groups = [each for group, each in workers.items() if layout.server_group_of(group) == server.group]
            of_server = sizes.get(server.id, {})
            seconds = self._costs(job).update_s([size for each in of_server.values() for size in each], 1) * len(groups)
            update_s = max(update_s, seconds / cluster.hosts[home].speed)
            for members, each in of_server.items():
                n_bytes = sum(each) * plan.dtype.itemsize
                for group in groups:
                    others = {host for i, host in group if not members or i in members} - {home}
                    # each other host receives the values once, and sends the sum of its gradients to the server's host
                    bytes_in.update(dict.fromkeys(others, n_bytes))
                    bytes_in[home] += n_bytes * bool(others)
        return max(update_s, max(bytes_in.values(), default=0) / cluster.between.bytes_per_s)


def with_dims(job: JobConf, dims: dict[int, int]) -> JobConf:
    """Return a job with new values of ``partition_dim``, given by index of the layer."""
    layers = list(job.neuralnet.layer)
    for i, dim in dims.items():
        layers[i] = layers[i].model_copy(update={"partition_dim": dim})
    return job.with_layers(layers)


def partitions_of(job: JobConf, net: NeuralNet) -> Iterator[tuple[str, dict[int, int]]]:
    """Yield each partition to consider: its name, and the values of ``partition_dim`` that it changes.

    The values are by index of the layer.

    - ``""``: the job's own partition.
    - ``batch``: all layers are partitioned by records.
    - ``feature``: layers with more params than input and output values are partitioned by features, and so are
      elementwise layers that read them; all other layers are partitioned by records. After Krizhevsky (2014), "One
      weird trick for parallelizing convolutional neural networks".
    """
    yield "", {}
    layers = job.neuralnet.layer
    if any(layer.location is not None for layer in layers):
        return
    dims = [job.neuralnet.partition_dim if layer.partition_dim is None else layer.partition_dim for layer in layers]
    large = {
        layer.conf_name
        for layer in net.layers
        if layer.speed.feature_parallel is Connection.ONE_TO_ALL
        and sum(param.size for param in layer.params)
        > sum(feature.shape[0] * feature.size for feature in (*layer.sources, *layer.features))
    }
    cut = set(large)
    for layer in [*layers] * len(large):  # repeat the loop, because a job may list a layer before its source
        if LAYERS.find(layer.type).speed.feature_parallel is Connection.ONE_TO_ONE and cut & {*layer.srclayers}:
            cut.add(layer.name)
    for name, wanted in (("batch", set()), ("feature", cut)):
        changed = {i: int(layer.name in wanted) for i, layer in enumerate(layers) if dims[i] != (layer.name in wanted)}
        if changed and (wanted or name == "batch"):
            yield name, changed


def topologies(conf: ClusterConf, cluster: Cluster, batch: int) -> Iterator[ClusterConf]:
    """Yield ``cluster`` blocks with all topologies to consider.

    Servers share processes with workers, or have separate processes.

    The number of workers in a group divides the batch. The number of worker groups is a power of two or the number of
    hosts. The number of servers in own processes is a power of two.
    """
    n_slots, cores = len(cluster.host_of), max(host.n_cores for host in cluster.hosts)
    n_cores, powers = sum(host.n_cores for host in cluster.hosts), [1 << i for i in range(n_slots.bit_length())]
    n_hosts = len(cluster.hosts)
    for n_groups in sorted({n for n in (*powers, n_hosts) if n <= max(n_hosts, MAX_GROUPS)}):
        most = n_cores // n_groups if n_groups == 1 else min(n_cores // n_groups, MAX_STALE)
        for n in [n for n in range(1, min(batch, most) + 1) if batch % n == 0]:
            total = n_groups * n
            for per_process in [k for k in range(1, min(total, cores) + 1) if total % k == 0]:
                n_processes = total // per_process
                servers = [(1, 1, False), (1, n_processes, False), *((1, m, True) for m in powers if m <= n_processes)]
                servers += [(n_groups, 1, False)] if n_processes == n_groups > 1 else []
                for n_server_groups, n_servers, separate in dict.fromkeys(servers):
                    keys = {
                        "nworker_groups": n_groups, "nworkers_per_group": n, "nworkers_per_procs": per_process,
                        "nserver_groups": n_server_groups, "nservers_per_group": n_servers, "nservers_per_procs": 1,
                        "server_worker_separate": separate,
                    }  # fmt: skip
                    found = conf.model_copy(update=keys)
                    layout = plan_processes(found)
                    if len(layout.processes) <= n_slots and cluster.fits(layout):
                        yield found
