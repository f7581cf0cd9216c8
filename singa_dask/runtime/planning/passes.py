"""Passes over all records of a store, each once: whole batches, and the records that are left in a smaller one."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from singa_dask.conf import JobConf, LayerConf, Phase
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers import LAYERS, Layer, Span, StoreInput
from singa_dask.layers.output import ArgSort
from singa_dask.layers.records import StoreConf
from singa_dask.net import NeuralNet

__all__ = [
    "IN_ORDER",
    "KEYS",
    "WholePass",
    "check_whole",
    "is_sequential",
    "is_whole",
    "reads_store",
    "share_rest",
    "split_pass",
    "with_layers",
    "with_store",
    "with_stores",
]

IN_ORDER = {"shuffle": "none", "random_skip": 0, "last_batch": "wrap"}
"""Keys of ``store_conf`` with which records are read in file order, from the first one on."""
KEYS = {Phase.VALIDATION: ("validate_freq", "validate_steps"), Phase.TEST: ("test_freq", "test_steps")}
"""Keys of a job for the frequency of a phase, and for its number of batches."""


class WholePass(NamedTuple):
    """How the net of a phase goes over all records.

    Attributes
    ----------
    n_batches, batchsize : int
        Number of whole batches, and records of each.
    n_rest : int
        Records of the last batch, which may be larger than a whole one, so that each worker has some of them; 0 if
        there is none.
    rest : NeuralNet or None
        The net of the last batch; it shares the params of the training net, too.
    """

    n_batches: int
    batchsize: int
    n_rest: int = 0
    rest: NeuralNet | None = None


def is_whole(job: JobConf, phase: Phase) -> bool:
    """Return whether the net of a phase goes over all records whenever it runs in training."""
    freq, steps = KEYS.get(phase, ("", ""))
    return bool(freq) and getattr(job, freq) > 0 and getattr(job, steps) is None


def is_sequential(layer: Layer) -> bool:
    """Return whether a layer needs all batches in order, as it keeps state or writes a file."""
    if layer.traits.is_input:
        return not isinstance(layer, StoreInput)
    keeps = layer.block is not None and getattr(layer.conf.given_block(layer.block), "carry_state", False)
    return keeps or (layer.traits.is_output and not isinstance(layer, ArgSort))


def check_whole(net: NeuralNet, phase: Phase) -> None:
    """Check that a net can go over all records, each once.

    Raises
    ------
    ConfigError
        It cannot.
    """
    freq, steps = KEYS[phase]
    inputs = [layer for layer in net.all_layers if layer.traits.is_input or not layer.sources]
    message = ""
    if found := next((layer for layer in inputs if not isinstance(layer, StoreInput)), None):
        message = f"layer {found.conf_name!r} reads no store, so the number of its records is not known"
    elif found := next((layer for layer in net.all_layers if is_sequential(layer)), None):
        message = f"layer {found.conf_name!r} takes all batches one after the other, in one size"
    elif len({layer.batch_size for layer in inputs if isinstance(layer, StoreInput)}) > 1:
        sizes = ", ".join(f"{layer.conf_name} {layer.batch_size}" for layer in inputs if isinstance(layer, StoreInput))
        message = f"its input layers have batches of several sizes, {sizes}"
    if message:
        raise ConfigError(Problem((freq,), f"{message}, and without {steps} each record counts once. Set {steps}."))


def split_pass(net: NeuralNet, phase: Phase) -> WholePass:
    """Count the records of a net, and divide them into batches. Sets which records its input layers read.

    Raises
    ------
    ConfigError
        Its stores have different numbers of records, or fewer than there are workers.
    DataError
        A store cannot be opened.
    """
    freq, steps = KEYS[phase]
    inputs = {layer.conf_name: layer for layer in net.all_layers if isinstance(layer, StoreInput)}
    counts = {name: layer.count() for name, layer in inputs.items()}
    n_records, size, n_workers = min(counts.values()), next(iter(inputs.values())).batch_size, net.context.n_workers
    if len(set(counts.values())) > 1:
        message = f"input layers have different numbers of records: {', '.join(f'{k} {n}' for k, n in counts.items())}."
        raise ConfigError(Problem((freq,), f"{message} Without {steps} each record counts once. Set {steps}."))
    if n_records < n_workers:
        message = f"{n_records} records are too few for {n_workers} workers of a group: each needs one at least."
        raise ConfigError(Problem((freq,), f"{message} Lower nworkers_per_group, or set {steps}."))
    n_batches, n_rest = divmod(n_records, size)
    while 0 < n_rest < n_workers:
        n_batches, n_rest = n_batches - 1, n_rest + size
    for layer in net.all_layers:
        if isinstance(layer, StoreInput):
            layer.span = (0, n_batches * size)
    return WholePass(n_batches, size, n_rest)


def share_rest(n_rest: int, n_workers: int) -> tuple[int, ...]:
    """Return how many of the last records each worker of a group computes; empty for one worker."""
    return tuple(Span.of(n_rest, i, n_workers).size for i in range(n_workers)) if n_workers > 1 else ()


# -- jobs with other ways to read ------------------------------------------------------------------------------


def reads_store(layer: LayerConf) -> bool:
    """Return whether a layer reads a store."""
    return issubclass(LAYERS.find(layer.type), StoreInput)


def with_store(layer: LayerConf, change: Callable[[StoreConf], StoreConf]) -> LayerConf:
    """Return a layer with another ``store_conf``, if it reads a store."""
    store = layer.given_block(StoreConf)
    return layer.with_block(change(store)) if store and reads_store(layer) else layer


def with_layers(job: JobConf, layers: list[LayerConf]) -> JobConf:
    """Return a job with other layers."""
    return job.model_copy(update={"neuralnet": job.neuralnet.model_copy(update={"layer": layers})})


def with_stores(job: JobConf, change: Callable[[StoreConf], StoreConf]) -> JobConf:
    """Return a job whose layers read stores in another way."""
    return with_layers(job, [with_store(layer, change) for layer in job.neuralnet.layer])
