"""Compute the mean and deviation of training records, to standardise them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import Any, NamedTuple

import numpy as np

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.conf import JobConf, Phase
from singa_dask.data.loading.bad_records import BadPolicy
from singa_dask.data.loading.reader import BlockReader
from singa_dask.data.stores import Store
from singa_dask.data.tables.scaling import Moments, Scaling
from singa_dask.errors import DataError
from singa_dask.inputs import StoreInput
from singa_dask.inputs.store_conf import StoreConf
from singa_dask.runtime.job.dask_tasks import Runner, check_wanted
from singa_dask.runtime.planning.nets import build_nets
from singa_dask.runtime.units.initial_state import InitialState

NONE = Moments.of(np.empty((0, 1)))
GROUP_BYTES, MAX_GROUPS = 8 << 20, 32
"""Moments are computed for groups of blocks of about `GROUP_BYTES`, so that results are bit-identical for any number of
tasks. With more than `MAX_GROUPS` groups, only every n-th group is read."""


class GroupMoments(NamedTuple):
    """Moments of consecutive groups of blocks.

    Attributes
    ----------
    first : int
        Number of the first group.
    moments : list of Moments
        Moments of each group.
    names : sequence of str
        Names of the columns; empty if the store has none.
    is_rounded : bool
        Whether the store holds 32-bit floats, which may have been rounded.
    """

    first: int
    moments: list[Moments]
    names: Sequence[str]
    is_rounded: bool


def measure(layer: StoreInput, index: int, count: int) -> GroupMoments:
    """Return the moments of the share of a layer's records that task ``index`` of ``count`` reads.

    Raises
    ------
    DataError
        Records cannot be read, or a value is not finite.
    """
    conf = layer.store_conf
    with layer.source.open_checked() as store:
        # do not read ahead: the sampled groups are far apart
        store.limit_runs(1)
        # the number of a block's group is the byte position of its first record // GROUP_BYTES
        numbers = store.starts[:-1] * store.record_bytes // GROUP_BYTES
        groups = np.split(np.arange(len(numbers)), np.flatnonzero(np.diff(numbers)) + 1)
        groups = groups[:: -(-len(groups) // MAX_GROUPS)]
        first, stop = (part * len(groups) // count for part in (index, index + 1))
        reader = BlockReader(store, BadPolicy(conf.on_error, labels=conf.labels))
        moments = []
        for blocks in groups[first:stop]:
            moments.append(reduce(Moments.merged, (_moments(layer, reader, block) for block in blocks.tolist()), NONE))
        field = store.schema.get("data")
        return GroupMoments(first, moments, _names(store), field is not None and field.dtype == np.float32)


def _names(store: Store) -> Sequence[str]:
    return store.table_facts.names if store.table_facts else ()


def _moments(layer: StoreInput, reader: BlockReader, block: int) -> Moments:
    check_wanted()
    arrays, store = reader.load(block), reader.store
    if bad := reader.bad.get(block):
        arrays = {name: np.delete(array, list(bad), axis=0) for name, array in arrays.items()}
    values = layer.values_of(arrays)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        row, *place = np.argwhere(~np.isfinite(values))[0].tolist()
        where = f"{store.url}, record {int(store.starts[block]) + row}{_column(_names(store), *place)}"
        value = values[(row, *place)]
        raise DataError(f"{where}: the value is {value}, so there is no mean. Leave the record out, or fill it in.")
    return Moments.of(np.moveaxis(values, 1, -1).reshape(-1, values.shape[1]) if values.ndim == 4 else values)


def _column(names: Sequence[str], *place: int) -> str:
    known = repr(names[place[0]]) if len(place) == 1 and place[0] < len(names) else ", ".join(map(str, place))
    return f", column {known}"


def scaling_of(layer: str, parts: Sequence[GroupMoments], warn: Callable[[str], None]) -> Scaling:
    """Return the scaling of a layer from the moments of all its records; call ``warn`` if it is not exact.

    Raises
    ------
    DataError
        Values of the records are too large.
    """
    names, ordered = parts[0].names, sorted(parts, key=lambda part: part.first)
    total = reduce(Moments.merged, (moments for part in ordered for moments in part.moments), NONE)
    if not total.n:
        raise DataError(f"layer {layer} has no records, so its mean and standard deviation cannot be computed.")
    for at in np.flatnonzero(~np.isfinite(total.squares)).tolist():
        raise DataError(
            f"layer {layer}{_column(names, at)}: the standard deviation of values from {total.low[at]:g} to "
            f"{total.high[at]:g} does not fit in 64 bits. Scale the column, or leave it out."
        )
    scaling = Scaling.of(total)
    for at in np.flatnonzero(scaling.needs_digits)[:1].tolist() if parts[0].is_rounded else ():
        warn(
            f"layer {layer}{_column(names, at)}: values of {scaling.mean[at]:g} with a standard deviation of "
            f"{scaling.std[at]:.3g} are stored as 32-bit floats, which hold few digits of their differences. Train "
            "with the original table, or subtract a constant before you convert it."
        )
    return scaling


def _measure(
    job: str, sources: Sequence[modules.Source], init_from: Sequence[str], index: int, of: int
) -> list[tuple[str, Scaling | GroupMoments]]:
    """Run task ``index`` of ``of``: return moments of its share of each standardised layer's records.

    If a checkpoint in ``init_from`` contains the scaling of a layer, this scaling is returned instead.
    """
    with modules.using(sources, REGISTRIES.values(), "the start of a job"):
        conf = JobConf.from_json(job, REGISTRIES)
        net = build_nets(conf)[Phase.TRAIN]
        InitialState(conf, None, init_from).restore_knowledge(net)
        parts: dict[str, Scaling | GroupMoments] = {}
        for layer in net.all_layers:
            if isinstance(layer, StoreInput) and layer.store_conf.standardise and layer.conf_name not in parts:
                inherited = net.context.knowledge.inherited.scalings.get(layer.conf_name)
                fits = inherited is not None and inherited.of_shape(layer.features[0].shape[1:]) is not None
                parts[layer.conf_name] = inherited if inherited and fits else measure(layer, index, of)
        return list(parts.items())


def compute_scalings(
    job: JobConf,
    sources: Sequence[modules.Source],
    init_from: Sequence[str],
    run: Runner,
    warn: Callable[[str], None],
) -> dict[str, Mapping[str, Any]]:
    """Return the `Scaling.to_dict` of each standardised layer of the training net.

    If a checkpoint in ``init_from`` contains a scaling, that scaling is used, because the params were trained with it.

    Parameters
    ----------
    sources : sequence of Source
        The user's own modules.
    init_from : sequence of str
        URLs of checkpoints.
    run : Runner
        Runs one task for each worker. The result does not depend on the number of workers.
    warn : callable
        Called with each warning.

    Raises
    ------
    DataError
        Records cannot be read, or have values that are not finite or too large.
    """
    confs = [layer.given_block(StoreConf) for layer in job.neuralnet.layer]
    if not (job.trains and any(conf is not None and conf.standardise for conf in confs)):
        return {}
    text, n_tasks = job.to_json(), job.cluster.nworker_groups * job.cluster.nworkers_per_group
    tasks = [partial(_measure, text, sources, init_from, i, n_tasks) for i in range(n_tasks)]
    measurements: dict[str, list[Scaling | GroupMoments]] = {}
    for name, part in itertools.chain(*run(tasks)):
        measurements.setdefault(name, []).append(part)
    scalings: dict[str, Mapping[str, Any]] = {}
    for name, parts in measurements.items():
        measured = [part for part in parts if isinstance(part, GroupMoments)]
        inherited = next((part for part in parts if isinstance(part, Scaling)), None)
        scalings[name] = (inherited or scaling_of(name, measured, warn)).to_dict()
    return scalings
