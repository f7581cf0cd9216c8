"""The nets of the benchmark on a GPU, and the least that a step of each must do."""

from __future__ import annotations

import math
from typing import Any

from benchmarks import char_rnn, char_rnn_ours, net_ours, rbm_ours, residual, residual_ours
from benchmarks.contender import NETS, Net
from benchmarks.loop import Loop
from singa_dask.ops import NumpyOps

__all__ = ["DEVICE", "benchmark_net", "floor", "has_images", "loop_of", "net_of"]

DEVICE = "cuda:0"
# name -> net, batch
NET_OF: dict[str, tuple[str, int]] = {
    "cifar-100": ("cifar", 100), "cifar-1024": ("cifar", 1024), "mlp-64": ("mlp", 64), "mlp-1024": ("mlp", 1024),
    "alexnet-256": ("alexnet", 256), "cifar": ("cifar", 100), "mlp": ("mlp", 64),
    "lenet": ("lenet", 64), "cifar-bn": ("cifar-bn", 100),
}  # fmt: skip
SMALL_ROWS = 2
SMALL_TEXT = {"N_CHARS": 11, "N_HIDDEN": 8, "N_ROWS": 3, "N_STEPS": 4}


def net_of(net: Net, ops: NumpyOps, precision: str) -> Loop:
    """Return a net of a job file."""
    return net_ours.loop_of(net, ops, precision)


def benchmark_net(what: str, small: bool) -> Net:
    """Return the net of a job file that goes by a name here."""
    name, n_rows = NET_OF[what]
    if not small:
        return NETS[name]._replace(n_rows=n_rows)
    # the others have too many params for threads that are run one by one
    return NETS["lenet" if name in ("mlp", "alexnet") else name]._replace(n_rows=SMALL_ROWS)


def has_images(what: str) -> bool:
    """Return whether the records of a net are images."""
    return (what in NET_OF and len(benchmark_net(what, False).shape) == 3) or what == "resnet20"


def loop_of(what: str, ops: NumpyOps, precision: str, small: bool) -> Loop:
    """Return a net by the name that it has here, in one loop with its updater."""
    if what == "gru":
        if small:
            vars(char_rnn).update(SMALL_TEXT)
        return char_rnn_ours.loop_of("GRU", ops, precision)
    if what == "rbm":
        return rbm_ours.loop_of(ops, precision)
    if what in residual.NETS:
        net = residual.NETS[what]
        return residual_ours.loop_of(net._replace(n_rows=SMALL_ROWS) if small else net, ops, precision)
    return net_of(benchmark_net(what, small), ops, precision)


def floor(loop: Loop) -> tuple[float, float]:
    """Return operations of products, and bytes to and from memory, that a step of a net must do at the least.

    A feature is written and read forward, and backward read once more, its gradient written and read. A weight is read
    forward and backward, its gradient written and read, and weight and momentum read and written by the update.
    """
    operations = moved = 0.0
    inputs: set[Any] = {feature for layer in loop.net.inputs for feature in layer.features}
    for layer in loop.net.layers:
        if layer.site.prototype is not None:
            continue
        for feature in layer.features:
            if feature.has_data:
                n_bytes = math.prod(feature.shape) * feature.dtype.itemsize
                moved += (5 if feature.requires_grad else 2) * n_bytes
        for param in layer.params:
            moved += 8 * 4 * param.size
            if (
                len(param.shape) < 2
                or layer.conf.type in ("Embedding", "PositionalEmbedding")
                or not layer.sources[0].has_data
            ):
                continue
            size = math.prod(layer.features[0].shape)
            passes = 2 if layer.sources[0] in inputs else 3
            operations += passes * 2 * param.size * size / layer.features[0].shape[1]
    return operations, moved
