"""Wait until a job fits on the Dask workers of a cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distributed import Client

from singa_dask.runtime.job.client.calls import ask_jobs, expecting_answer
from singa_dask.runtime.job.client.install import install_jobs
from singa_dask.runtime.job.names import Op
from singa_dask.runtime.job.patience import AT_ONCE, Patience
from singa_dask.runtime.planning.layout import Layout
from singa_dask.runtime.planning.worker_choice import WorkerFacts, place_first


def wait_for_room(client: Client, layout: Layout, patience: Patience = AT_ONCE, beside_tasks: bool = True) -> None:
    """Wait until a job can start on a cluster. An elastic job may start before all its processes fit.

    Parameters
    ----------
    patience : Patience
        How long to wait. By default the job must fit immediately.
    beside_tasks : bool
        Whether threads that run other Dask tasks count as occupied. Pass False if these tasks compute the job's data.

    Raises
    ------
    ClusterError
        The job does not fit in time. The message has the numbers of wanted and free threads.
    """

    def attempt() -> None:
        install_jobs(client)
        wanted = layout.cluster.workers.model_dump(mode="json")
        with expecting_answer(client):
            room = ask_jobs(client, Op.ROOM, wanted=wanted, beside_tasks=beside_tasks)
        place_first(layout, worker_facts(room))

    patience.until(attempt)


def worker_facts(room: Mapping[str, Sequence[Any]]) -> dict[str, WorkerFacts]:
    """Convert an answer of the scheduler to facts about each Dask worker, by address."""
    return {address: WorkerFacts(*facts) for address, facts in room.items()}
