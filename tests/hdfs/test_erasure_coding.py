"""Directories with erasure coding, on Hadoop 3: what is on DataNodes that are gone is restored, or refused."""

from __future__ import annotations

import re
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from singa_dask import fs
from singa_dask.errors import DataError
from tests.hdfs.cluster import HOSTS, VERSION, MiniHdfs
from tests.hdfs.conftest import start_or_skip
from tests.hdfs.epochs import check_epoch
from tests.hdfs.jars import HADOOP_3
from tests.runtime.ahead import read_little_ahead
from tests.runtime.processes import wait_until

pytestmark = pytest.mark.skipif(VERSION != HADOOP_3, reason="erasure coding is Hadoop 3's")

ADMIN = "org.apache.hadoop.hdfs.tools.ECAdmin"
POLICIES = {"rs": "RS-3-2-1024k", "xor": "XOR-2-1-1024k"}


@pytest.fixture
def five(tmp_path: Path) -> Iterator[MiniHdfs]:
    """Start five DataNodes, and make a directory for each policy."""
    with start_or_skip(lambda: MiniHdfs(tmp_path / "five", hosts=(*HOSTS, "node-d", "node-e"))) as made:
        for name in POLICIES:
            make_directory(made, name)
        yield made


def make_directory(there: MiniHdfs, name: str) -> None:
    """Make a directory for files with one of `POLICIES`."""
    fs.makedirs(f"{there.url}/{name}")
    for command in (["-enablePolicy"], ["-setPolicy", "-path", f"/{name}"]):
        subprocess.run([*there.tool(ADMIN), *command, "-policy", POLICIES[name]], check=True, capture_output=True)


def may_lose_one(there: MiniHdfs) -> bool:
    """Return whether each group lacks one block at most: DataNodes report late, and a writer may leave out one."""
    with urllib.request.urlopen(f"{there.http}/fsck?ugi=root&files=1&blocks=1&path=/rs") as answer:
        lacking = re.findall(r"Target Replicas is (\d+) but found (\d+)", answer.read().decode())
    return all(int(wanted) - int(found) <= 1 for wanted, found in lacking)


@pytest.mark.soak
def test_a_lost_datanode(five: MiniHdfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What we wrote by Reed and Solomon's code is restored, by us in mid-epoch and by Hadoop."""
    read_little_ahead(monkeypatch.setattr)
    contents = {str(n): np.random.default_rng(n).bytes(n) for n in (1, 100_000, 6 << 20, 7_500_001)}
    for name, data in contents.items():
        fs.write_atomic(f"{five.url}/rs/{name}", data)

    def kill() -> None:
        wait_until(lambda: may_lose_one(five), "the NameNode knows of enough blocks")
        five.kill("node-a")

    check_epoch(f"{five.url}/rs/epoch.arrow", kill)
    got = subprocess.run([*five.tool(), "-get", "/rs", str(tmp_path)], capture_output=True, text=True)
    assert got.returncode == 0, got.stderr
    for name, data in contents.items():
        assert (tmp_path / "rs" / name).read_bytes() == data
        assert fs.read_bytes(f"{five.url}/rs/{name}") == data


@pytest.mark.long
def test_no_file_is_written_with_xor(mini: MiniHdfs) -> None:
    """hdfs-native writes wrong parity: it does not do so silently."""
    make_directory(mini, "xor")
    for n in (100_000, 6 << 20):
        with pytest.raises(DataError, match=rf"{mini.url}/xor/.*XOR.*Reed-Solomon.*client: webhdfs"):
            fs.write_atomic(f"{mini.url}/xor/{n}", bytes(n))
        assert fs.ls(f"{mini.url}/xor") == []
    fs.remove_tree(f"{mini.url}/xor")


@pytest.mark.soak
def test_a_lost_datanode_of_a_file_with_xor(five: MiniHdfs, tmp_path: Path) -> None:
    """hdfs-native restores nothing, and says so."""
    # of so many groups of blocks each DataNode has some with records, not parity alone
    data = np.random.default_rng(0).bytes((32 << 20) + 1)
    (tmp_path / "theirs").write_bytes(data)
    subprocess.run([*five.tool(), "-put", str(tmp_path / "theirs"), "/xor"], check=True, capture_output=True)
    url = f"{five.url}/xor/theirs"
    assert fs.read_bytes(url) == data
    five.kill("node-a")
    with pytest.raises(DataError, match=f"(?s){url}.*DataNodes of this file do not answer.*client: webhdfs"):
        fs.read_bytes(url)
    web = {"client": "webhdfs", "http": five.http, "data_proxy": dict.fromkeys(five.hosts, "127.0.0.1")}

    def restored() -> bytes:
        try:
            return fs.read_bytes(url, storage_options=web)
        except DataError:
            return b""

    wait_until(lambda: restored() == data, "the NameNode knows of the loss, and a DataNode restores the rest", 120)
