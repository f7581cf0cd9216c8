"""Mean and deviation of the training records of a job, computed by its Dask workers before it is submitted."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.conf import JobConf, Phase
from singa_dask.data.codecs.scaling import Scaling
from singa_dask.layers import StoreInput
from singa_dask.layers.records import StoreConf
from singa_dask.layers.standardise import Measured, measure, scaling_of
from singa_dask.runtime.job.tasks import Runner, check_wanted
from singa_dask.runtime.planning.nets import build_nets
from singa_dask.runtime.units.initial_state import InitialState

Found = tuple[str, Scaling | Measured]


def _measure(job: str, sources: Sequence[modules.Source], init_from: Sequence[str], index: int, of: int) -> list[Found]:
    """Return for each layer that standardises the moments of part ``index`` of ``of`` parts of its records.

    Or the scaling of a checkpoint that the job begins with.
    """
    modules.load(sources, REGISTRIES.values())
    conf = JobConf.from_json(job, REGISTRIES)
    net = build_nets(conf)[Phase.TRAIN]
    InitialState(conf, None, init_from).give_class_names(net)
    found: dict[str, Scaling | Measured] = {}
    for layer in net.all_layers:
        if isinstance(layer, StoreInput) and layer.store_conf.standardise and layer.conf_name not in found:
            given = net.context.class_names.inherited_scalings.get(layer.conf_name)
            fits = given is not None and given.of_shape(layer.features[0].shape[1:]) is not None
            found[layer.conf_name] = given if given and fits else measure(layer, index, of, check_wanted)
    return list(found.items())


def compute_scalings(
    job: JobConf,
    sources: Sequence[modules.Source],
    init_from: Sequence[str],
    run: Runner,
    warn: Callable[[str], None],
) -> dict[str, Mapping[str, Any]]:
    """Return the scaling of each layer of the training net that standardises, see `Scaling.to_dict`.

    It is that of a checkpoint in ``init_from``, whose params were trained on such values, if that has one.

    Parameters
    ----------
    job : JobConf
    sources : sequence of Source
        The user's own modules.
    init_from : sequence of str
        URLs of checkpoints.
    run : Runner
        Of one task a worker. The result does not depend on their number.
    warn : callable
        Takes a warning.

    Raises
    ------
    DataError
        Records cannot be read, or have values that are not finite or too large.
    """
    confs = [layer.given_block(StoreConf) for layer in job.neuralnet.layer]
    if not (job.trains and any(conf is not None and conf.standardise for conf in confs)):
        return {}
    text, n_tasks = job.model_dump_json(), job.cluster.nworker_groups * job.cluster.nworkers_per_group
    tasks = [partial(_measure, text, sources, init_from, i, n_tasks) for i in range(n_tasks)]
    found: dict[str, list[Scaling | Measured]] = {}
    for name, part in itertools.chain(*run(tasks)):
        found.setdefault(name, []).append(part)
    made: dict[str, Mapping[str, Any]] = {}
    for name, parts in found.items():
        measured = [part for part in parts if isinstance(part, Measured)]
        given = next((part for part in parts if isinstance(part, Scaling)), None)
        made[name] = (given or scaling_of(name, measured, warn)).to_dict()
    return made
