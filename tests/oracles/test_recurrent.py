"""Recurrent layers against PyTorch's, with the same weights, over several time steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from singa_dask.layers import Layer
from singa_dask.testing.case import source, wire
from tests.oracles.compare import check

torch = pytest.importorskip("torch")

N_STEPS, N, D, H = 4, 3, 5, 6
# PyTorch's gates, in its order: for each the place among ours.
ORDER = {"GRU": (1, 0, 2), "LSTM": (0, 1, 2, 3), "RNN": (0,)}
MEMBERS: list[tuple[str, dict[str, Any]]] = [
    ("GRU", {}),
    ("LSTM", {}),
    ("RNN", {"activation": "TANH"}),
    ("RNN", {"activation": "RELU"}),
    ("RNN", {"activation": "SIGMOID"}),
]
members = pytest.mark.parametrize(("kind", "block"), MEMBERS)


def recurrent(kind: str, block: dict[str, Any], given: bool, bias: bool = True) -> Layer:
    """Return a layer of all time steps; ``given`` with a first state from another layer."""
    sources = [source((N_STEPS * N, D)), source((N, H), seed=1)][: 1 + given]
    return wire(kind, sources, None, N_STEPS, **{f"{kind.lower()}_conf": {"dim_hidden": H, "bias_term": bias, **block}})


def of_torch(kind: str, block: dict[str, Any], x: Any, h: Any, params: Any) -> Any:
    """Return the states of all time steps, one after the other, as rows."""
    n = len(ORDER[kind])
    w, u, b = (torch.cat([group[k] for k in ORDER[kind]]) for group in (params[:n], params[n : 2 * n], params[2 * n :]))
    # of its two biases, ours is that of the input
    weights = [w, u, b, torch.zeros_like(b)]
    x = x.reshape(N_STEPS, N, D)
    # weights, has_biases, num_layers, dropout, train, bidirectional, batch_first
    how = (weights, True, 1, 0.0, False, False, False)
    if kind == "LSTM":
        return torch.lstm(x, (h[None], torch.zeros_like(h)[None]), *how)[0].flatten(0, 1)
    known = {"GRU": torch.gru, "TANH": torch.rnn_tanh, "RELU": torch.rnn_relu}
    return known[block.get("activation", "GRU")](x, h[None], *how)[0].flatten(0, 1)


def by_formula(x: Any, h: Any, params: Any) -> Any:
    """Return the states of a plain RNN with sigmoid, which PyTorch has not."""
    w, u, b = params
    states = []
    for xt in x.reshape(N_STEPS, N, D):
        h = torch.sigmoid(xt @ w.T + h @ u.T + b)
        states.append(h)
    return torch.cat(states)


@members
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_all_time_steps(kind: str, block: dict[str, Any], given: bool, bias: bool) -> None:
    def reference(x: Any, *rest: Any) -> Any:
        h, params = (rest[0], rest[1:]) if given else (torch.zeros(N, H, dtype=torch.float64), rest)
        if not bias:
            params = (*params, *(torch.zeros(H, dtype=torch.float64) for _ in ORDER[kind]))
        if block.get("activation") == "SIGMOID":
            return by_formula(x, h, params)
        return of_torch(kind, block, x, h, params)

    layer = recurrent(kind, block, given, bias)
    assert len(layer.params) == len(ORDER[kind]) * (2 + bias)
    assert np.prod(layer.features[0].shape) == N_STEPS * N * H
    check(layer, reference)
