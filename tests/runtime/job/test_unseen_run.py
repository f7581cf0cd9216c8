"""A run directory on a disk that Dask workers do not see is refused before the first step, by every way to start a job.

Each Dask worker has a disk of its own at a path that the client has, too.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest
from click.testing import CliRunner
from distributed import Client

import singa_dask as sd
from singa_dask.cli import main
from singa_dask.errors import DataError
from singa_dask.runtime import Patience, check_seen, connect
from tests.data.loading.test_full_cache_disk import UNSHARE, can_mount
from tests.runtime.processes import ROOT, TIMEOUT_S, Cluster

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.long,
    pytest.mark.skipif(not can_mount(), reason="this user may not mount a file system"),
]

REFUSED = "Dask workers do not see this run directory"


class Hosts(Cluster):
    """Two Dask workers, each with a disk of its own at ``disk``."""

    def __init__(self, directory: Path) -> None:
        self.disk = directory / "disk"
        self.disk.mkdir()
        script = f'mount -t tmpfs -o size=3m tmpfs {self.disk} && exec "$@"'
        self.before_worker = (*UNSHARE, "sh", "-c", script, "sh")
        super().__init__(directory, "--no-nanny")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Client]]:
    made = Hosts(tmp_path_factory.mktemp("hosts"))
    try:
        with connect(scheduler_file=made.file, patience=Patience(TIMEOUT_S)) as client:
            client.wait_for_workers(2, timeout=TIMEOUT_S)
            yield made.disk, client
    finally:
        made.close()


@pytest.mark.parametrize("more", [(), ("--detach",), ("--queue",)])
def test_a_command_refuses_it(hosts: tuple[Path, Client], more: tuple[str, ...]) -> None:
    disk, client = hosts
    files = [str(ROOT / "configs/digits/mlp.yaml"), "--cluster", str(ROOT / "configs/cluster/allreduce.yaml")]
    where = ["--scheduler", client.scheduler.address, "--run-dir", str(disk / "runs" / "mine")]
    done = CliRunner().invoke(main, ["run", *files, *where, "--set", "train_steps=20", *more], prog_name="singa-dask")
    assert done.exit_code == DataError.exit_code, done.stderr
    assert f"{disk / 'runs' / 'mine'}: {REFUSED}" in done.stderr
    assert not list(disk.iterdir())


def test_python_refuses_it(hosts: tuple[Path, Client]) -> None:
    disk, client = hosts
    job = sd.load(ROOT / "configs/digits/mlp.yaml", cluster=ROOT / "configs/cluster/allreduce.yaml")
    with pytest.raises(DataError, match=REFUSED):
        sd.train(job, client=client, run_dir=str(disk / "runs" / "mine"), progress=False)
    assert not list(disk.iterdir())


def test_an_estimator_refuses_it_without_a_run_directory_of_its_own(
    hosts: tuple[Path, Client], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, client = hosts
    monkeypatch.setattr(tempfile, "tempdir", str(disk))

    def is_computed(block: Any) -> Any:
        raise AssertionError("records were computed before the check")

    x = da.from_array(np.zeros((64, 4))).map_blocks(is_computed, dtype=float)
    for each in (client, client.scheduler.address):
        with pytest.raises(sd.ConfigError, match=rf"run_dir: missing\. .* do not share the directory {disk} with"):
            sd.SingaClassifier(client=each, max_iter=2).fit(x, x[:, 0] > 0)
    assert not list(disk.iterdir())
    monkeypatch.undo()
    x = da.from_array(np.random.default_rng(0).normal(size=(64, 4)), chunks=(32, 4))
    net = sd.SingaClassifier(client=client, max_iter=2, run_dir=str(tmp_path / "run"))
    assert net.fit(x, x[:, 0] > 0).predict(x).compute().shape == (64,)


def test_records_that_differ_between_hosts_are_refused(hosts: tuple[Path, Client], tmp_path: Path) -> None:
    disk, client = hosts
    records, path = (ROOT / "data/digits/train.arrow").read_bytes(), disk / "train.arrow"
    changed = bytearray(records)
    changed[len(records) // 3 + 999] ^= 1  # the value of a pixel
    job = sd.load(ROOT / "configs/digits/mlp.yaml", cluster=ROOT / "configs/cluster/allreduce.yaml")
    job = job.replace({"neuralnet.layer[0].store_conf.path": str(path), "test_freq": 0, "train_steps": 3})
    path.touch()
    one, other = client.scheduler_info()["workers"]
    try:
        client.run(path.write_bytes, records, workers=[one])
        client.run(path.write_bytes, bytes(changed), workers=[other])
        found = re.escape(f"{path}: Dask workers read different files at this path: ")
        with pytest.raises(DataError, match=rf"{found}tcp://.* on .*, tcp://.* on .*\. Copy the same files"):
            sd.train(job, client=client, run_dir=str(tmp_path / "run"), progress=False)
        with pytest.raises(DataError, match=found):
            check_seen(client, [str(path)])  # as `predict` and `test` do
        client.run(path.write_bytes, records, workers=[other])
        assert sd.train(job, client=client, run_dir=str(tmp_path / "run"), progress=False).state == "done"
    finally:
        path.unlink()
        client.run(path.unlink)


def test_find_rate_writes_to_the_workspace_of_the_job(
    hosts: tuple[Path, Client], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, client = hosts
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    job = sd.load(ROOT / "configs/digits/mlp.yaml")
    with pytest.raises(DataError, match=rf"{REFUSED}.* cluster\.workspace"):
        sd.find_rate(job, client=client, steps=60)
    shared = job.replace({"cluster.workspace": str(tmp_path / "shared")})
    assert sd.find_rate(shared, client=client, steps=60).rate > 0
    assert not list((tmp_path / "shared").iterdir())
