"""A contender: one of two processes of PyTorch's DistributedDataParallel over gloo, on this machine.

``python -m benchmarks.ddp_torch NET FORM BATCH RANK PORT``
"""

from __future__ import annotations

import argparse

import torch
from torch import distributed
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from benchmarks.contender import CHECKED, NETS, batch, serve
from benchmarks.net_torch import build, faster_optimiser

RANKS = 2


def model_of(name: str) -> torch.nn.Module:
    """Return a net of `NETS`, for a TorchModule."""
    return build(NETS[name])[0]


def main() -> None:
    """Run steps as asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("net", choices=NETS)
    parser.add_argument("form", choices=("eager", "channels_last"))
    parser.add_argument("batch", type=int)
    parser.add_argument("rank", type=int)
    parser.add_argument("port")
    given = parser.parse_args()
    net = NETS[given.net]._replace(n_rows=given.batch)
    place = f"tcp://127.0.0.1:{given.port}"
    distributed.init_process_group("gloo", init_method=place, rank=given.rank, world_size=RANKS)
    model, groups = build(net)
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
