"""What the contract of the kernels is run with: every backend, in both precisions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from singa_dask.ops import NumpyOps, OneDnnOps
from tests.backends import BACKENDS, backend
from tests.contracts.arrays import BASES
from tests.contracts.inherited import calls_own_kernel

HERE = Path(__file__).parent
# Backends that inherit kernels from numpy. A GPU shares no memory with numpy and has every kernel of its own.
INHERIT = {"onednn": OneDnnOps}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run what calls only inherited kernels once, as numpy's; leave all but pairs of parameters to the soak.

    A backend that inherits kernels has pairs of its own: it leaves some types and layouts to numpy, so that its kernels
    might meet a value of another parameter only in one of these.
    """
    same = [item for item in items if isinstance(item, pytest.Function) and only_inherits(item)]
    if same:
        config.hook.pytest_deselected(items=same)
        gone = set(same)
        items[:] = [item for item in items if item not in gone]
    for item in items:
        if item.path.is_relative_to(HERE):
            name = parameters(item).get("ops")
            item.add_marker(pytest.mark.pairs(within=name if name in INHERIT else ""))
            if is_float64_on_a_gpu(item):
                item.add_marker("long")


def parameters(item: pytest.Item) -> Mapping[str, Any]:
    """Return the values of the parameters of a test."""
    return item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}


def is_float64_on_a_gpu(item: pytest.Item) -> bool:
    """Return whether a test compiles kernels for a GPU in float64: they are those of float32 with another type."""
    params = parameters(item)
    return params.get("ops") == "cuda:0" and params.get("dtype") == "float64"


def only_inherits(item: pytest.Function) -> bool:
    """Return whether a test runs on a backend none of whose own kernels it calls."""
    params = parameters(item)
    kind = INHERIT.get(params.get("ops"))
    return kind is not None and item.path.is_relative_to(HERE) and not calls_own_kernel(item.function, params, kind)


@pytest.fixture(params=BACKENDS)
def ops(request: pytest.FixtureRequest) -> Iterator[NumpyOps]:
    yield backend(request.param)
    BASES.clear()


@pytest.fixture(params=["float32", "float64"])
def dtype(request: pytest.FixtureRequest) -> np.dtype[Any]:
    return np.dtype(request.param)


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(7)
