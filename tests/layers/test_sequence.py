"""Layers of sequences: what they refuse, and sequences of nothing but padding. See tests/oracles for their numbers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from singa_dask.errors import ConfigError
from singa_dask.layers import Feature
from singa_dask.testing.case import Case, results, source, wire

T, N, D = 3, 2, 4
POOLS = ("AVG", "MAX", "FIRST", "LAST")
CASES = [
    *(
        Case(
            "TimePooling",
            [(T * N, D), (T * N, 1)][: 1 + masked],
            {"timepooling_conf": {"pool": pool}},
            source_steps=[T, T],
            masked=masked,
        )
        for pool in POOLS
        for masked in (False, True)
    ),
    Case("ClassToken", [(T * N, D)], n_steps=T + 1, source_steps=[T]),
    Case("Stack", [(T * N, D)], source_steps=[T]),
    Case("Stack", [(T * N, D)], {"stack_conf": {"images": True}}, source_steps=[T]),
    Case("Unstack", [(N, T, D)], n_steps=T, source_steps=[1]),
    Case("Unstack", [(N, D, 1, T)], n_steps=T, source_steps=[1]),
    Case("Reshape", [(N, 3, 2, 4)], {"reshape_conf": {"shape": [4, -1]}}),
    Case("Reshape", [(N, 12)], {"reshape_conf": {"shape": [3, 2, 2]}}),
    Case("Reshape", [(N, 3, 4)], {"reshape_conf": {"shape": [-1]}}),
    Case("Transpose", [(N, 3, 4)], {"transpose_conf": {"axes": [1, 2]}}),
    Case("Transpose", [(N, 3, 2, 4)], {"transpose_conf": {"axes": [3, 1]}}),
]


def rows(n_steps: int, shape: tuple[int, ...] = (T * N, D)) -> Feature:
    x = source(shape)
    x.n_steps = n_steps
    return x


@pytest.mark.parametrize("pool", POOLS)
def test_nothing_but_padding_gives_zeros(pool: str) -> None:
    mask = Feature((T * N, 1), bool, requires_grad=False)
    mask.data = np.array([[False, True]] * T).reshape(-1, 1)
    arrays = results(wire("TimePooling", [rows(T), mask], timepooling_conf={"pool": pool}))
    y, gx = arrays["output 0"], arrays["the gradient of source 0"].reshape(T, N, D)
    assert (y[0] == 0).all() and (y[1] != 0).all()
    assert (gx[:, 0] == 0).all() and (gx[:, 1] != 0).any()


def test_a_class_token_comes_first() -> None:
    layer = wire("ClassToken", [rows(T)], n_steps=T + 1)
    y = results(layer, back=False)["output 0"].reshape(T + 1, N, D)
    np.testing.assert_array_equal(y[0], np.broadcast_to(layer.params[0].data, (N, D)))
    np.testing.assert_array_equal(y[1:], layer.sources[0].data.reshape(T, N, D))


@pytest.mark.parametrize(
    ("kind", "x", "n_steps", "conf", "words"),
    [
        ("TimePooling", rows(T), T, {}, "unroll_len: TimePooling makes one record of all time steps. Set 1"),
        ("TimePooling", rows(1), 1, {}, "srclayers[0]: 'src0' has one time step. Expected several"),
        ("Stack", rows(1), 1, {}, "srclayers[0]: 'src0' has one time step."),
        ("ClassToken", rows(T), T, {}, "unroll_len: expected 4, one more than 'src0' has, got 3."),
        ("Unstack", rows(1, (2, 3, 4)), 4, {}, "unroll_len: expected 3, the time steps of 'src0', got 4."),
        ("Unstack", rows(1, (2, 3)), 4, {}, "srclayers: 'src0' gives records of (3,), expected sequences"),
        ("Unstack", rows(1, (2, 3, 4, 5)), 5, {}, "srclayers: 'src0' gives images of height 4. Expected height 1"),
        ("Reshape", rows(1), 1, {"reshape_conf": {"shape": [3, -1]}}, "reshape_conf.shape: expected 4 values, as"),
        ("Reshape", rows(1), 1, {"reshape_conf": {"shape": [2]}}, "reshape_conf.shape: expected 4 values, as"),
        ("Reshape", rows(1), 1, {"reshape_conf": {"shape": [-1, -1]}}, "reshape_conf.shape: expected one to three"),
        ("Transpose", rows(1), 1, {"transpose_conf": {"axes": [1, 2]}}, "transpose_conf.axes: expected two axes of"),
    ],
)
def test_refuses(kind: str, x: Feature, n_steps: int, conf: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        wire(kind, [x], n_steps=n_steps, **conf)
