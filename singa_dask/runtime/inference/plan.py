"""Divide an inference into parts."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from singa_dask.api import REGISTRIES
from singa_dask.conf import JobConf, Phase
from singa_dask.data.stores.class_names import ClassNames
from singa_dask.errors import ConfigError
from singa_dask.layers import StoreInput
from singa_dask.runtime.checkpoints.initial_values import InitialValues
from singa_dask.runtime.inference.net import build, load_modules, locate_errors
from singa_dask.runtime.inference.part import Part
from singa_dask.runtime.planning.devices import device_of_part
from singa_dask.runtime.planning.nets import find_ops
from singa_dask.runtime.planning.passes import divide, is_sequential, with_batchsize

PART_BYTES = 64 << 20
# several, to show progress and to balance the load
PARTS_PER_WORKER = 4


class Facts(NamedTuple):
    """Facts of a net and its records that decide how to divide them into parts.

    Attributes
    ----------
    n_records : int or None
        None if the net reads something other than stores.
    batchsize : int
    sequential : str
        A layer that needs all batches in order in one process; empty if there is none.
    record_bytes : int
        Bytes of outputs for one record.
    class_names : tuple of tuple of str
        For each layer of the part: names of its classes by label; empty if the checkpoint has none.
    """

    n_records: int | None
    batchsize: int
    sequential: str
    record_bytes: int
    class_names: tuple[tuple[str, ...], ...] = ()


def inspect_net(part: Part) -> Facts:
    """Return the facts of the net of a part and of its records."""
    with locate_errors(lambda: "the net"):
        load_modules(part.sources)
        job = JobConf.from_json(part.job, REGISTRIES)
        find_ops(job, device_of_part(job, part.index))  # raises an error if they are not available
        net = build(job, Phase(part.phase), part.layers, part.labels)
        net.context.class_names = ClassNames(InitialValues(job, part.init_from).learned())
        net.check_sources()
        inputs = [layer for layer in net.layers if layer.traits.is_input]
        stores = [layer for layer in inputs if isinstance(layer, StoreInput)]
        counts = {layer.count() for layer in stores}
        sizes = {layer.batch_size for layer in stores}
        same = len(stores) == len(inputs) and len(counts) == len(sizes) == 1
        # with batches of several sizes, the records of the n-th batch are not known in advance
        sequential = [
            layer.conf_name for layer in net.layers if is_sequential(layer) or (len(sizes) > 1 and layer in stores)
        ]
        n_bytes = sum(
            4 * layer.features[0].size * layer.site.n_steps for layer in net.layers if layer.conf_name in part.layers
        )
        return Facts(
            n_records=counts.pop() if same else None,
            batchsize=sizes.pop() if same else max((layer.features[0].shape[0] for layer in inputs), default=1),
            sequential=sequential[0] if sequential else "",
            record_bytes=1 if part.topk else n_bytes,
            class_names=tuple(map(net.context.class_names.known_for, part.labels_of_layers)),
        )


def plan_parts(part: Part, facts: Facts, steps: int, n_workers: int) -> list[Part]:
    """Divide batches into parts.

    Parameters
    ----------
    part : Part
        With the fields that all parts have in common.
    facts : Facts
    steps : int
        Number of batches; 0 for all records, each once.
    n_workers : int
        Number of parts that can be computed at the same time.

    Raises
    ------
    ConfigError
        The net cannot be divided like this.
    """
    size, n, rest = facts.batchsize, steps, 0
    if not steps:
        if facts.n_records is None:
            raise ConfigError(
                "the number of records that the net reads is not known. Give the number of batches, steps."
            )
        n, rest = divide(facts.n_records, size)
    if rest and facts.sequential:
        raise ConfigError(
            f"layer {facts.sequential!r} takes batches of {size} only, and {facts.n_records} records leave {rest}. "
            "Give the number of batches, steps."
        )
    most = max(1, PART_BYTES // max(1, facts.record_bytes * size))
    each = n if facts.sequential else min(most, math.ceil(n / (PARTS_PER_WORKER * n_workers)))
    cuts = [(first, min(each, n - first)) for first in range(0, n, max(each, 1))]
    parts = [
        replace(part, index=i, first=first * size, n_batches=n_batches, batchsize=size)
        for i, (first, n_batches) in enumerate(cuts)
    ]
    if rest:
        job = with_batchsize(JobConf.from_json(part.job, REGISTRIES), rest).model_dump_json()
        last = replace(part, job=job, index=len(parts), first=n * size, n_batches=1, batchsize=rest, weight=rest / size)
        parts.append(last)
    return parts
