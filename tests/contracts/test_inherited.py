"""Which tests of the contract run on a backend that inherits kernels: those that call one of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from singa_dask.ops import NumpyOps, OneDnnOps
from singa_dask.ops.onednn.upcast import UpcastOps
from tests.contracts.inherited import calls_own_kernel


class Rectified(NumpyOps):
    def relu(self, x: Any, out: Any, negative_slope: float = 0.0) -> None:
        super().relu(x, out, negative_slope)


class Multiplied(NumpyOps):
    def _multiply_matrices(self, left: Any, right: Any, out: Any, accumulate: bool) -> None:
        super()._multiply_matrices(left, right, out, accumulate)


class Put(NumpyOps):
    def from_host(self, x: Any) -> Any:
        return super().from_host(x)


def put(ops: NumpyOps, x: Any) -> Any:
    return ops.from_host(x)


def by_name(ops: NumpyOps, name: str) -> None:
    getattr(ops, f"{name}_grad")(1, out=2)


def by_function(ops: NumpyOps, rule: Any) -> None:
    getattr(ops, rule.__name__)(1)


def relu() -> None: ...


def tanh() -> None: ...


def calls_relu(ops: NumpyOps) -> None:
    ops.relu(1, out=2)


def calls_linear(ops: NumpyOps) -> None:
    ops.linear(1, 2, None, out=3)


def calls_gradient(ops: NumpyOps) -> None:
    [ops.linear_grad_input(one, 2, out=3) for one in range(2)]


def hands_on(ops: NumpyOps) -> None:
    put(ops, 1)


def hides(ops: NumpyOps) -> None:
    for one in [ops]:
        one.sigmoid(1, out=2)


@pytest.mark.parametrize(
    ("test", "params", "kind", "runs"),
    [
        (calls_relu, {}, Rectified, True),
        (calls_relu, {}, Multiplied, False),
        (calls_relu, {}, UpcastOps, False),
        (calls_relu, {}, OneDnnOps, True),
        (calls_linear, {}, Multiplied, False),
        (calls_gradient, {}, Multiplied, True),
        (hands_on, {}, Put, True),
        (hands_on, {}, Rectified, False),
        (hides, {}, Rectified, True),
        (by_name, {"name": "relu"}, Rectified, True),
        (by_name, {"name": "sigmoid"}, Rectified, False),
        (by_name, {"name": "what"}, Rectified, True),
        (by_function, {"rule": relu}, Rectified, True),
        (by_function, {"rule": tanh}, Rectified, False),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_what_calls_an_own_kernel_runs(
    test: Callable[..., None], params: dict[str, Any], kind: type[NumpyOps], runs: bool
) -> None:
    assert calls_own_kernel(test, params, kind) is runs
