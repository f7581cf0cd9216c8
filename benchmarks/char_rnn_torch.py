"""A contender: SINGA's char-rnn in PyTorch. ``python -m benchmarks.char_rnn_torch KIND``."""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from benchmarks import char_rnn as net
from benchmarks.contender import CHECKED, serve

# Where PyTorch has our gates: its GRU is r, z, n.
ORDER = {"GRU": (1, 0, 2), "LSTM": (0, 1, 2, 3), "RNN": (0,)}


def build(kind: str) -> tuple[nn.RNNBase, nn.Linear]:
    """Return the layers with first values; the second bias, which ours lacks, stays 0."""
    cells, last, n = getattr(nn, kind)(net.N_CHARS, net.N_HIDDEN), nn.Linear(net.N_HIDDEN, net.N_CHARS), net.GATES[kind]
    values = net.first_values(kind)
    groups = [values[k * n : (k + 1) * n] for k in range(3)]
    joined = [np.concatenate([group[gate] for gate in ORDER[kind]]) for group in groups]
    targets = [cells.weight_ih_l0, cells.weight_hh_l0, cells.bias_ih_l0, last.weight, last.bias]
    with torch.no_grad():
        for target, value in zip(targets, [*joined, *values[3 * n :]], strict=True):
            target.copy_(torch.from_numpy(value))
        cells.bias_hh_l0.zero_()
    cells.bias_hh_l0.requires_grad_(False)
    return cells, last


def main() -> None:
    """Run steps as asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=net.GATES)
    kind = parser.parse_args().kind
    cells, last = build(kind)
    params = [param for param in (*cells.parameters(), *last.parameters()) if param.requires_grad]
    updater = torch.optim.RMSprop(params, lr=net.RATE, alpha=net.RHO, eps=net.DELTA**0.5, foreach=True)
    texts = net.windows()

    def step() -> float:
        text = torch.from_numpy(next(texts).T.astype(np.int64))
        updater.zero_grad()
        states, _ = cells(functional.one_hot(text[:-1], net.N_CHARS).float())
        loss = functional.cross_entropy(last(states).flatten(0, 1), text[1:].flatten())
        (loss * net.N_STEPS).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_value_(params, net.CLIP)
        updater.step()
        return float(loss.detach())

    serve([step() for _ in range(CHECKED)], step)


if __name__ == "__main__":
    main()
