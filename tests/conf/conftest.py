"""Registries of some parts of each kind, under names of the tests: errors list what is known."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from singa_dask.api import REGISTRIES
from singa_dask.registry import Registry

PARTS = {
    "layer": ("layer type", "Accuracy CSVInput InnerProduct Pooling RBMHid RBMVis ReLU RecordInput SoftmaxLoss Tanh"),
    "updater": ("updater", "AdaGrad Adam Nesterov RMSProp SGD"),
    "schedule": ("learning rate schedule", "Fixed FixedStep Inverse InverseT Linear Step"),
    "initialiser": ("initialiser", "Constant Gaussian Uniform"),
    "algorithm": ("algorithm", "BP BPTT CD"),
    "store": ("store", "arrow kvfile lmdb textfile"),
}


@pytest.fixture(scope="session")
def registries() -> dict[str, Registry[Any]]:
    made = {}
    for kind, (words, names) in PARTS.items():
        made[kind] = Registry[Any](words)
        for name in names.split():
            made[kind].register(name)(REGISTRIES[kind].find(name))
    return made


@pytest.fixture(scope="package", autouse=True)
def home_that_stays() -> Iterator[None]:
    """Have ~ stand for itself, so that any text is a path that stays as it is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", "~")
        yield
