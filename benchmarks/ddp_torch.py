"""A contender: one of two processes of PyTorch's DistributedDataParallel over gloo, on this machine.

``python -m benchmarks.ddp_torch NET FORM BATCH RANK PORT``
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from typing import Any

import torch
from torch import distributed, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from benchmarks.contender import CHECKED, NETS, Net, batch, serve
from benchmarks.net_torch import build, faster_optimiser

RANKS = 2
RESNET = "resnet18"
NETS_OF_TORCH = {**NETS, RESNET: Net("cifar10/convnet.yaml", 64, (3, 32, 32), 10)}
"""The nets by name. ResNet-18 is a module of PyTorch only: its job file gives just the updater."""


class Block(nn.Module):
    """Two convolutions, added to their input."""

    def __init__(self, n_inputs: int, n: int, stride: int) -> None:
        super().__init__()
        self.first, self.first_norm = nn.Conv2d(n_inputs, n, 3, stride, 1, bias=False), nn.BatchNorm2d(n)
        self.second, self.second_norm = nn.Conv2d(n, n, 3, 1, 1, bias=False), nn.BatchNorm2d(n)
        shorter = nn.Sequential(nn.Conv2d(n_inputs, n, 1, stride, bias=False), nn.BatchNorm2d(n))
        self.short: nn.Module = nn.Identity() if stride == 1 and n_inputs == n else shorter

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = functional.relu(self.first_norm(self.first(x)))
        return functional.relu(self.second_norm(self.second(y)) + self.short(x))


class ResNet18(nn.Module):
    """ResNet-18 for small pictures: its first convolution has a kernel of 3, and no pooling follows."""

    def __init__(self, width: int = 16, n_classes: int = 10) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        widths = [width, width, width, 2 * width, 2 * width, 4 * width, 4 * width, 8 * width, 8 * width]
        self.blocks = nn.Sequential(*(Block(a, b, 1 if a == b else 2) for a, b in pairwise(widths)))
        self.last = nn.Linear(8 * width, n_classes)

    def forward(self, x: torch.Tensor) -> Any:
        return self.last(self.blocks(functional.relu(self.norm(self.first(x)))).mean((2, 3)))


def model_of(name: str) -> nn.Module:
    """Return a net of `NETS_OF_TORCH`, for a TorchModule."""
    return groups_of(name, NETS_OF_TORCH[name])[0]


def groups_of(name: str, net: Net) -> tuple[nn.Module, list[dict[str, Any]]]:
    """Return a net with first values, and groups of its params for an optimiser."""
    if name != RESNET:
        return build(net)
    torch.manual_seed(0)
    model = ResNet18()
    return model, [{"params": list(model.parameters()), "lr": 1, "weight_decay": 1}]


def main() -> None:
    """Run steps as asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("net", choices=NETS_OF_TORCH)
    parser.add_argument("form", choices=("eager", "channels_last"))
    parser.add_argument("batch", type=int)
    parser.add_argument("rank", type=int)
    parser.add_argument("port")
    given = parser.parse_args()
    net = NETS_OF_TORCH[given.net]._replace(n_rows=given.batch)
    place = f"tcp://127.0.0.1:{given.port}"
    distributed.init_process_group("gloo", init_method=place, rank=given.rank, world_size=RANKS)
    model, groups = groups_of(given.net, net)
    images, classes = batch(net)
    mine = slice(given.rank * given.batch // RANKS, (given.rank + 1) * given.batch // RANKS)
    x, y = torch.from_numpy(images[mine]), torch.from_numpy(classes[mine])
    if given.form == "channels_last":
        model, x = model.to(memory_format=torch.channels_last), x.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    sgd, form = faster_optimiser(net, model, groups)
    shared = DistributedDataParallel(model, gradient_as_bucket_view=True)

    def step() -> float:
        sgd.zero_grad()
        loss = functional.cross_entropy(shared(x), y)
        loss.backward()
        sgd.step()
        return float(loss.detach())

    serve([step() for _ in range(CHECKED)], step, form)
    distributed.destroy_process_group()


if __name__ == "__main__":
    main()
