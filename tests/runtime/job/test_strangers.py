"""Processes of other runs at the endpoints of a job: it ends with the same bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from distributed import Client

from singa_dask.runtime.checkpoints.lookup import load_values
from tests.comm.ends import TIMEOUT_S, End, update
from tests.runtime.harness import ALLREDUCE, mlp
from tests.runtime.job.test_cluster import endpoint_of
from tests.runtime.processes import Driven

pytestmark = [pytest.mark.cluster, pytest.mark.long]


def intrude(driven: Driven, event: dict[str, Any]) -> None:
    """Send gradients to each process of a job, from others that say they are of this job; then stop it."""
    for address in driven.client.run(endpoint_of, driven.job_id).values():
        for _ in range(3):
            stranger = End(job=driven.job_id, process=1)
            stranger.send(address, update(0, np.ones(1000)))
            assert "the other side refused the connection" in stranger.lost.get(timeout=TIMEOUT_S)[1]
            stranger.close()
    driven.driver.stop()


def test_strangers_change_nothing_in_a_job(client: Client, tmp_path: Path) -> None:
    disturbed = Driven(mlp(train_steps=1_000_000, cluster=ALLREDUCE), client, tmp_path, intrude)
    assert (disturbed.result.state, disturbed.result.restarts) == ("stopped", 0), disturbed.result
    calm = Driven(mlp(train_steps=disturbed.result.steps, cluster=ALLREDUCE), client, tmp_path)
    there, here = load_values(disturbed.url), load_values(calm.url)
    assert all(np.array_equal(there[name].values, here[name].values) for name in here)
