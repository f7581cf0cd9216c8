"""Strangers at the endpoints of a job that runs: it ends with the same bits, and its processes keep nothing of them."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from distributed import Client, Worker

from singa_dask.comm.greeting import Hello, Secret
from singa_dask.runtime.checkpoints.lookup import load_values
from tests.comm.ends import End, update
from tests.comm.strangers import CHALLENGE_BYTES, intrude, record_hello, strangers
from tests.runtime.harness import ALLREDUCE, mlp
from tests.runtime.job.test_cluster import endpoint_of
from tests.runtime.processes import Driven, wait_until

pytestmark = pytest.mark.cluster

MEMORY_BYTES = 100 << 20
SOCKETS = 2  # one that listens, and the connection of the other process


def usage(dask_worker: Worker, job_id: str) -> tuple[int, int]:
    """Return the number of sockets of a job's endpoint on a Dask worker, and the bytes of memory of the process."""
    port, process = int(endpoint_of(job_id, dask_worker).rpartition(":")[2]), psutil.Process()
    sockets = [each for each in process.net_connections(kind="tcp") if each.laddr and each.laddr.port == port]
    return len(sockets), process.memory_info().rss


def secret_of(dask_worker: Worker) -> list[bytes]:
    """Return the secrets of the jobs on a Dask worker."""
    return [hosting.placement["secret"]._key for hosting in dask_worker.plugins["singa-dask"].hostings.values()]  # type: ignore[attr-defined]


class Siege:
    """Sends strangers to each endpoint of a job as soon as it trains, then stops it."""

    def __init__(self, n: int, bomb: Path) -> None:
        self.n, self.bomb = n, bomb
        self.grown: list[int] = []
        self.secrets: set[bytes] = set()

    def __call__(self, driven: Driven, event: dict[str, Any]) -> None:
        """Do so."""
        client = driven.client
        endpoints = client.run(endpoint_of, driven.job_id)
        self.secrets = {key for keys in client.run(secret_of).values() for key in keys}
        before = client.run(usage, job_id=driven.job_id)
        for seed, address in enumerate(endpoints.values()):
            hello = Hello(driven.job_id, 0, 1, address, "a")
            sender = End(secret=Secret.new(), job=driven.job_id, process=1)
            recorded = record_hello(partial(sender.send, message=update(0)))
            sender.close()
            got = intrude(address, strangers(seed, self.n // len(endpoints), hello, recorded, self.bomb))
            assert 0 < got <= CHALLENGE_BYTES
        wait_until(lambda: self._sockets(driven) <= SOCKETS, "the sockets of strangers are closed")
        after = client.run(usage, job_id=driven.job_id)
        self.grown = [after[place][1] - before[place][1] for place in before]
        driven.driver.stop()

    def _sockets(self, driven: Driven) -> int:
        return max(n for n, _ in driven.client.run(usage, job_id=driven.job_id).values())


@pytest.mark.long
@pytest.mark.parametrize("n", [500, 10_000])
def test_strangers_change_nothing_in_a_job(client: Client, tmp_path: Path, n: int) -> None:
    siege = Siege(n, tmp_path / "bomb")
    disturbed = Driven(mlp(train_steps=1_000_000, cluster=ALLREDUCE), client, tmp_path, siege)
    assert (disturbed.result.state, disturbed.result.restarts) == ("stopped", 0), disturbed.result
    assert not siege.bomb.exists()
    assert max(siege.grown) < MEMORY_BYTES
    calm = Driven(mlp(train_steps=disturbed.result.steps, cluster=ALLREDUCE), client, tmp_path)
    there, here = load_values(disturbed.url), load_values(calm.url)
    assert all(np.array_equal(there[name].values, here[name].values) for name in here)
    (secret,) = siege.secrets
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    texts = [str(disturbed.events).encode(), *written]
    assert not any(form in text for text in texts for form in forms(secret))


def forms(secret: bytes) -> list[bytes]:
    """Return a secret as it might be written."""
    return [secret, secret.hex().encode(), repr(secret).encode()[2:-1]]
