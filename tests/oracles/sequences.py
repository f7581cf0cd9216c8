"""Random nets of sequences, for `tests.oracles.nets`: rows (T N, D) of T time steps, those of the first one first."""

from __future__ import annotations

import math
from typing import Any

from tests.oracles.nets import VOCAB, N, RandomNet

__all__ = ["grow"]

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def grow(net: RandomNet) -> None:
    """Grow a net that reads numbers, and ends with a loss for each time step or for each sequence."""
    import torch

    n_steps, width = net.draw(3, 5), net.of([4, 6])
    numbers = net.feed((n_steps + 1,), kind="integers", below=VOCAB, numbers=True, classes=3)
    x = embedded(net, numbers, n_steps, width)
    mask = ""
    if net.yes():
        block = {"padding": net.draw(0, VOCAB - 1)}
        mask = net.add(
            "PaddingMask",
            [numbers],
            (1,),
            lambda _, ids: (ids.T[:n_steps] != block["padding"]).reshape(-1, 1),
            n_steps=n_steps,
            paddingmask_conf=block,
        )
    memory = ""
    if net.yes():
        others = net.feed((net.draw(2, 4),), kind="integers", below=VOCAB, numbers=True)
        memory = embedded(net, others, net.shapes[others][0], width)
    for _ in range(net.draw(1, 4)):
        x = sequence_layer(net, x, mask, memory)
    if net.yes():
        labels = net.add(
            "RNNLabel", [numbers], (1,), lambda _, ids: ids.T[1 : n_steps + 1].reshape(-1), n_steps=n_steps
        )
        net.end(x, numbers, labels)
        return
    width = net.shapes[x][0]
    match net.draw(0, 3):
        case 0:
            x = pooled(net, x, mask)
        case 1:
            x = net.add(
                "ClassToken",
                [x],
                (width,),
                lambda p, x: torch.cat([p[0].expand(N, -1), x]),
                1,
                n_steps=n_steps + 1,
            )
            x = pooled(net, attention(net, x, "", ""), "", "FIRST")
        case 2:
            x = net.add(
                "Stack",
                [x],
                (n_steps, width),
                lambda _, x: x.reshape(n_steps, N, -1).transpose(0, 1),
                n_steps=1,
            )
            back = net.add(
                "Unstack",
                [x],
                (width,),
                lambda _, x: x.transpose(0, 1).reshape(-1, width),
                n_steps=n_steps,
            )
            x = pooled(net, back, mask) if net.yes() else x
        case _:
            x = net.add(
                "Stack",
                [x],
                (width, 1, n_steps),
                lambda _, x: x.reshape(n_steps, N, -1).permute(1, 2, 0)[:, :, None],
                n_steps=1,
                stack_conf={"images": True},
            )
            x = net.global_pooling(net.convolution(x))
    net.end(x, numbers)


def embedded(net: RandomNet, numbers: str, n_steps: int, width: int) -> str:
    """Read numbers as rows of a table."""
    block = {"vocab_size": VOCAB, "feature_dim": width}
    x = net.add(
        "Embedding",
        [numbers],
        (width,),
        lambda p, ids: p[0][ids.T[:n_steps].reshape(-1).long()],
        1,
        n_steps=n_steps,
        embedding_conf=block,
    )
    if net.yes():
        more = {"max_length": n_steps + net.draw(0, 2)}
        x = net.add(
            "PositionalEmbedding",
            [x],
            (width,),
            lambda p, x: x + p[0][:n_steps].repeat_interleave(N, 0),
            1,
            positionalembedding_conf=more,
        )
    return x


def sequence_layer(net: RandomNet, x: str, mask: str, memory: str) -> str:
    kind = net.draw(0, 6)
    if kind <= 1:
        return attention(net, x, mask if net.yes() else "", memory if net.yes() else "")
    if kind <= 3:
        return recurrent(net, x, mask if net.yes() else "")
    if kind == 4:
        return net.residual(x, net.of([net.activation, net.row_norm, lambda x: net.dense(x, net.shapes[x][0])]))
    if kind == 5:
        return net.joined(x, lambda x: net.dense(x, 2))
    return net.of([net.activation, net.row_norm])(x)


def attention(net: RandomNet, x: str, mask: str, memory: str) -> str:
    import torch

    n_steps, width = net.steps[x], net.shapes[x][0]
    memory = memory if memory and net.shapes[memory][0] == width else ""
    mask = "" if memory else mask
    n_heads = net.of([n for n in (1, 2) if not width % n])
    n_keys, size = net.steps[memory or x], width // n_heads
    causal, bias = net.yes(), net.yes()
    rotary = net.number(2, 100) if not memory and size % 2 == 0 and net.yes() else None
    block = {"num_heads": n_heads, "causal": causal, "bias_term": bias}
    block |= {"rotary_base": rotary} if rotary else {}

    def turned(x: Any) -> Any:
        """Return (N, H, T, d) with pairs (k, k + d / 2) turned by t rotary^(-2 k / d)."""
        half = size // 2
        angles = torch.arange(n_steps)[:, None] * (rotary or 1.0) ** (-torch.arange(half).double() * 2 / size)
        one, two = x[..., :half], x[..., half:]
        return torch.cat([one * angles.cos() - two * angles.sin(), two * angles.cos() + one * angles.sin()], -1)

    def function(p: Any, x: Any, *others: Any) -> Any:
        source = others[0] if memory else x
        biases = p[2].split(width) if bias else (0, 0, 0)
        q, k, v = (
            (rows @ w.T + b).reshape(-1, N, n_heads, size).permute(1, 2, 0, 3)
            for rows, w, b in zip((x, source, source), p[0].split(width), biases, strict=True)
        )
        if rotary:
            q, k = turned(q), turned(k)
        scores = (q @ k.transpose(2, 3) / math.sqrt(size)).exp()
        allowed = torch.ones(n_steps, n_keys, dtype=torch.bool).tril() if causal else torch.ones(n_steps, n_keys) > 0
        allowed = allowed.expand(N, 1, n_steps, n_keys)
        if mask:
            allowed = allowed & others[-1].reshape(n_keys, N).T[:, None, None]
        scores = scores * allowed
        total = scores.sum(-1, keepdim=True)
        y = scores / torch.where(total == 0, torch.ones_like(total), total) @ v
        return y.permute(2, 0, 1, 3).reshape(-1, width) @ p[1].T + (p[3] if bias else 0)

    sources = [x, *([memory] if memory else []), *([mask] if mask else [])]
    more: dict[str, Any] = {}
    return net.add(
        "MultiHeadAttention", sources, (width,), function, 4 if bias else 2, multiheadattention_conf=block, **more
    )


def recurrent(net: RandomNet, x: str, mask: str) -> str:
    import torch

    kind, dim, n_steps = net.of([*GATES]), net.draw(3, 5), net.steps[x]
    n, bias, reverse = GATES[kind], net.yes(), net.draw(0, 2) == 0
    block = {"dim_hidden": dim, "bias_term": bias, "reverse": reverse}

    def function(p: Any, x: Any, *masks: Any) -> Any:
        w, u = p[:n], p[n : 2 * n]
        b = p[2 * n :] if bias else [0] * n
        steps = x.reshape(n_steps, N, -1)
        h = c = torch.zeros(N, dim, dtype=torch.float64)
        states: list[Any] = [None] * n_steps
        for t in reversed(range(n_steps)) if reverse else range(n_steps):
            xs, hs = [steps[t] @ w[k].T + b[k] for k in range(n)], [h @ u[k].T for k in range(n)]
            if kind == "RNN":
                new, cell = torch.tanh(xs[0] + hs[0]), c
            elif kind == "GRU":
                z, r = torch.sigmoid(xs[0] + hs[0]), torch.sigmoid(xs[1] + hs[1])
                new, cell = z * h + (1 - z) * torch.tanh(xs[2] + r * hs[2]), c
            else:
                i, f, o = (torch.sigmoid(xs[k] + hs[k]) for k in (0, 1, 3))
                cell = f * c + i * torch.tanh(xs[2] + hs[2])
                new = o * torch.tanh(cell)
            if masks:
                valid = masks[0].reshape(n_steps, N)[t][:, None]
                new, cell = torch.where(valid, new, h), torch.where(valid, cell, c)
            h, c = new, cell
            states[t] = h
        return torch.cat(states)

    sources = [x, mask] if mask else [x]
    return net.add(kind, sources, (dim,), function, n * (2 + bias), **{f"{kind.lower()}_conf": block})


def pooled(net: RandomNet, x: str, mask: str, pool: str = "") -> str:
    import torch

    n_steps = net.steps[x]
    pool = pool or net.of(["AVG", "MAX", "FIRST", "LAST"])

    def function(_: Any, x: Any, *masks: Any) -> Any:
        rows = x.reshape(n_steps, N, -1)
        valid = masks[0].reshape(n_steps, N) if masks else torch.ones(n_steps, N, dtype=torch.bool)
        found = []
        for k in range(N):
            own = rows[valid[:, k], k]
            if not len(own):
                found.append(0 * rows[0, k])
            else:
                of = {"AVG": own.mean(0), "MAX": own.max(0)[0], "FIRST": own[0], "LAST": own[-1]}
                found.append(of[pool])
        return torch.stack(found)

    sources = [x, mask] if mask else [x]
    return net.add("TimePooling", sources, net.shapes[x], function, n_steps=1, timepooling_conf={"pool": pool})
