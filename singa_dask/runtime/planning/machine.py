"""Cores, threads and memory that this process may use."""

from __future__ import annotations

import math
import os
import resource
import sys
from pathlib import Path

from singa_dask.conf import JobConf

LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Files with the memory limit of this process's control group, for versions 2 and 1 of control groups."""

CGROUP = Path("/sys/fs/cgroup")
CGROUP_OF_PROCESS = Path("/proc/self/cgroup")
SCHEDULED = Path("/proc/thread-self/schedstat")
"""Linux file with the nanoseconds for which this thread has run, and for which it has waited for a core."""


def cpu_count() -> int:
    """Return the number of cores that this process may use, given its affinity and its control group.

    ``dask.system.cpu_count`` returns the same number, but importing Dask takes longer than validating a job.
    """
    count = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    group = _text_of(CGROUP_OF_PROCESS).rpartition(":")[2].lstrip("/")
    quotas = [_text_of(CGROUP / place / "cpu.max").split() for place in ("", group)]
    quotas += [[_text_of(CGROUP / "cpu,cpuacct" / f"cpu.cfs_{key}_us") for key in ("quota", "period")]]
    limits = [math.ceil(int(quota[0]) / int(quota[1])) for quota in quotas if "".join(quota).isdecimal()]
    return min([count, *limits])


def n_threads(job: JobConf, n_workers: int, n_on_gpus: int = 0, n_cores: int | None = None) -> int:
    """Return the number of threads of each CPU worker.

    The workers share the cores evenly. Servers get no cores of their own, because they work while workers wait.

    Parameters
    ----------
    n_workers : int
        Number of workers that share the cores.
    n_on_gpus : int
        Number of these workers that are on GPUs. Each of them uses one thread.
    n_cores : int, optional
        Number of cores; by default all cores that this process may use.
    """
    most = max(1, ((n_cores or cpu_count()) - n_on_gpus) // max(1, n_workers - n_on_gpus))
    return min(job.threads, most) if job.threads else most


def core_wait_s() -> float:
    """Return the seconds for which this thread was ready to run but waited for a core; 0 if unknown."""
    _, _, rest = _text_of(SCHEDULED).partition(" ")
    return int(rest.split()[0]) / 1e9 if rest else 0.0


def machine_memory() -> int:
    """Return the bytes of memory that this process may use."""
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


def peak_memory() -> int:
    """Return the peak memory of this process, in bytes."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most
