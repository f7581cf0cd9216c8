"""What a process of a job uses of its host: threads, never more than there are cores for them, and memory.

The nannies of Dask start their processes with one thread for every library; what is here holds whatever they say.
"""

from __future__ import annotations

import resource
import sys
from contextlib import AbstractContextManager

from dask.system import cpu_count
from threadpoolctl import threadpool_limits

from singa_dask.conf import JobConf

__all__ = ["limit_process", "limit_thread", "n_threads", "peak_memory"]


def n_threads(job: JobConf, n_workers: int, n_on_gpus: int = 0) -> int:
    """Return the threads of each worker where ``n_workers`` of the job share the cores that this process may use.

    The cores are those of its affinity and of its control group. How many threads Dask has for tasks says nothing of
    them. Servers are not counted: they work while workers wait. ``n_on_gpus`` of the workers take one thread each.
    """
    most = max(1, (cpu_count() - n_on_gpus) // max(1, n_workers - n_on_gpus))
    return min(job.threads, most) if job.threads else most


def limit_process(n: int) -> AbstractContextManager[object]:
    """Give the linear algebra of this process ``n`` threads, from now to the end of the context."""
    limits: AbstractContextManager[object] = threadpool_limits(n, user_api="blas")
    return limits


def limit_thread(n: int) -> AbstractContextManager[object]:
    """Give the OpenMP libraries that are loaded ``n`` threads for what this thread calls, in the context."""
    limits: AbstractContextManager[object] = threadpool_limits(n, user_api="openmp")
    return limits


def peak_memory() -> int:
    """Return the most memory, in bytes, that this process has had in use since it was started."""
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else 1024 * most
