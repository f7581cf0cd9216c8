"""The U-Net, the inverted residuals, the two towers and the nets of sequences of ``configs`` in PyTorch.

Params are in the order of the job files.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

__all__ = ["MODELS", "copy_values"]


def convs(c: int, n: int) -> nn.Sequential:
    """Return two convolutions with BatchNorm and ReLU."""
    first = nn.Conv2d(c, n, 3, padding=1, bias=False), nn.BatchNorm2d(n), nn.ReLU(inplace=True)
    second = nn.Conv2d(n, n, 3, padding=1, bias=False), nn.BatchNorm2d(n), nn.ReLU(inplace=True)
    return nn.Sequential(*first, *second)


class UNet(nn.Module):
    """``shapes/unet.yaml``."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = nn.MaxPool2d(2)
        self.e1 = convs(1, 16)
        self.e2 = convs(16, 32)
        self.e3 = convs(32, 64)
        self.up2 = nn.ConvTranspose2d(64, 32, 2, 2)
        self.d2 = convs(64, 32)
        self.up1 = nn.ConvTranspose2d(32, 16, 2, 2)
        self.d1 = convs(32, 16)
        self.scores = nn.Conv2d(16, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        e1 = self.e1(x)
        e2 = self.e2(self.pool(e1))
        e3 = self.e3(self.pool(e2))
        d2 = self.d2(torch.cat([e2, self.up2(e3)], 1))
        d1 = self.d1(torch.cat([e1, self.up1(d2)], 1))
        scores: Tensor = self.scores(d1)
        return scores

    def loss(self, data: Tensor, pixels: Tensor) -> Tensor:
        return functional.cross_entropy(self(data).flatten(2), pixels.long())


def conv_norm(c: int, n: int, kernel: int = 1, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """Return a convolution with BatchNorm."""
    return [nn.Conv2d(c, n, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(n)]


class Bottleneck(nn.Sequential):
    """An inverted residual, with a shortcut where the shape stays."""

    def __init__(self, c: int, wide: int, n: int, stride: int = 1) -> None:
        expand = [*conv_norm(c, wide), nn.ReLU(inplace=True)]
        depthwise = [*conv_norm(wide, wide, 3, stride, wide), nn.ReLU(inplace=True)]
        super().__init__(*expand, *depthwise, *conv_norm(wide, n))
        self.adds = c == n and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = super().forward(x)
        return y + x if self.adds else y


class MobileNet(nn.Module):
    """``digits/mobilenet.yaml``."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(*conv_norm(1, 16, 3, 2), nn.ReLU(inplace=True))
        self.b1 = Bottleneck(16, 48, 16)
        self.b2 = Bottleneck(16, 64, 24, stride=2)
        self.b3 = nn.Sequential(Bottleneck(24, 96, 24), Bottleneck(24, 96, 24))
        self.scores = nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.b3(self.b2(self.b1(self.stem(x))))
        scores: Tensor = self.scores(x.mean((2, 3)))
        return scores

    def loss(self, data: Tensor, label: Tensor) -> Tensor:
        return functional.cross_entropy(self(data), label)


def tower() -> nn.Sequential:
    """Return two layers on a vector."""
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 16))


class Towers(nn.Module):
    """``towers/items.yaml``."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(300, 16)
        self.user, self.thing = tower(), tower()

    def forward(self, history: Tensor, item: Tensor) -> Tensor:
        mask = (history >= 0).unsqueeze(2)
        mean = (self.items(history.clamp(min=0)) * mask).sum(1) / mask.sum(1)
        product: Tensor = self.user(mean) * self.thing(self.items(item[:, 0]))
        return product.sum(1, keepdim=True)

    def loss(self, history: Tensor, item: Tensor, liked: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(self(history, item), liked)


class Reviews(nn.Module):
    """``sequences/reviews.yaml``."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 16)
        self.gru = nn.GRU(16, 16, batch_first=True, bidirectional=True)
        self.scores = nn.Linear(32, 2)

    def loss(self, data: Tensor, label: Tensor) -> Tensor:
        lengths = (data >= 0).sum(1)
        words = pack_padded_sequence(self.embedding(data.clamp(min=0)), lengths, batch_first=True, enforce_sorted=False)
        y, lengths = pad_packed_sequence(self.gru(words)[0], batch_first=True, padding_value=-torch.inf)
        return functional.cross_entropy(self.scores(y.amax(1)), label)


class Reverse(nn.Module):
    """``sequences/reverse.yaml``."""

    def __init__(self) -> None:
        super().__init__()
        self.digits = nn.Embedding(10, 32)
        self.encoder = nn.GRU(32, 128, batch_first=True)
        self.written = nn.Embedding(12, 32)
        self.decoder = nn.GRU(32, 128, batch_first=True)
        self.scores = nn.Linear(128, 12)

    def loss(self, number: Tensor, answer: Tensor) -> Tensor:
        lengths = (number >= 0).sum(1)
        digits = pack_padded_sequence(self.digits(number.clamp(min=0)), lengths, batch_first=True, enforce_sorted=False)
        y, _ = self.decoder(self.written(answer[:, :-1]), self.encoder(digits)[1])
        return functional.cross_entropy(self.scores(y).flatten(0, 1), answer[:, 1:].flatten().long())


MODELS: dict[str, type[nn.Module]] = {
    "shapes/unet": UNet,
    "digits/mobilenet": MobileNet,
    "towers/items": Towers,
    "sequences/reviews": Reviews,
    "sequences/reverse": Reverse,
}


def copy_values(model: nn.Module, values: list[Any]) -> None:
    """Give a model the values of our params, in the order of the job file; a GRU of ours has a matrix for each gate."""
    left = iter(values)
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.GRU):
                for way in ("", "_reverse")[: 1 + module.bidirectional]:
                    gates = [torch.from_numpy(next(left)) for _ in range(9)]
                    # the reset gate first, and only the bias of the input
                    for k, name in enumerate(("weight_ih", "weight_hh", "bias_ih")):
                        update, reset, candidate = gates[3 * k : 3 * k + 3]
                        getattr(module, f"{name}_l0{way}").copy_(torch.cat([reset, update, candidate]))
                    bias = getattr(module, f"bias_hh_l0{way}")
                    bias.zero_()
                    bias.requires_grad = False
            elif not list(module.children()):
                for name, tensor in module.state_dict().items():
                    if name != "num_batches_tracked":
                        tensor.copy_(torch.from_numpy(next(left)).view(tensor.shape))
