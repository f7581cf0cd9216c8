"""Assign units to processes, and processes to Dask workers.

After SINGA's ``Cluster`` (src/utils/cluster.cc), with its rounding fixed: the last process may have fewer units than
the others.
"""

from __future__ import annotations

import contextlib
import math
import operator
import os
import resource
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import accumulate, chain, pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import ThreadpoolController, threadpool_limits

from singa_dask.comm.message import Address
from singa_dask.comm.slices import ParamSlice, slice_table
from singa_dask.comm.tree import ProcessTree
from singa_dask.conf import ClusterConf, JobConf, Phase, UpdaterConf
from singa_dask.errors import ClusterError, ConfigError, DeviceMemoryError, Problem
from singa_dask.layers.param import ParamShard
from singa_dask.net import NeuralNet
from singa_dask.ops import OPS, NumpyOps, get_ops
from singa_dask.ops.contract import Ops
from singa_dask.runtime.planning.nets import build_net, find_ops
from singa_dask.shown import plural

Gain = Callable[[Sequence[int], Sequence[str], Mapping[int, str]], np.ndarray]


@dataclass(frozen=True)
class Layout:
    """The units of a job, by process.

    Attributes
    ----------
    processes : tuple of tuple of Address
        Units of each process, workers before servers.
    cluster : ClusterConf
    """

    processes: tuple[tuple[Address, ...], ...]
    cluster: ClusterConf

    @cached_property
    def process_of(self) -> Mapping[Address, int]:
        """Process of each unit."""
        return {unit: process for process, units in enumerate(self.processes) for unit in units}

    @cached_property
    def units(self) -> tuple[Address, ...]:
        """All units, in the order of processes."""
        return tuple(chain.from_iterable(self.processes))

    @property
    def n_threads(self) -> int:
        """Number of threads that the largest process needs, one for each unit."""
        return max(len(units) for units in self.processes)

    @cached_property
    def groups_of(self) -> list[set[int]]:
        """Worker groups that make no step without a process, for each process: theirs, and those of its servers."""
        n_groups = self.cluster.nworker_groups
        of_servers = {unit.group for unit in self.units if unit.kind == "server"}
        users = {g: {n for n in range(n_groups) if self.server_group_of(n) == g} for g in of_servers}
        return [
            set().union(*({unit.group} if unit.kind == "worker" else users[unit.group] for unit in units))
            for units in self.processes
        ]

    def server_group_of(self, worker_group: int) -> int:
        """Return the server group that a worker group uses."""
        return worker_group // (self.cluster.nworker_groups // self.cluster.nserver_groups)

    def describe(self) -> dict[str, Any]:
        """Return the topology for the summary of a run."""
        conf = self.cluster
        return {
            "nworker_groups": conf.nworker_groups,
            "nworkers_per_group": conf.nworkers_per_group,
            "nserver_groups": conf.nserver_groups,
            "nservers_per_group": conf.nservers_per_group,
            "processes": [[str(unit) for unit in units] for units in self.processes],
        }


def plan_processes(cluster: ClusterConf) -> Layout:
    """Assign the workers and servers of a job to processes, according to its ``cluster`` block."""
    workers = [Address.worker(g, i) for g in range(cluster.nworker_groups) for i in range(cluster.nworkers_per_group)]
    servers = [Address.server(g, i) for g in range(cluster.nserver_groups) for i in range(cluster.nservers_per_group)]
    for_workers = _chunks(workers, cluster.nworkers_per_procs)
    for_servers = _chunks(servers, cluster.nservers_per_procs)
    if cluster.server_worker_separate:
        return Layout((*for_workers, *for_servers), cluster)
    n = max(len(for_workers), len(for_servers))
    padded = [chunks + [()] * (n - len(chunks)) for chunks in (for_workers, for_servers)]
    return Layout(tuple(a + b for a, b in zip(*padded, strict=True)), cluster)


def _chunks(units: Sequence[Address], size: int) -> list[tuple[Address, ...]]:
    return [tuple(units[start : start + size]) for start in range(0, len(units), size)]


def pack(layout: Layout, n: int) -> Layout:
    """Put the units of a layout on fewer processes.

    Consecutive processes are joined, whole, so that all have about the same number of units.

    Parameters
    ----------
    layout : Layout
    n : int
        Number of processes, at least 1. A layout with no more than ``n`` processes stays as it is.
    """
    if n < 1:
        raise ValueError(f"pack: expected at least one process, got {n}.")
    n_before = len(layout.processes)
    if n >= n_before:
        return layout
    ends = list(accumulate(len(units) for units in layout.processes))
    cuts = [0]
    for k in range(1, n):
        # at least one process for each part, before the cut and after it
        possible = range(cuts[-1] + 1, n_before - n + k + 1)
        cuts.append(min(possible, key=lambda cut: abs(n * ends[cut - 1] - k * ends[-1])))
    parts = [layout.processes[start:stop] for start, stop in pairwise([*cuts, n_before])]
    joined = [sorted(chain.from_iterable(part), key=lambda unit: unit.kind == "server") for part in parts]
    return Layout(tuple(map(tuple, joined)), layout.cluster)


class WorkerFacts(NamedTuple):
    """A Dask worker, as the scheduler knows it.

    Attributes
    ----------
    nthreads : int
    busy : int
        Threads that tasks of others occupy.
    host, name : str
    has_nanny : bool
        Whether somebody starts it again if it is lost.
    usable : bool
        Whether it takes tasks, and has been heard of in the last seconds.
    resources : mapping of str to float
        As it was started with.
    """

    nthreads: int
    busy: int
    host: str
    name: str
    has_nanny: bool = False
    usable: bool = True
    resources: Mapping[str, float] = MappingProxyType({})


def place(
    layout: Layout, workers: Mapping[str, WorkerFacts], gain: Gain | None = None, kept: Collection[str] = ()
) -> list[str]:
    """Choose a Dask worker for each process.

    Parameters
    ----------
    layout : Layout
    workers : mapping of str to WorkerFacts
        The Dask workers that can be used.
    gain : callable, optional
        (processes, Dask workers, those chosen so far by process) -> gain of placing each of the processes on each of
        the Dask workers, (processes, workers). It decides among the workers with enough threads.
    kept : collection of str
        Dask workers to prefer where there is no ``gain``.

    Returns
    -------
    list of str
        Address of the Dask worker of each process.

    Raises
    ------
    ClusterError
        The cluster is too small; the message has the numbers.
    """
    free = {address: known.nthreads - known.busy for address, known in workers.items()}
    order = sorted(free, key=lambda address: (-free[address], workers[address].name, address))
    needs = sorted(range(len(layout.processes)), key=lambda process: (-len(layout.processes[process]), process))
    chosen = dict(zip(needs, order, strict=False))
    short = [process for process in needs if free.get(chosen.get(process, ""), 0) < len(layout.processes[process])]
    if short:
        numbers = [len(units) for units in layout.processes]
        wanted = f"{plural(numbers[0], 'free thread')}{' each' * (len(numbers) > 1)}"
        if len({*numbers}) > 1:
            wanted = f"{', '.join(map(str, numbers))} free threads"
        there = ", ".join(f"{address}: {free[address]} of {workers[address].nthreads}" for address in order)
        matching = "" if layout.cluster.workers.is_any else " that match cluster.workers"
        whole = sorted((known.nthreads for known in workers.values()), reverse=True)
        sizes = [len(layout.processes[process]) for process in needs]
        fits_later = len(whole) >= len(sizes) and all(map(operator.ge, whole, sizes))
        needed = plural(len(layout.processes), "Dask worker")
        raise ClusterError(
            f"the job does not fit: it needs {needed} with {wanted}; "
            f"{len(workers)}{matching} can be used (free threads: {there or 'none'}). "
            f"{'It fits once others are done, for which run --queue waits. ' * fits_later}"
            f"Start more workers (dask-worker ADDRESS --nthreads {sizes[0]}), or change the job's cluster block."
        )
    if gain is not None:
        chosen = _prefer(layout, needs, order, free, gain)
    elif kept:
        # the first of either kind has most threads
        preferred, others = (deque(each for each in order if (each in kept) is one) for one in (True, False))
        for process in needs:
            fits = preferred and free[preferred[0]] >= len(layout.processes[process])
            chosen[process] = (preferred if fits else others).popleft()
    return [chosen[process] for process in range(len(layout.processes))]


def _prefer(
    layout: Layout, needs: Sequence[int], order: Sequence[str], free: Mapping[str, int], gain: Gain
) -> dict[int, str]:
    """Assign each process a Dask worker with enough threads, the greatest gain first.

    Larger processes come first: a worker that fits one of them fits every later one, so a job that fits at all fits
    with any preferences.
    """
    chosen: dict[int, str] = {}
    left, waiting = list(order), list(needs)
    while waiting:
        size = len(layout.processes[waiting[0]])
        alike = [process for process in waiting if len(layout.processes[process]) == size]
        fitting = [address for address in left if free[address] >= size]
        # of equal pairs it is the first, so without any gain the result is that without preferences
        i, k = divmod(int(np.argmax(gain(alike, fitting, chosen))), len(fitting))
        process, address = alike[i], fitting[k]
        chosen[process] = address
        waiting.remove(process)
        left.remove(address)
    return chosen


# Cores, threads and memory of a process.
#
# The limits here replace those of Dask's nannies, which start processes with one thread for every library.


LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Files with the memory limit of the control group of this process, for both versions of control groups."""


CGROUP = Path("/sys/fs/cgroup")
CGROUP_OF_PROCESS = Path("/proc/self/cgroup")
SCHEDULED = Path("/proc/thread-self/schedstat")
"""Nanoseconds that a thread has run and that it has waited to run, on Linux."""


def cpu_count() -> int:
    """Return the number of cores that this process may use, according to its affinity and its control group.

    ``dask.system.cpu_count`` returns the same, but importing Dask takes longer than validating a job.
    """
    count = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    group = _text_of(CGROUP_OF_PROCESS).rpartition(":")[2].lstrip("/")
    quotas = [_text_of(CGROUP / place / "cpu.max").split() for place in ("", group)]
    quotas += [[_text_of(CGROUP / "cpu,cpuacct" / f"cpu.cfs_{key}_us") for key in ("quota", "period")]]
    limits = [math.ceil(int(quota[0]) / int(quota[1])) for quota in quotas if "".join(quota).isdecimal()]
    return min([count, *limits])


def n_threads(job: JobConf, n_workers: int, n_on_gpus: int = 0, n_cores: int | None = None) -> int:
    """Return the number of threads of each of ``n_workers`` workers that share ``n_cores`` cores, or `cpu_count`.

    ``n_on_gpus`` of the workers take one thread each. Servers are not counted, as they work while workers wait. The
    number of threads that Dask has for tasks does not matter.
    """
    most = max(1, ((n_cores or cpu_count()) - n_on_gpus) // max(1, n_workers - n_on_gpus))
    return min(job.threads, most) if job.threads else most


def core_wait_s() -> float:
    """Return for how long this thread could run and had no core, in seconds; 0 where the system does not say."""
    _, _, rest = _text_of(SCHEDULED).partition(" ")
    return int(rest.split()[0]) / 1e9 if rest else 0.0


def machine_memory() -> int:
    """Return the number of bytes of memory that this process may use."""
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    limits = [int(text) for file in LIMITS if (text := _text_of(file)).isdecimal()]
    return min([pages, *limits])


def size_text(n_bytes: int) -> str:
    """Format a number of bytes, for example as ``"1.5 GiB"``."""
    size = float(n_bytes)
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            return f"{size:,.4g} {unit}"
        size /= 1024
    return f"{size:,.4g} PiB"


def _text_of(file: Path) -> str:
    try:
        return file.read_text().strip()
    except OSError:
        return ""


# limits of BLAS that hold in this process, and what ends the last of them
_lock, _asked, _restore = threading.Lock(), list[int](), ExitStack()


@contextmanager
def limit_process(n: int) -> Iterator[None]:
    """Limit BLAS to ``n`` threads in this process, until the context ends; of several limits the lowest holds."""
    with _lock:
        if not _asked:
            _restore.enter_context(threadpool_limits(n, user_api="blas"))
        _asked.append(n)
        threadpool_limits(min(_asked), user_api="blas")
    try:
        yield
    finally:
        with _lock:
            _asked.remove(n)
            if _asked:
                threadpool_limits(min(_asked), user_api="blas")
            else:
                _restore.close()


def limit_thread(n: int) -> AbstractContextManager[object]:
    """Limit loaded OpenMP libraries to ``n`` threads for calls from this thread, until the context ends."""
    limits: AbstractContextManager[object] = threadpool_limits(n, user_api="openmp")
    return limits


class ThreadPools:
    """The libraries with threads that are loaded now: to look for them takes longer than a small net."""

    def __init__(self) -> None:
        self._found = ThreadpoolController()

    def limit(self, n: int) -> AbstractContextManager[object]:
        """Do what `limit_process` and `limit_thread` do, in those of these libraries that have more threads."""
        larger = [each.filepath for each in self._found.lib_controllers if (each.num_threads or 0) > n]
        if not larger:
            return nullcontext()
        limits: AbstractContextManager[object] = self._found.select(filepath=larger).limit(limits=n)
        return limits


def peak_memory() -> int:
    """Return the peak memory of this process, in bytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most


# Devices and threads of the workers of a process, and the memory of its params.
#
# GPUs are assigned to the workers of a process in order, as in SINGA. Nothing here needs a GPU unless one is used.


VISIBLE = "CUDA_VISIBLE_DEVICES"
"""If this variable is set, for example by dask-cuda, a process has GPUs of its own, and starts with the first one."""


def is_gpu(name: str) -> bool:
    """Return whether a name for `get_ops` is that of a GPU."""
    return name.startswith("cuda:")


def n_on_gpus(job: JobConf, n_workers: int) -> int:
    """Return how many of the ``n_workers`` workers of a process compute on GPUs."""
    return n_workers if job.ops == "cupy" else min(len(job.gpu), n_workers)


def device_names(job: JobConf, n_workers: int, n_visible: int = 0, first: int = 0) -> list[str]:
    """Return the name for `get_ops` of each worker of one process.

    Parameters
    ----------
    job : JobConf
    n_workers : int
        Number of workers of this process.
    n_visible : int
        Number of GPUs that this process sees; used if the job does not list GPUs.
    first : int
        Number of workers of other processes that see the same GPUs and come before these.
    """
    if job.ops != "cupy":
        gpus = [f"cuda:{index}" for index in job.gpu[:n_workers]]
        return gpus + [job.ops] * (n_workers - len(gpus))
    if job.gpu:
        return [f"cuda:{job.gpu[i % len(job.gpu)]}" for i in range(n_workers)]
    # without any GPU the name is that of the first, and get_ops raises the error
    return [f"cuda:{(first + i) % max(n_visible, 1)}" for i in range(n_workers)]


def device_of_part(job: JobConf, index: int) -> str:
    """Return the name for `get_ops` of a part of an inference: parts take the job's GPUs in turn."""
    if job.ops == "cupy" and not job.gpu:
        return f"cuda:{index % max(OPS.find('cupy').count(), 1)}"
    return f"cuda:{job.gpu[index % len(job.gpu)]}" if job.gpu else job.ops


def params_stay(layout: Layout, names: Collection[str]) -> bool:
    """Return whether the params of a job stay on the one device that all its workers compute on.

    That is so if one process has all units, there is one server group, and all workers share the memory of one GPU.
    """
    cluster = layout.cluster
    alone = len(layout.processes) == cluster.nserver_groups == 1 and cluster.share_memory
    return alone and len(set(names)) == 1 and all(map(is_gpu, names))


class Devices:
    """Assigns kernels, threads and memory to the units of one process.

    Parameters
    ----------
    job : JobConf
    layout : Layout
    process : int
    neighbours : collection of int, optional
        Processes of the job on this host, itself among them. All, if not given.
    threads : int, optional
        Threads of each worker on the CPU, if they are not to be chosen by the cores of this host.

    Attributes
    ----------
    n_threads : int
        Threads of each worker on the CPU, and of BLAS calls for the whole process.
    """

    def __init__(
        self,
        job: JobConf,
        layout: Layout,
        process: int,
        neighbours: Collection[int] | None = None,
        threads: int | None = None,
    ) -> None:
        self.job = job
        self._planned = plan_processes(job.cluster)
        # index in the process where the job file puts a worker: its device is the same wherever it is
        self._index = {unit: i for units in self._planned.processes for i, unit in enumerate(_workers(units))}
        self._workers = _workers(layout.processes[process])
        neighbours = range(len(layout.processes)) if neighbours is None else neighbours
        beside = {each: _workers(layout.processes[each]) for each in neighbours}
        n_gpu = sum(self._is_on_gpu(worker) for workers in beside.values() for worker in workers)
        alone = bool(self._workers) and all(map(self._is_on_gpu, self._workers))
        self._n_beside = sum(map(len, beside.values()))
        self.n_threads = 1 if alone else threads or n_threads(job, self._n_beside, n_gpu)
        self._first = 0 if VISIBLE in os.environ else sum(len(beside[each]) for each in beside if each < process)
        self._names: dict[Address, str] = {}
        self._roots: dict[str, Ops] = {}
        self._lock = threading.Lock()

    def threads(self, worker: Address) -> int:
        """Return the number of threads of a worker: one if it computes on a GPU."""
        return 1 if self._is_on_gpu(worker) else self.n_threads

    def worker_bytes(self, limit: int | None) -> int:
        """Return a worker's share of the memory of this machine, or of the limit of the process if that is less."""
        share = machine_memory() // max(self._n_beside, 1)
        return min(share, limit // max(len(self._workers), 1)) if limit else share

    def _is_on_gpu(self, worker: Address) -> bool:
        return n_on_gpus(self.job, self._index[worker] + 1) > self._index[worker]

    @property
    def names(self) -> Mapping[Address, str]:
        """Name for `get_ops` of each worker of this process.

        Raises
        ------
        ConfigError
            The GPUs cannot be counted, as there is no CuPy.
        """
        if not self._names and self._workers:
            if self.job.gpu:
                names = [device_names(self.job, self._index[worker] + 1)[-1] for worker in self._workers]
            else:
                n_visible = OPS.find("cupy").count() if self.job.ops == "cupy" else 0
                names = device_names(self.job, len(self._workers), n_visible, self._first)
            self._names = dict(zip(self._workers, names, strict=True))
        return self._names

    @property
    def params_stay(self) -> bool:
        """Whether values of params, and updater state, are on the device that all workers use."""
        return params_stay(self._planned, self.names.values())

    def ops(self, unit: Address) -> Ops:
        """Return the kernels of a worker or a server, for use in its thread only.

        Raises
        ------
        ConfigError
            They cannot be used here; the message says what is missing.
        """
        if unit.kind == "worker":
            return self._root(self.names[unit]).for_thread()
        if self.params_stay:
            return self._root(self.names[self._workers[0]]).for_thread()
        return NumpyOps()

    def _root(self, name: str) -> Ops:
        with self._lock:
            if name not in self._roots:
                self._roots[name] = find_ops(self.job, name)
            return self._roots[name]

    def memory(self, size: int, dtype: Any) -> Any:
        """Return zeros for the values of a param: on the device if params stay there, else in (pinned) host memory."""
        gpus = [name for name in self.names.values() if is_gpu(name)]
        root = self._root(gpus[0]) if gpus else NumpyOps()
        return root.zeros((size,), dtype) if self.params_stay else root.pinned((size,), dtype)

    def release(self) -> None:
        """Release the memory of GPUs, once all computation has ended."""
        for root in self._roots.values():
            root.release()


def _workers(units: Sequence[Address]) -> list[Address]:
    return [unit for unit in units if unit.kind == "worker"]


@contextlib.contextmanager
def explain_memory_errors(nets: Callable[[], Collection[NeuralNet]]) -> Iterator[None]:
    """Add what a worker needs, and what to do, to an error about too little GPU memory.

    Parameters
    ----------
    nets : callable
        Returns the nets of a worker that computes on the GPU.

    Raises
    ------
    DeviceMemoryError
        The GPU has too little memory.
    """
    try:
        yield
    except DeviceMemoryError as error:
        needs = ", ".join(
            f"{net.memory_bytes() / 2**20:,.0f} MiB for a {str(net.context.phase.name).lower()} net with batches of "
            f"{max(layer.features[0].shape[0] // layer.site.n_steps for layer in net.layers if layer.traits.is_input)}"
            for net in nets()
        )
        raise DeviceMemoryError(
            f"{error} Needed: {needs}, and the workspace of kernels. Lower batchsize, share the batch among more "
            "workers (nworkers_per_group), say precision: bf16, or end what else uses this GPU."
        ) from error


# JobPlan: the table of params and slices of a job. Every process computes the same one from the job file.


@dataclass(frozen=True)
class JobPlan:
    """Params and slices of a job, computed without data and without a cluster.

    Attributes
    ----------
    layout : Layout
        Where the units are. Nothing else depends on it.
    names : tuple of str
        Names of the unique params, or parts of params, in net order; messages use their index.
    owners : tuple of str
        Name of the whole param of each.
    shards : tuple of ParamShard or None
        Part of the whole param; None if it is all of it.
    scales : tuple of (float, float) or None
        ``lr_scale`` and ``wd_scale`` of each param; None for a running statistic.
    n_sharers : tuple of int
        Number of gradients of each in one step of a whole worker group.
    n_shares : tuple of int
        Divisor of the sum of these gradients.
    slices : tuple of ParamSlice
    dtype : dtype
        dtype of params.
    tree : ProcessTree or None
        If gradients are summed on their way to servers.
    """

    layout: Layout
    names: tuple[str, ...]
    owners: tuple[str, ...]
    shards: tuple[ParamShard | None, ...]
    scales: tuple[tuple[float, float] | None, ...]
    n_sharers: tuple[int, ...]
    n_shares: tuple[int, ...]
    slices: tuple[ParamSlice, ...]
    dtype: np.dtype[Any]
    tree: ProcessTree | None

    @property
    def way(self) -> ProcessTree | None:
        """The tree, if it reaches all processes: messages then pass those on the way from one to another."""
        return self.tree if self.tree and self.tree.n_processes == len(self.layout.processes) else None

    @property
    def n_trained(self) -> Counter[int]:
        """Number of slices with gradients of each server that has any; running statistics do not count."""
        trained = [piece for piece in self.slices if self.scales[piece.param] and self.n_sharers[piece.param]]
        return Counter(piece.server for piece in trained)

    @classmethod
    def make(cls, job: JobConf, net: NeuralNet | None = None, layout: Layout | None = None) -> JobPlan:
        """Compute the plan of a job.

        Parameters
        ----------
        job : JobConf
        net : NeuralNet, optional
            Its training net, if it is built already.
        layout : Layout, optional
            Where the units are, if not where the job file puts them; see `pack`.
        """
        net = net or build_net(job, Phase.TRAIN, get_ops("numpy"))
        kept, cluster = net.logical, job.cluster
        if not kept:
            raise ConfigError(Problem(("neuralnet", "layer"), "no layer of the training net has params to train."))
        owners = [each.owner for each in kept.values()]
        check_scales(job.updater, [owner.name for owner in owners if not owner.running_statistic])
        sizes = [each.param.size for each in kept.values()]
        slices = slice_table(sizes, cluster.nserver_groups, cluster.nservers_per_group)
        planned, dtype = plan_processes(cluster), net.context.param_dtype
        layout, n_bytes = layout or planned, sum(sizes) * dtype.itemsize
        return cls(
            layout=layout,
            names=tuple(kept),
            owners=tuple(owner.name for owner in owners),
            shards=tuple(each.param.shard for each in kept.values()),
            scales=tuple(
                None
                if owner.running_statistic
                else job.updater.scales_of(owner.name, owner.conf.lr_scale, owner.conf.wd_scale)
                for owner in owners
            ),
            n_sharers=tuple(net.n_gradients(name) for name in kept),
            n_shares=tuple(net.n_shares(name) for name in kept),
            slices=tuple(_assign_local_servers(slices, [each.workers for each in kept.values()], planned)),
            dtype=dtype,
            # workers of a partitioned net have different params
            tree=None if net.is_partitioned else ProcessTree.of(layout.process_of, n_bytes),
        )


def check_scales(updater: UpdaterConf, names: Sequence[str]) -> None:
    """Check that each pattern of ``scales`` fits a param; ConfigError if one fits none."""
    problems = []
    for i, scale in enumerate(updater.scales):
        if not any(fnmatchcase(name, scale.param) for name in names):
            message = f"no param that is trained fits {scale.param!r}. Params: {', '.join(dict.fromkeys(names))}."
            problems.append(Problem(("updater", "scales", i, "param"), message))
    if problems:
        raise ConfigError(problems)


def _assign_local_servers(
    slices: Sequence[ParamSlice], users: Sequence[Collection[int]], layout: Layout
) -> Iterator[ParamSlice]:
    """Assign slices that only workers of one process use to a server of that process, if it has one.

    Then parts of params that only one worker has never leave their process. ``users``: workers of each param in every
    group; empty if all workers have it.
    """
    process_of, cluster = layout.process_of, layout.cluster
    processes = [  # process of each worker, and of each server that its group talks to
        (
            [process_of[Address.worker(group, i)] for i in range(cluster.nworkers_per_group)],
            [process_of[Address.server(layout.server_group_of(group), i)] for i in range(cluster.nservers_per_group)],
        )
        for group in range(cluster.nworker_groups)
    ]
    load = [0] * cluster.nservers_per_group
    for piece in slices:
        homes = [
            server
            for server in range(cluster.nservers_per_group)
            if all({workers[i] for i in users[piece.param]} == {servers[server]} for workers, servers in processes)
        ]
        server = piece.server if piece.server in homes or not homes else min(homes, key=load.__getitem__)
        load[server] += piece.size
        yield piece._replace(server=server)
