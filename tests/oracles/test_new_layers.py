"""Layers of residual nets and transformers against PyTorch: sums, norms, activations, pooling, attention, positions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from singa_dask import modules
from singa_dask.layers import LAYERS
from singa_dask.testing.case import backward, forward, metric, source, wire
from tests.oracles.compare import apart, assert_close, check, numbers, tensor

torch = pytest.importorskip("torch")
functional: Any = torch.nn.functional
ROWS, IMAGES = (6, 8), (3, 8, 5, 4)
T, N, D = 5, 3, 8


@pytest.mark.parametrize("shape", [ROWS, IMAGES])
@pytest.mark.parametrize("n", [2, 3, 4])
def test_sums_and_products(shape: tuple[int, ...], n: int) -> None:
    check(wire("Add", [source(shape, k) for k in range(n)]), lambda *xs: sum(xs))
    check(wire("Multiply", [source(shape, k) for k in range(n)]), lambda *xs: torch.stack(xs).prod(dim=0))


@pytest.mark.parametrize("axes", [(), (1, 1)])
def test_gates_of_channels(axes: tuple[int, ...]) -> None:
    sources = [source((*IMAGES[:2], *axes)), source(IMAGES, 1), source(IMAGES[:2], 2)]
    check(wire("Multiply", sources), lambda g, x, h: g.reshape(*IMAGES[:2], 1, 1) * x * h[:, :, None, None])


@pytest.mark.parametrize("shape", [ROWS, IMAGES])
@pytest.mark.parametrize("spread", [1.0, 30.0])
def test_activations(shape: tuple[int, ...], spread: float) -> None:
    kinds: list[tuple[str, dict[str, Any], Any]] = [
        ("SiLU", {}, functional.silu),
        ("GELU", {}, functional.gelu),
        ("GELU", {"gelu_conf": {"approximate": "tanh"}}, lambda x: functional.gelu(x, approximate="tanh")),
        ("LeakyReLU", {}, functional.leaky_relu),
        ("LeakyReLU", {"leakyrelu_conf": {"negative_slope": 0.3}}, lambda x: functional.leaky_relu(x, 0.3)),
    ]
    for kind, conf, reference in kinds:
        x = source(shape)
        x.data *= spread
        check(wire(kind, [x], **conf), reference)


@pytest.mark.parametrize("spread", [1.0, 30.0])
def test_mish_by_formulas(spread: float) -> None:
    path = Path(__file__).parents[2] / "examples" / "parts" / "mish.py"
    modules.load(modules.read([str(path)]), [LAYERS])
    x = source(IMAGES)
    x.data *= spread
    check(wire("mish.Mish", [x]), functional.mish)


@pytest.mark.parametrize("epsilon", [1e-5, 0.1])
@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_layer_norm(epsilon: float, offset: float) -> None:
    x = source(ROWS)
    x.data += offset
    layer = wire("LayerNorm", [x], layernorm_conf={"epsilon": epsilon})
    check(layer, lambda x, scale, shift: functional.layer_norm(x, (ROWS[1],), scale, shift, epsilon))


@pytest.mark.parametrize("n_groups", [1, 2, 8])
@pytest.mark.parametrize("epsilon", [1e-5, 0.1])
def test_group_norm(n_groups: int, epsilon: float) -> None:
    layer = wire("GroupNorm", [source(IMAGES)], groupnorm_conf={"num_groups": n_groups, "epsilon": epsilon})
    check(layer, lambda x, scale, shift: functional.group_norm(x, n_groups, scale, shift, epsilon))


@pytest.mark.parametrize("shape", [IMAGES, (2, 3, 1, 1), (2, 3, 17, 16)])
def test_global_pooling(shape: tuple[int, ...]) -> None:
    check(wire("GlobalPooling", [apart(shape)]), lambda x: x.mean(dim=(2, 3)))
    layer = wire("GlobalPooling", [apart(shape)], globalpooling_conf={"pool": "MAX"})
    check(layer, lambda x: functional.adaptive_max_pool2d(x, 1).flatten(1))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("n_heads", [1, 2, 8])
def test_multi_head_attention(causal: bool, bias: bool, n_heads: int) -> None:
    def reference(x: Any, w_in: Any, w_out: Any, b_in: Any = None, b_out: Any = None) -> Any:
        attention = torch.nn.MultiheadAttention(D, n_heads, bias=bias, dtype=torch.float64)
        own = {"in_proj_weight": w_in, "out_proj.weight": w_out}
        own |= {"in_proj_bias": b_in, "out_proj.bias": b_out} if bias else {}
        mask = torch.ones(T, T, dtype=torch.bool).triu(1) if causal else None
        x = x.reshape(T, N, D)
        y, _ = torch.func.functional_call(attention, own, (x, x, x), {"attn_mask": mask, "need_weights": False})
        return y.reshape(T * N, D)

    block = {"num_heads": n_heads, "causal": causal, "bias_term": bias}
    check(wire("MultiHeadAttention", [source((T * N, D))], n_steps=T, multiheadattention_conf=block), reference)


def test_dropout_of_attention_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    block = {"num_heads": 2, "dropout_ratio": 0.25}
    sources = [source((T * N, D)), source((7 * N, D), 1)]
    sources[0].n_steps, sources[1].n_steps = T, 7
    layer = wire("MultiHeadAttention", sources, n_steps=T, multiheadattention_conf=block)

    def reference(x: Any, memory: Any, w_in: Any, w_out: Any, b_in: Any, b_out: Any) -> Any:
        # PyTorch's attention with its dropout, but with our draws
        mask = tensor(layer.dropout_mask.data, learns=False).reshape(N * 2, T, 7)  # type: ignore[attr-defined]
        assert set(mask.unique().tolist()) == {0, 1 / 0.75}
        monkeypatch.setattr(functional, "dropout", lambda weights, p: weights * mask if p == 0.25 else None)
        attention = torch.nn.MultiheadAttention(D, 2, dropout=0.25, dtype=torch.float64)
        own = {"in_proj_weight": w_in, "out_proj.weight": w_out, "in_proj_bias": b_in, "out_proj.bias": b_out}
        x, memory = x.reshape(T, N, D), memory.reshape(7, N, D)
        y, _ = torch.func.functional_call(attention, own, (x, memory, memory))
        return y.reshape(T * N, D)

    check(layer, reference)


def test_positional_embedding() -> None:
    def reference(x: Any, table: Any) -> Any:
        positions = functional.embedding(torch.arange(T), table)
        return (x.reshape(T, N, D) + positions[:, None]).reshape(T * N, D)

    block = {"max_length": T + 2}
    check(wire("PositionalEmbedding", [source((T * N, D))], n_steps=T, positionalembedding_conf=block), reference)


@pytest.mark.parametrize("smoothing", [0.1, 0.5])
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_label_smoothing(smoothing: float, scale: float) -> None:
    labels = [2, 0, 7, 3, 3, 1]
    block = {"label_smoothing": smoothing, "scale": scale}
    layer = wire("SoftmaxLoss", [source(ROWS), source((6,), labels=labels, grad=False)], softmaxloss_conf=block)
    scores = tensor(layer.sources[0].data)
    wanted = scale * functional.cross_entropy(scores, torch.tensor(labels), label_smoothing=smoothing)
    forward(layer)
    assert_close(metric(layer, "loss")(), numbers(wanted))
    backward(layer)
    wanted.backward()
    assert_close(layer.sources[0].grad, numbers(scores.grad))
