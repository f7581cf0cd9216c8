"""The loss curve of a char-rnn job beside PyTorch's, from the same first weights and with the same batches.

``python -m benchmarks.char_curve [--steps 300] [--lstm] [--carry] [--float64]`` prints both, and how far they are
apart. Training magnifies the rounding of single steps, so in float32 two right programs part after some hundred steps,
as PyTorch does from itself with another number of threads; in float64 they do not.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch

from benchmarks.loop import Loop
from singa_dask.conf import JobConf, load
from singa_dask.layers import Param
from singa_dask.ops import get_ops
from singa_dask.training import SCHEDULES
from singa_dask.training.updaters import RMSPropConf

SEED = 1
# our gates in the order of PyTorch's, by the names of params in the job files
GATES = {"GRU": ("r", "z", "c"), "LSTM": ("i", "f", "g", "o")}


class Theirs:
    """The same net in PyTorch, which reads the batches that ours has read."""

    def __init__(self, job: JobConf, ours: Loop, carry: bool) -> None:
        layers = {layer.conf.type: layer for layer in ours.net.layers}
        self.kind = "GRU" if "GRU" in layers else "LSTM"
        recurrent, product = layers[self.kind], layers["InnerProduct"]
        width, dim = layers["OneHot"].features[0].size, recurrent.features[0].size
        self.width, self.carry, self.data = width, carry, layers["CharRNN"].features[0]
        self.dtype = getattr(torch, str(ours.net.context.dtype))
        self.rnn = getattr(torch.nn, self.kind)(width, dim, dtype=self.dtype)
        self.out = torch.nn.Linear(dim, width, dtype=self.dtype)
        n = len(GATES[self.kind])
        values = {gate: np.array(param.data) for gate, param in self._by_gate(recurrent)}
        with torch.no_grad():
            for name, what in (("weight_ih_l0", "hx"), ("weight_hh_l0", "hh"), ("bias_ih_l0", "b")):
                joined = np.concatenate([values[f"{gate}_{what}"] for gate in GATES[self.kind]])
                getattr(self.rnn, name).copy_(torch.from_numpy(joined))
            self.rnn.bias_hh_l0.zero_()
            for target, param in zip((self.out.weight, self.out.bias), product.params, strict=True):
                target.copy_(torch.from_numpy(np.array(param.data)))
        self.rnn.bias_hh_l0.requires_grad_(False)
        self.schedule = SCHEDULES.find(job.updater.learning_rate.type)(job.updater.learning_rate)
        self.clip = job.updater.clip_high
        self.params = [p for p in (*self.rnn.parameters(), *self.out.parameters()) if p.requires_grad]
        self.rho, self.delta = job.updater.block(RMSPropConf).rho, job.updater.delta
        self.squares = [torch.zeros_like(p) for p in self.params]
        self.state: Any = None
        assert n * dim == self.rnn.weight_ih_l0.shape[0]

    @staticmethod
    def _by_gate(layer: Any) -> list[tuple[str, Param]]:
        gates = layer.gates
        names = [f"{gate}_{what}" for what in ("hx", "hh", "b") for gate in gates]
        return list(zip(names, layer.params, strict=True))

    def train(self, step: int) -> float:
        """Train for one step on the batch that ours has just read."""
        text = torch.from_numpy(np.array(self.data.data.T, np.int64))
        x = torch.nn.functional.one_hot(text[:-1], self.width).to(self.dtype)
        h, state = self.rnn(x, self.state)
        self.state = (
            (state.detach() if self.kind == "GRU" else tuple(s.detach() for s in state)) if self.carry else None
        )
        loss = torch.nn.functional.cross_entropy(self.out(h).flatten(0, 1), text[1:].flatten())
        gradients = torch.autograd.grad(loss * len(x), self.params)
        with torch.no_grad():  # PyTorch's own RMSprop adds its epsilon to the root
            for param, grad, square in zip(self.params, gradients, self.squares, strict=True):
                grad = grad.clamp(-self.clip, self.clip)
                square.mul_(self.rho).addcmul_(grad, grad, value=1 - self.rho)
                param -= self.schedule(step) * grad / (square + self.delta).sqrt()
        return loss.item()


def main() -> None:
    """Compare as asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--lstm", action="store_true", help="LSTM in place of GRU")
    parser.add_argument("--float64", action="store_true", help="in double precision, both")
    parser.add_argument("--carry", action="store_true", help="keep the state from batch to batch")
    given = parser.parse_args()
    kind = "lstm" if given.lstm else "gru"
    carry = f"neuralnet.layer[{kind}1].{kind}_conf.carry_state={str(given.carry).lower()}"
    job = load(f"configs/char-rnn/{kind}.yaml", sets=[carry]).job
    precision = "float64" if given.float64 else "float32"
    ours = Loop(job, get_ops("auto", precision), precision=precision, seed=SEED, anneals=True)
    theirs = Theirs(job, ours, given.carry)
    losses: list[tuple[float, float]] = []
    for step in range(given.steps):
        losses.append((ours.train_one_batch(), theirs.train(step)))
        if step % 20 == 19 or step == given.steps - 1:
            pair, apart = losses[-1], max(abs(a / b - 1) for a, b in losses)
            print(
                f"step {step:4}  ours {pair[0]:.5f}  PyTorch {pair[1]:.5f}  apart so far {100 * apart:.4f} %",
                flush=True,
            )
    means = [np.mean(losses[i : i + 20], axis=0) for i in range(0, len(losses), 20)]
    print(f"means over 20 steps are apart {100 * max(abs(a / b - 1) for a, b in means):.4f} % at most")


if __name__ == "__main__":
    main()
