"""Layers of sequences against PyTorch: masks of padding, cross-attention, rotary positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from singa_dask.layers import Feature
from singa_dask.testing.case import forward, source, wire
from tests.oracles.compare import check
from tests.oracles.test_recurrent import ORDER

torch = pytest.importorskip("torch")
functional: Any = torch.nn.functional
T, S, N, D = 5, 4, 3, 8
LENGTHS = [5, 1, 3]


def rows(n_steps: int, seed: int = 0) -> Feature:
    """Return rows of some time steps."""
    feature = source((n_steps * N, D), seed)
    feature.n_steps = n_steps
    return feature


def mask_of(lengths: Sequence[int], n_steps: int) -> Feature:
    """Return the padding mask of sequences with these lengths."""
    feature = Feature((n_steps * N, 1), bool, requires_grad=False)
    feature.n_steps = n_steps
    feature.data = (np.arange(n_steps)[:, None] < lengths).reshape(-1, 1)
    return feature


@pytest.mark.parametrize("crosses", [False, True])
@pytest.mark.parametrize("is_masked", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_attention(crosses: bool, is_masked: bool, causal: bool, bias: bool) -> None:
    n_keys = S if crosses else T
    lengths = [min(n, n_keys) for n in LENGTHS]

    def reference(x: Any, *rest: Any) -> Any:
        memory, params = (rest[0] if crosses else x), rest[crosses + is_masked :]
        attention = torch.nn.MultiheadAttention(D, 2, bias=bias, dtype=torch.float64)
        own = dict(zip(["in_proj_weight", "out_proj.weight", "in_proj_bias", "out_proj.bias"], params, strict=False))
        keys = memory.reshape(n_keys, N, D)
        how: dict[str, Any] = {"need_weights": False}
        if is_masked:
            how["key_padding_mask"] = torch.arange(n_keys) >= torch.tensor(lengths)[:, None]
        if causal:
            how["attn_mask"] = torch.ones(T, n_keys, dtype=torch.bool).triu(1)
        y, _ = torch.func.functional_call(attention, own, (x.reshape(T, N, D), keys, keys), how)
        return y.reshape(T * N, D)

    sources = [rows(T), *([rows(S, 1)] if crosses else []), *([mask_of(lengths, n_keys)] if is_masked else [])]
    block = {"num_heads": 2, "causal": causal, "bias_term": bias}
    check(wire("MultiHeadAttention", sources, n_steps=T, multiheadattention_conf=block), reference)


@pytest.mark.parametrize("causal", [False, True])
def test_rotary_positions(causal: bool) -> None:
    base, n_heads, width = 100.0, 2, 4

    def rotated(x: Any) -> Any:
        """Return (T, N, H, d) multiplied by e^(i t base^(-2 k / d)), of pairs that are complex numbers."""
        numbers = torch.complex(x[..., : width // 2], x[..., width // 2 :])
        powers = base ** (torch.arange(width // 2, dtype=torch.float64) * -2 / width)
        angles = torch.arange(T)[:, None] * powers
        turned = numbers * torch.polar(torch.ones_like(angles), angles)[:, None, None]
        return torch.cat([turned.real, turned.imag], dim=-1)

    def reference(x: Any, w_in: Any, w_out: Any, b_in: Any, b_out: Any) -> Any:
        qkv = functional.linear(x, w_in, b_in).reshape(T, N, 3, n_heads, width)
        q, k, v = (each.permute(1, 2, 0, 3) for each in (rotated(qkv[:, :, 0]), rotated(qkv[:, :, 1]), qkv[:, :, 2]))
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
        return functional.linear(y.permute(2, 0, 1, 3).reshape(T * N, D), w_out, b_out)

    block = {"num_heads": n_heads, "causal": causal, "rotary_base": base}
    check(wire("MultiHeadAttention", [rows(T)], n_steps=T, multiheadattention_conf=block), reference)


@pytest.mark.parametrize("kind", ["GRU", "LSTM", "RNN"])
@pytest.mark.parametrize("reverse", [False, True])
def test_recurrent_layers_of_packed_sequences(kind: str, reverse: bool) -> None:
    """A padded output of PyTorch's is 0, and of ours the last state."""
    order = ORDER[kind]
    n = len(order)
    valid = torch.arange(T)[:, None] < torch.tensor(LENGTHS)

    def reference(x: Any, _: Any, *params: Any) -> Any:
        w, u, b = (torch.cat([params[k * n + gate] for gate in order]) for k in range(3))
        layer = getattr(torch.nn, kind)(D, 6, bidirectional=True, dtype=torch.float64)
        # the layer of one direction is that of both with the other half left out
        names = [
            f"{name}_l0{'_reverse' if reverse else ''}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        ]
        own = dict(zip(names, (w, u, b, torch.zeros_like(b)), strict=True))
        packed = torch.nn.utils.rnn.pack_padded_sequence(x.reshape(T, N, D), LENGTHS, enforce_sorted=False)
        y, last = torch.func.functional_call(layer, own, (packed,))
        y, _ = torch.nn.utils.rnn.pad_packed_sequence(y, total_length=T)
        y, last = y[..., 6 * reverse : 6 * reverse + 6], (last[0] if kind == "LSTM" else last)[int(reverse)]
        # before its first step, which is the last one of a sequence, a reversed layer has zeros
        return torch.where(valid[..., None], y, torch.zeros_like(last) if reverse else last).reshape(T * N, 6)

    block = {f"{kind.lower()}_conf": {"dim_hidden": 6, "reverse": reverse}}
    check(wire(kind, [rows(T), mask_of(LENGTHS, T)], n_steps=T, **block), reference)


@pytest.mark.parametrize("pool", ["AVG", "MAX", "FIRST", "LAST"])
@pytest.mark.parametrize("is_masked", [False, True])
def test_pooling_over_time(pool: str, is_masked: bool) -> None:
    lengths = LENGTHS if is_masked else [T] * N

    def reference(x: Any, *_: Any) -> Any:
        sequences = [x.reshape(T, N, D)[:n, k] for k, n in enumerate(lengths)]
        ends = {"AVG": lambda s: s.mean(dim=0), "MAX": lambda s: s.amax(dim=0), "FIRST": lambda s: s[0]}
        return torch.stack([ends.get(pool, lambda s: s[-1])(each) for each in sequences])

    sources = [rows(T), *([mask_of(LENGTHS, T)] if is_masked else [])]
    check(wire("TimePooling", sources, timepooling_conf={"pool": pool}), reference)


@pytest.mark.parametrize("epsilon", [1e-6, 0.1])
def test_rms_norm(epsilon: float) -> None:
    layer = wire("RMSNorm", [rows(T)], rmsnorm_conf={"epsilon": epsilon})
    check(layer, lambda x, scale: functional.rms_norm(x, (D,), scale, epsilon))


def test_class_token() -> None:
    layer = wire("ClassToken", [rows(T)], n_steps=T + 1)
    check(layer, lambda x, token: torch.cat([token.expand(1, N, -1), x.reshape(T, N, D)]).flatten(0, 1))


def test_other_axes() -> None:
    images, sequences = (2, 3, 4, 5), (2, 3, 4)
    check(wire("Reshape", [source(images)], reshape_conf={"shape": [5, -1]}), lambda x: x.reshape(2, 5, 12))
    check(wire("Reshape", [source(sequences)], reshape_conf={"shape": [2, 3, 2]}), lambda x: x.reshape(2, 2, 3, 2))
    check(wire("Transpose", [source(images)], transpose_conf={"axes": [1, 3]}), lambda x: x.transpose(1, 3))
    check(wire("Stack", [rows(T)]), lambda x: torch.stack(x.split(N), dim=1))
    images_of_steps = wire("Stack", [rows(T)], stack_conf={"images": True})
    check(images_of_steps, lambda x: torch.stack(x.split(N), dim=2).unsqueeze(2))
    check(wire("Unstack", [source(sequences)], n_steps=3), lambda x: torch.cat(x.unbind(1)))
    check(wire("Unstack", [source((2, 3, 1, 4))], n_steps=4), lambda x: torch.cat(x.squeeze(2).unbind(2)))


@pytest.mark.parametrize(("groups", "dilation", "stride", "pad"), [(1, 1, 1, 1), (2, 2, 1, 2), (8, 1, 2, 0)])
def test_a_convolution_over_time(groups: int, dilation: int, stride: int, pad: int) -> None:
    block = {"num_filters": 8, "kernel_y": 1, "kernel_x": 3, "groups": groups, "pad_x": pad}
    block |= {"dilation_x": dilation, "stride_x": stride}
    stack = wire("Stack", [rows(7)], stack_conf={"images": True})
    forward(stack)
    convolution = wire("Convolution", stack.features, convolution_conf=block)

    def reference(x: Any, w: Any, b: Any) -> Any:
        signals = x.squeeze(2)
        assert (signals == torch.tensor(stack.sources[0].data).reshape(7, N, D).permute(1, 2, 0)).all()
        y = functional.conv1d(signals, w.reshape(8, -1, 3), b, stride, pad, dilation, groups)
        return y.unsqueeze(2)

    check(convolution, reference)
