"""What a new user need not write: a whole job file, and data before a net is looked at."""

from __future__ import annotations

import json

import pytest

from tests.first_hour.conftest import STORE, Desk

pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    "data",
    ["data/digits/train.arrow", "photos", "data/text/jargon.txt.gz"],
    ids=["store", "folder of pictures", "text"],
)
def test_init_writes_a_job_that_runs(desk: Desk, data: str) -> None:
    assert desk.singa("init", data, "-o", "made.yaml").code == 0
    text = (desk.directory / "made.yaml").read_text()
    assert text.count("# ") > 10
    done = desk.singa("run", "made.yaml", "--run-dir", "run", "--set", "train_steps=2", "--json", "--strict")
    assert done.code == 0, done.err
    assert json.loads(done.out)["steps"] == 2


def test_graph_and_validate_need_no_data_where_shapes_are_said(desk: Desk) -> None:
    nowhere = ["--set", f"{STORE}.path=not/here.arrow", "--set", f"{STORE}.backend=arrow"]
    done = desk.singa("graph", "job.yaml", *nowhere)
    assert done.code == 0, done.err
    assert "digraph" in done.out
