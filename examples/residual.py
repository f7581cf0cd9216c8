"""A residual net for the digits, built of typed layers: ``python examples/residual.py``.

Editors complete the keys of each layer; mypy and pyright check them.
"""

from __future__ import annotations

from typing import Any, Literal

import singa_dask as sd
from singa_dask import nn


def digits(phase: Literal["train", "test"]) -> dict[str, Any]:
    """Return the layer that reads the digits of a phase."""
    return nn.RecordInput(
        name="data",
        include=phase,
        path=f"data/digits/{phase}.arrow",
        shape=[1, 28, 28],
        batchsize=50,
        shuffle="full",
        std_value=255.0,
    )


def filters(n: int, name: str) -> sd.Sequential:
    """Return a convolution and its normalisation."""
    return sd.Sequential(nn.Convolution(n, kernel=3, pad=1, bias_term=False), nn.BatchNorm(), name=name)


def residual(n: int, name: str, repeat: int = 1) -> sd.Sequential:
    """Return layers whose output is added to what they read, a number of times."""
    return sd.Sequential(
        filters(n, "first"),
        nn.ReLU(),
        filters(n, "second"),
        nn.Add(srclayers=["second", "$in"]),
        nn.ReLU(),
        name=name,
        repeat=repeat,
    )


job = sd.Job(
    sd.Net(
        [
            digits("train"),
            digits("test"),
            nn.Convolution(8, srclayers="data", kernel=3, stride=2, pad=1),
            residual(8, "block", repeat=2),
            nn.GlobalPooling(),
            nn.InnerProduct(10, name="scores"),
            nn.SoftmaxLoss(name="loss", srclayers=["scores", "data"]),
        ]
    ),
    name="residual",
    train_one_batch={"alg": "BP"},
    updater={"type": "Adam", "learning_rate": {"type": "Fixed", "base_lr": 0.01}},
    train_steps=200,
    disp_freq=50,
    test_freq=200,
)

if __name__ == "__main__":
    print(sd.train(job).metrics["test"])
