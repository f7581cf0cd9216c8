"""The code blocks of the pages about data, pasted in order, on a real HDFS."""

from __future__ import annotations

import io
import json
import os
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from singa_dask import fs
from singa_dask.data.stores import open_store
from tests.docs import material
from tests.docs.pages import DOCS, ON_HDFS
from tests.hdfs.cluster import HOSTS, MiniHdfs
from tests.ports import free_port
from tests.snippets import Block, Session, read_blocks, session

BLOCKS = [block for name in ON_HDFS for block in read_blocks(DOCS / name)]

pytestmark = [pytest.mark.cluster, pytest.mark.soak]


def substitutions(url: str, port: int) -> dict[str, str]:
    """Return what runs in place of text of the pages."""
    worker = "dask-worker tcp://scheduler:8786 --nthreads 2 "
    here = f"dask-worker tcp://127.0.0.1:{port} --host 127.0.0.1 --nthreads 2"
    return {
        "hdfs://namenode:8020": url,
        # a worker on each of two hosts
        worker: "".join(f"{here} --name {name} & " for name in HOSTS[:2]),
        # another scheduler may have the port
        "--port 8786": f"--host 127.0.0.1 --port {port}",
        "tcp://scheduler:8786": f"tcp://127.0.0.1:{port}",
    }


def write_program(folder: Path, mini: MiniHdfs) -> None:
    """Write the program ``hdfs`` of a Hadoop that is installed."""
    (folder / "hdfs").write_text(f'#!/bin/sh\ntest "$1" = dfs && shift && exec {shlex.join(mini.tool())} "$@"\n')
    (folder / "hdfs").chmod(0o755)


@pytest.fixture(scope="module")
def reader(mini: MiniHdfs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    """Give a reader's copy of the repository with data of the reader's own, and an HDFS that has a directory for it."""
    folder = tmp_path_factory.mktemp("pages")
    write_program(folder, mini)
    path = f"{folder}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    fs.makedirs(f"{mini.url}/data")
    table = substitutions(mini.url, free_port())
    with session(folder / "copy", table, environment={"PATH": path}) as made:
        material.write_flowers(made.directory / "flowers")
        material.write_tfrecords(made.directory)
        material.write_churn(f"{mini.url}/data")
        yield made
    fs.remove_tree(f"{mini.url}/data")


@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_runs(reader: Session, block: Block) -> None:
    reader.run(block)


def test_the_blocks_did_what_they_say(reader: Session, mini: MiniHdfs) -> None:
    """Look at what all of the blocks above have left."""
    assert reader.unused() == set()
    counts = []
    for split in ("train", "test"):
        with open_store(str(reader.directory / f"flowers-{split}.arrow")) as store:
            counts.append(store.count)
            assert store.schema["pixel"].shape == (3, 64, 64)
    assert counts == [36, 4]
    assert (reader.directory / "image_mean.bin").stat().st_size > 3 * 64 * 64 * 4
    with open_store(f"{mini.url}/data/train*.arrow") as store:
        assert store.count == 100
    classes = pq.read_table(io.BytesIO(fs.read_bytes(f"{mini.url}/data/classes.parquet")))
    assert classes.select(["customer_id", "class"]).to_pydict() == {
        "customer_id": ["7", "8", "9"],
        "class": ["yes", "no", "no"],
    }
    run = f"{mini.url}/user/me/runs/digits"
    summary = json.loads(fs.read_bytes(f"{run}/summary.json"))
    assert (summary["state"], summary["steps"]) == ("done", 2500)
    assert summary["test"]["accuracy"] > 0.95
