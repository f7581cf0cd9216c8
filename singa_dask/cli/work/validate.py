"""``validate``: every mistake of a job file, or its nets, kernels and topology; nothing is started."""

from __future__ import annotations

from collections.abc import Sequence

from singa_dask.cli import job
from singa_dask.cli.echo import echo
from singa_dask.comm import Address
from singa_dask.conf import JobConf
from singa_dask.jobs.checking import check, complete, count_steps
from singa_dask.jobs.datasets.binding import readers
from singa_dask.runtime import absent_records, n_threads, plan_processes
from singa_dask.runtime.planning.devices import device_names, n_on_gpus


def validate(job_file: str, sets: tuple[str, ...], cluster_file: str | None, strict: bool) -> None:
    """Check a job file and show what it makes; start nothing."""
    read = complete(job.read(job_file, sets, cluster_file))
    absent = absent_records(read.job)
    nets = check(read, absent=absent)
    job.warn(read, nets, strict=strict, embedded=True, more=absent.values())
    if read.job.epochs is not None and not absent and not readers(read.job):
        n_steps = count_steps(read, nets).job.train_steps
        echo(f"epochs: {read.job.epochs:g}, which are {n_steps} steps of each worker group\n")
    for phase, net in nets.items():
        echo(f"{str(phase.name).lower()} net\n{net.describe()}\n")
    layout = plan_processes(read.job.cluster)
    threads = n_threads(read.job, sum(unit.kind == "worker" for unit in layout.units))
    if not (read.job.gpu or read.job.ops == "cupy"):
        echo(f"on this machine: ops {next(iter(nets.values())).ops.name}, {threads} threads a worker")
    for number, units in enumerate(layout.processes):
        echo(f"process {number}: {', '.join(_shown(read.job, units))}")


def _shown(job: JobConf, units: Sequence[Address]) -> list[str]:
    """Return the units of a process, the workers with the GPUs that the job gives them."""
    workers = [unit for unit in units if unit.kind == "worker"]
    n = n_on_gpus(job, len(workers))
    names = device_names(job, len(workers)) if job.gpu else ["a GPU"] * n
    gpus = dict(zip(workers[:n], names, strict=False))
    return [f"{unit} on {gpus[unit]}" if unit in gpus else str(unit) for unit in units]
