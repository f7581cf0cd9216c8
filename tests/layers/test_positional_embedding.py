"""PositionalEmbedding: a row of its table for each time step, in whole sequences and step by step."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from singa_dask.conf import Phase
from singa_dask.errors import ConfigError, DataError
from singa_dask.layers import Context, Layer
from singa_dask.testing.case import CPU, Case, forward, source, wire
from singa_dask.testing.layer_exam import check_gradients

T, N, D = 3, 2, 4
CASES = [
    Case("PositionalEmbedding", [(T * N, D)], {"positionalembedding_conf": {"max_length": 5}}, n_steps=T),
    Case("PositionalEmbedding", [(N, D)], {"positionalembedding_conf": {"max_length": 2}}),
]


def made(x: Any, n_steps: int, context: Context | None = None, **block: Any) -> Layer:
    return wire("PositionalEmbedding", [x], context, n_steps, positionalembedding_conf={"max_length": 4, **block})


def test_formula() -> None:
    x = source((T * N, D))
    layer = made(x, T)
    forward(layer)
    wanted = x.data.reshape(T, N, D) + layer.params[0].data[:T, None]
    np.testing.assert_allclose(layer.features[0].data, wanted.reshape(-1, D))
    assert [(param.name, param.shape) for param in layer.params] == [("layer.table", (4, D))]


def test_records_need_no_gradient() -> None:
    check_gradients(made(source((T * N, D), grad=False), T))


def test_positions_go_on_from_batch_to_batch() -> None:
    x = source((4 * N, D), grad=False)
    whole = made(x, 4)
    forward(whole)
    context = Context(phase=Phase.TEST, dtype=np.dtype(np.float64))
    one = source((N, D), grad=False)
    layer = made(one, 1, context, carry_state=True)
    layer.params[0].share(whole.params[0])
    for _ in range(2):
        context.stream_start = True
        for t in range(4):
            CPU.copy(x.data[t * N : (t + 1) * N], out=one.data)
            forward(layer)
            context.stream_start = False
            np.testing.assert_array_equal(layer.features[0].data, whole.features[0].data[t * N : (t + 1) * N])
    words = "layer layer: there is no position 4. Expected at most 4 time steps, as positionalembedding_conf.max_length"
    with pytest.raises(DataError, match=re.escape(words)):
        forward(layer)


@pytest.mark.parametrize(
    ("shape", "block", "words"),
    [
        ((6, 2, 2, 2), {}, "srclayers: 'src0' gives records of (2, 2, 2), expected rows."),
        ((6, 4), {"max_length": 2}, "positionalembedding_conf.max_length: expected at least 3, the time steps, got 2."),
        ((6, 4), {"carry_state": True}, "not carried from batch to batch in training"),
    ],
)
def test_refuses(shape: tuple[int, ...], block: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(words)):
        made(source(shape), T, **block)
