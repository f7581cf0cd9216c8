"""Devices: assign devices, threads and param memory to the workers of a process.

Workers of a process take its GPUs in order, as in SINGA. A job without GPUs needs no GPU library here.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from singa_dask.comm.message import Address
from singa_dask.conf import JobConf
from singa_dask.errors import DeviceMemoryError
from singa_dask.net import NeuralNet
from singa_dask.ops import OPS, NumpyOps
from singa_dask.ops.contract import Ops
from singa_dask.runtime.planning.layout import Layout, plan_processes
from singa_dask.runtime.planning.machine import machine_memory, n_threads
from singa_dask.runtime.planning.nets import find_ops

VISIBLE = "CUDA_VISIBLE_DEVICES"
"""Environment variable. If the variable is set, e.g. by dask-cuda, each process has its own GPUs, so the first worker
of a process takes the first GPU."""


def is_gpu(name: str) -> bool:
    """Return whether a name for `get_ops` means a GPU."""
    return name.startswith("cuda:")


def n_on_gpus(job: JobConf, n_workers: int) -> int:
    """Return how many of the ``n_workers`` workers of a process compute on GPUs."""
    return n_workers if job.ops == "cupy" else min(len(job.gpu), n_workers)


def device_names(job: JobConf, n_workers: int, n_visible: int = 0, first: int = 0) -> list[str]:
    """Return, for each worker of one process, the name of its kernels, as `get_ops` takes it.

    Parameters
    ----------
    n_workers : int
        Number of workers in the process.
    n_visible : int
        Number of GPUs that the process sees. Used only if the job lists no GPUs.
    first : int
        Number of workers in earlier processes that see the same GPUs. These workers take the first GPUs.
    """
    if job.ops != "cupy":
        gpus = [f"cuda:{index}" for index in job.gpu[:n_workers]]
        return gpus + [job.ops] * (n_workers - len(gpus))
    if job.gpu:
        return [f"cuda:{job.gpu[i % len(job.gpu)]}" for i in range(n_workers)]
    # without a GPU, return the name of the first one, so that get_ops raises an error that explains it
    return [f"cuda:{(first + i) % max(n_visible, 1)}" for i in range(n_workers)]


def device_of_part(job: JobConf, index: int) -> str:
    """Return the name of the kernels for part ``index`` of an inference.

    Parts take the job's GPUs in turn.
    """
    if job.ops == "cupy" and not job.gpu:
        return f"cuda:{index % max(OPS.find('cupy').count(), 1)}"
    return f"cuda:{job.gpu[index % len(job.gpu)]}" if job.gpu else job.ops


def params_stay(layout: Layout, names: Collection[str]) -> bool:
    """Return whether the params of a job stay on a GPU that all its workers use.

    The params stay on the GPU if one process has all units, there is one server group, and all workers share the memory
    of one GPU. ``names`` are the names of the workers' kernels.
    """
    cluster = layout.cluster
    alone = len(layout.processes) == cluster.nserver_groups == 1 and cluster.share_memory
    return alone and len(set(names)) == 1 and all(map(is_gpu, names))


class Devices:
    """Assigns kernels, threads and memory to the units of one process.

    Parameters
    ----------
    process : int
        Number of the process.
    neighbours : collection of int, optional
        Processes of the job on this host, including this one. By default all processes of the job are on this host.
    threads : int, optional
        Number of threads of each CPU worker. By default workers share the cores of the machine.

    Attributes
    ----------
    n_threads : int
        Number of threads of each CPU worker, and of BLAS calls in the whole process.
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
        # position of a worker in its process of the job file, so that it keeps its GPU when it moves to another process
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
        """Return the number of threads of a worker; 1 for a worker on a GPU."""
        return 1 if self._is_on_gpu(worker) else self.n_threads

    def worker_bytes(self, limit: int | None) -> int:
        """Return the number of bytes of memory that a worker may use.

        This is the worker's share of the memory of this machine or of ``limit``, the bytes of its process, if less.
        """
        share = machine_memory() // max(self._n_beside, 1)
        return min(share, limit // max(len(self._workers), 1)) if limit else share

    def _is_on_gpu(self, worker: Address) -> bool:
        return n_on_gpus(self.job, self._index[worker] + 1) > self._index[worker]

    @property
    def names(self) -> Mapping[Address, str]:
        """Name of the kernels of each worker of this process, as `get_ops` takes it.

        Raises `ConfigError` if GPUs must be counted and CuPy, which counts them, is missing.
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
        """Whether values and updater state of params are on the GPU that all workers use; see `params_stay`."""
        return params_stay(self._planned, self.names.values())

    def ops(self, unit: Address) -> Ops:
        """Return the kernels of a unit, for use only in the unit's thread.

        Raises `ConfigError` if the kernels cannot be used here.
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
        """Return zeros for the values of a param: on the GPU if params stay there, else on the host."""
        gpus = [name for name in self.names.values() if is_gpu(name)]
        root = self._root(gpus[0]) if gpus else NumpyOps()
        return root.zeros((size,), dtype) if self.params_stay else root.pinned((size,), dtype)

    def release(self) -> None:
        """Free the memory of GPUs. Call this method once all computation has ended."""
        for root in self._roots.values():
            root.release()


def _workers(units: Sequence[Address]) -> list[Address]:
    return [unit for unit in units if unit.kind == "worker"]


@contextlib.contextmanager
def explain_memory_errors(nets: Callable[[], Collection[NeuralNet]]) -> Iterator[None]:
    """Add to a DeviceMemoryError of the context the memory that the nets of a worker need, and advice."""
    try:
        yield
    except DeviceMemoryError as error:
        sizes = []
        for net in nets():
            readers = [layer for layer in net.layers if layer.traits.role == "input"]
            n_records = max(layer.features[0].shape[0] // layer.site.n_steps for layer in readers)
            name, size = str(net.context.phase.name).lower(), net.memory_bytes() / 2**20
            sizes.append(f"{size:,.0f} MiB for a {name} net with batches of {n_records}")
        needs = ", ".join(sizes)
        raise DeviceMemoryError(
            f"{error} Needed: {needs}, and the workspace of kernels. Lower batchsize, share the batch among more "
            "workers (nworkers_per_group), set precision: bf16, or end other programs on this GPU."
        ) from error
