"""The notebook of docs/ that trains from HDFS, executed on a real one."""

from __future__ import annotations

from pathlib import Path

import pytest
from distributed import Client

from singa_dask import fs
from tests.docs.notebooks import execute
from tests.hdfs.cluster import MiniHdfs
from tests.hdfs.test_pages import write_program


@pytest.mark.soak
@pytest.mark.cluster
def test_the_notebook_runs(mini: MiniHdfs, beside: Client, tmp_path: Path) -> None:
    write_program(tmp_path, mini)
    table = {"hdfs://namenode:8020": mini.url, "tcp://scheduler:8786": beside.scheduler.address}
    check = "assert run.metrics['test']['accuracy'] > 0.85 and run.summary['bytes']['remote'] > 0"
    outputs = execute("hdfs", tmp_path, check, table, str(tmp_path))
    assert any("Checkpoint" in text for text in outputs["text/html"])
    run = f"{mini.url}/user/me/runs/notebook"
    assert fs.exists(f"{run}/summary.json")
    for url in (f"{mini.url}/data/notebook", run):
        fs.remove_tree(url)
