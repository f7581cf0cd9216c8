"""Modules of PyTorch as users write them; `test_torch_module` trains them here and there."""

from __future__ import annotations

from typing import Any

import pytest

torch: Any = pytest.importorskip("torch")
nn: Any = torch.nn


class Images(nn.Module):
    """Convolutions, a BatchNorm, a gate on channels, dropout."""

    def __init__(self, width: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        self.first = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(width)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width, 1), nn.Sigmoid())
        self.drop = nn.Dropout(dropout)
        self.last = nn.Linear(width * 16, 3)

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.norm(self.first(x.unsqueeze(1))))
        x = nn.functional.max_pool2d(x * self.gate(x), 2)
        return self.last(self.drop(x.flatten(1)))


class Pooled(nn.Module):
    """A frozen convolution, a BatchNorm, a maximum, dropout: what has kinks, no gradient, a state, random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.drop = nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.Dropout(0.25)
        self.first.requires_grad_(False)
        self.last = nn.Linear(32, 3)

    def forward(self, x: Any) -> Any:
        x = torch.relu(self.norm(self.first(x.unsqueeze(1))))
        return self.last(self.drop(nn.functional.max_pool2d(x, 2).flatten(1)))


class Dense(nn.Module):
    """Linear layers with a BatchNorm and dropout between them."""

    def __init__(self, inputs: int, outputs: int, hidden: int = 16) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(inputs, hidden), nn.BatchNorm1d(hidden), nn.Linear(hidden, outputs)
        self.drop = nn.Dropout(0.25)

    def forward(self, x: Any) -> Any:
        return self.last(self.drop(torch.relu(self.norm(self.first(x.flatten(1))))))


class Layers(nn.Module):
    """Two layers; the first may run twice, once in a checkpoint that runs a backward pass of its own."""

    def __init__(self, reentrant: bool = False) -> None:
        super().__init__()
        self.first, self.last, self.reentrant = nn.Linear(6, 6), nn.Linear(6, 3), reentrant

    def forward(self, x: Any) -> Any:
        x = torch.tanh(self.first(x))
        if self.reentrant:
            x = torch.utils.checkpoint.checkpoint(self.first, x, use_reentrant=True)
        return self.last(x)


class Words(nn.Module):
    """An LSTM over windows of the values, then a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(8, 5, batch_first=True, bidirectional=True)
        self.last = nn.Linear(10, 3)

    def forward(self, x: Any) -> Any:
        return self.last(self.lstm(x)[0].mean(1))


class Attention(nn.Module):
    """A layer of a transformer, with positions."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Parameter(torch.randn(8, 8) / 10)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, activation="gelu")
        self.last = nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        return self.last(self.layer(x + self.positions).mean(1))


class Tied(nn.Module):
    """Weights used twice, a frozen layer, a param that nothing reads, and spectral norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.frozen = nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 64)
        self.second.weight = self.first.weight
        self.frozen.requires_grad_(False)
        self.unused = nn.Parameter(torch.ones(2))
        self.last = nn.utils.parametrizations.spectral_norm(nn.Linear(64, 3))

    def forward(self, x: Any) -> Any:
        return self.last(torch.tanh(self.frozen(torch.tanh(self.second(torch.tanh(self.first(x.flatten(1))))))))


def images(width: int) -> Any:
    """Return a module that a function makes."""
    return Images(width)


def weighed(scores: Any, labels: Any, more: float = 1.0) -> Any:
    """Return a loss of its user: cross entropy, with the weight ``more`` for the last class."""
    return nn.functional.cross_entropy(scores, labels, weight=torch.tensor([1.0, 1.0, more], dtype=scores.dtype))


class Numbers(nn.Module):
    """A linear layer and a hidden one, whose initial values follow from ``start`` alone."""

    def __init__(self, inputs: int = 64, hidden: int = 5, outputs: int = 3, start: int = 0) -> None:
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(start)
            self.first, self.last = nn.Linear(inputs, hidden), nn.Linear(hidden, outputs)

    def forward(self, x: Any) -> Any:
        return self.last(torch.tanh(self.first(x.flatten(1))))


def loaded(file: str) -> Any:
    """Return a module with the values of a file."""
    module = Numbers(start=1)
    module.load_state_dict(torch.load(file, weights_only=True))
    return module


class Flat(Numbers):
    """A module that returns (N,)."""

    def forward(self, x: Any) -> Any:
        return super().forward(x)[:, 0]


class Heads(Numbers):
    """A module with three outputs, in a tuple or a dict; its reader takes the first two."""

    def __init__(self, named: bool = False) -> None:
        super().__init__()
        self.named, self.second, self.unread = named, nn.Linear(3, 3), nn.Linear(3, 3)
        for layer in (self.second, self.unread):
            nn.init.constant_(layer.weight, 0.1)
            nn.init.constant_(layer.bias, 0.0)

    def forward(self, x: Any) -> Any:
        first = super().forward(x)
        outputs = {"first": first, "second": torch.tanh(self.second(first)), "unread": self.unread(first)}
        return outputs if self.named else (*outputs.values(),)


class Mixed(nn.Module):
    """A module with two inputs."""

    def forward(self, first: Any, second: Any) -> Any:
        return first + 2 * second


class Whole(nn.Module):
    """`Heads`, then `Mixed`."""

    def __init__(self) -> None:
        super().__init__()
        self.heads, self.mixed = Heads(), Mixed()

    def forward(self, x: Any) -> Any:
        return self.mixed(*self.heads(x)[:2])


class Reading(Numbers):
    """A module that reads values while it is built and while it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = float(torch.linspace(0, 1, 3)[1])
        self.scale = torch.tensor(2.0)

    def forward(self, x: Any) -> Any:
        if x.sum().item() > 1e9:
            x = x * 0
        return super().forward(x * self.factor) * self.scale
