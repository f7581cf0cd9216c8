"""Passes over all records of a store: whole batches, and a batch with the remaining records."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from singa_dask.conf import JobConf, Phase
from singa_dask.conf.metrics import FREQUENCIES
from singa_dask.errors import ConfigError, Problem
from singa_dask.inputs import StoreInput
from singa_dask.inputs.writers import Writer
from singa_dask.layers import Layer
from singa_dask.layers.outputs import ArgSort
from singa_dask.net import NeuralNet
from singa_dask.shown import plural

KEYS = {Phase[phase.upper()]: keys for phase, keys in FREQUENCIES.items()}


class WholePass(NamedTuple):
    """A pass of a phase over all records: whole batches, and a last batch of the remaining records.

    Attributes
    ----------
    n_batches : int
        Number of whole batches.
    weight : float
        Size of the last batch relative to a whole batch. The weight may exceed 1, so that each worker gets a part of
        the batch.
    rest : NeuralNet or None
        Net for the last batch, which shares the params of the training net; None if no records remain.
    """

    n_batches: int
    weight: float
    rest: NeuralNet | None


def is_whole(job: JobConf, phase: Phase) -> bool:
    """Return whether a phase reads all records whenever it runs during training."""
    freq, steps = KEYS.get(phase, ("", ""))
    return bool(freq) and getattr(job, freq) > 0 and getattr(job, steps) is None


def is_sequential(layer: Layer) -> bool:
    """Return whether a layer must see all batches in order, because it keeps state or writes a file."""
    if layer.traits.role == "input":
        return not isinstance(layer, StoreInput)
    keeps = layer.options_class is not None and getattr(
        layer.conf.given_block(layer.options_class), "carry_state", False
    )
    return keeps or (layer.traits.role == "output" and not isinstance(layer, ArgSort))


def check_whole(net: NeuralNet, phase: Phase) -> None:
    """Raise `ConfigError` if a net cannot read all records exactly once."""
    sizes = {layer.conf_name: layer.plan.batch_size for layer in net.all_layers if isinstance(layer, StoreInput)}
    others = [layer for layer in net.all_layers if (layer.traits.role == "input" or not layer.sources)]
    if layer := next((layer for layer in others if not isinstance(layer, StoreInput)), None):
        message = f"layer {layer.conf_name!r} reads no store, so the number of its records is not known"
    elif layer := next((each for each in net.all_layers if is_sequential(each) and not isinstance(each, Writer)), None):
        message = f"layer {layer.conf_name!r} needs all batches in order and in one size"
    elif len(set(sizes.values())) > 1:
        message = f"its input layers have batches of several sizes, {_shown(sizes)}"
    else:
        return
    raise _refused(phase, f"{message}, and without {{steps}} each record counts once. Set {{steps}}.")


def count_records(net: NeuralNet, phase: Phase) -> int:
    """Return how many records a net reads in a pass.

    Raises
    ------
    ConfigError
        The stores of the net have different numbers of records, or fewer records than the group has workers.
    DataError
        A store cannot be opened.
    """
    inputs = {layer.conf_name: layer for layer in net.all_layers if isinstance(layer, StoreInput)}
    counts = {name: layer.count() for name, layer in inputs.items()}
    n_records, n_workers = min(counts.values()), net.context.n_workers
    if len(set(counts.values())) > 1:
        message = f"input layers have different numbers of records: {_shown(counts)}."
        raise _refused(phase, f"{message} Without {{steps}} each record counts once. Set {{steps}}.")
    if n_records < n_workers:
        message = f"{plural(n_records, 'record is', 'records are')} too few for {n_workers} workers of a group: "
        message += "each needs at least one."
        raise _refused(phase, f"{message} Lower nworkers_per_group, or set {{steps}}.")
    return n_records


def _shown(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {n}" for name, n in numbers.items())


def _refused(phase: Phase, message: str) -> ConfigError:
    freq, steps = KEYS[phase]
    return ConfigError(Problem((freq,), message.format(steps=steps)))


def divide(n_records: int, size: int, n_workers: int = 1) -> tuple[int, int]:
    """Divide records into batches of ``size``; return the numbers of whole batches and remaining records.

    The number of remaining records is 0 or at least ``n_workers``, so that each worker gets a record.
    """
    n_batches, n_rest = divmod(n_records, size)
    while 0 < n_rest < n_workers:
        n_batches, n_rest = n_batches - 1, n_rest + size
    return n_batches, n_rest
