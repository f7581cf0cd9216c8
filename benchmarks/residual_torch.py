"""A contender: ResNet-20 or the transformer in PyTorch. ``python -m benchmarks.residual_torch NET FORM``."""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from benchmarks.contender import CHECKED, serve
from benchmarks.residual import NETS, TORCH, TORCH_BF16, Net, batch, first_values, layers


class Attention(nn.Module):
    """Causal self-attention of (N, T, D) by PyTorch's fused kernel."""

    def __init__(self, width: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        qkv, output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        # in our order
        self.qkv_weight, self.output_weight = qkv.weight, output.weight
        self.qkv_bias, self.output_bias = qkv.bias, output.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n, t, d = x.shape
        qkv = functional.linear(x, self.qkv_weight, self.qkv_bias).view(n, t, 3, self.n_heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return functional.linear(y.transpose(1, 2).reshape(n, t, d), self.output_weight, self.output_bias)


class Position(nn.Module):
    """Adds a learnt row for each place."""

    def __init__(self, n: int, width: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.empty(n, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.table[: x.shape[1]]


class Sum(nn.Module):
    """The sum of two."""

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


class Pool(nn.Module):
    """The mean of each channel."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(dim=(2, 3))


def module(layer: dict[str, Any], width: int) -> tuple[nn.Module, int]:
    """Return one layer of a job file, and how many features or channels it gives, for a source of ``width``."""
    kind = layer["type"]
    conf = next((value for key, value in layer.items() if key.endswith("_conf")), {})
    if kind == "Convolution":
        n = conf["num_filters"]
        return nn.Conv2d(width, n, conf["kernel"], conf["stride"], conf["pad"], bias=False), n
    if kind == "InnerProduct":
        return nn.Linear(width, conf["num_output"]), conf["num_output"]
    if kind == "Embedding":
        return nn.Embedding(conf["vocab_size"], conf["feature_dim"]), conf["feature_dim"]
    made: dict[str, Any] = {
        "BatchNorm": lambda: nn.BatchNorm2d(width),
        "LayerNorm": lambda: nn.LayerNorm(width),
        "PositionalEmbedding": lambda: Position(conf["max_length"], width),
        "MultiHeadAttention": lambda: Attention(width, conf["num_heads"]),
        "ReLU": lambda: nn.ReLU(inplace=True),
        "GELU": nn.GELU,
        "Add": Sum,
        "GlobalPooling": Pool,
    }
    return made[kind](), width


class Graph(nn.Module):
    """The layers of a job, each of which reads those that it names."""

    def __init__(self, net: Net) -> None:
        super().__init__()
        self.steps = [layer for layer in layers(net) if layer["type"] not in ("SoftmaxLoss", "RNNLabel")]
        self.made = nn.ModuleList()
        widths = {"data": net.shape[0]}
        for layer in self.steps:
            one, widths[layer["name"]] = module(layer, widths[layer["srclayers"][0]])
            self.made.append(one)
        self.edges = [(layer["name"], layer["srclayers"]) for layer in self.steps]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        values = {"data": x}
        for (name, sources), one in zip(self.edges, self.made, strict=True):
            x = values[name] = one(*(values[source] for source in sources))
        return x


def build(net: Net) -> Graph:
    """Return a net with first values."""
    model = Graph(net)
    tensors = [tensor for one in model.made for name, tensor in one.state_dict().items() if "num_batches" not in name]
    # ours are matrices with a row for each filter
    shapes = [(len(each), each[0].numel()) if each.dim() > 1 else tuple(each.shape) for each in tensors]
    for tensor, values in zip(tensors, first_values(net, shapes), strict=True):
        tensor.copy_(torch.from_numpy(values).view(tensor.shape))
    return model


def optimiser(net: Net, model: nn.Module, capturable: bool = False) -> torch.optim.Optimizer:
    """Return the job's updater, all params at once."""
    conf = net.job()["updater"]
    if conf["type"] == "AdamW":
        return torch.optim.AdamW(
            model.parameters(), net.rate, weight_decay=conf["weight_decay"], fused=True, capturable=capturable
        )
    return torch.optim.SGD(
        model.parameters(), net.rate, momentum=conf["momentum"], weight_decay=conf["weight_decay"], fused=True
    )


def main() -> None:
    """Run steps as asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("net", choices=NETS)
    parser.add_argument("form", choices=TORCH + TORCH_BF16)
    given = parser.parse_args()
    net = NETS[given.net]
    model: Any = build(net)
    records, labels = (torch.from_numpy(each) for each in batch(net))
    x, y = (records[:, :-1], labels[:, 1:].flatten()) if net.n_steps > 1 else (records, labels)
    if "channels_last" in given.form:
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)
    updater = optimiser(net, model)
    run = torch.compile(model) if "compile" in given.form else model

    def step() -> float:
        updater.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled="bf16" in given.form):
            loss = functional.cross_entropy(run(x).flatten(0, -2), y)
        (loss * net.n_steps).backward()  # type: ignore[no-untyped-call]
        updater.step()
        return float(loss.detach())

    serve([step() for _ in range(CHECKED)], step)


if __name__ == "__main__":
    main()
