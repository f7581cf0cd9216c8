"""A small job, built in Python."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import singa_dask as sd

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "data" / "digits" / "test.arrow"
SGD: dict[str, Any] = {"type": "SGD", "momentum": 0.9, "learning_rate": {"type": "Fixed", "base_lr": 0.05}}
KEYS: dict[str, Any] = {"name": "tiny", "seed": 7, "train_one_batch": {"alg": "BP"}, "updater": SGD}


def digits_net() -> sd.Net:
    """Return a net for the digits."""
    records = {"path": DIGITS, "shape": [28, 28], "batchsize": 20, "std_value": 255, "shuffle": "full"}
    return sd.Net(
        [
            sd.layer("RecordInput", name="data", store_conf=records),
            sd.layer("InnerProduct", num_output=16),
            sd.layer("ReLU"),
            sd.layer("InnerProduct", num_output=10),
            sd.layer("SoftmaxLoss", srclayers=["innerproduct2", "data"]),
        ]
    )


@pytest.fixture
def job() -> sd.Job:
    """Return a job of six steps."""
    return sd.Job(digits_net(), train_steps=6, disp_freq=2, **KEYS)
