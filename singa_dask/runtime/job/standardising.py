"""Mean and deviation of the training records of a job, computed by its Dask workers before it is submitted."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from singa_dask import modules
from singa_dask.api import REGISTRIES
from singa_dask.conf import JobConf, Phase
from singa_dask.data.codecs.scaling import Scaling, columns_of
from singa_dask.layers import StoreInput
from singa_dask.layers.records import StoreConf
from singa_dask.layers.standardise import Measured, measure, scaling_of
from singa_dask.runtime.inference.part import check_wanted
from singa_dask.runtime.job.tasks import Runner
from singa_dask.runtime.planning.nets import build_nets
from singa_dask.runtime.units.initial_state import InitialState

__all__ = ["compute_scalings", "standardises"]

Found = tuple[str, Scaling | Measured]


@dataclass(frozen=True)
class _Share:
    """Part ``index`` of ``count`` parts of the records of a job; call it to read them."""

    job: str
    sources: Sequence[modules.Source]
    init_from: Sequence[str]
    index: int
    count: int

    def __call__(self) -> list[Found]:
        """Return for each layer that standardises its moments here, or the scaling of a checkpoint."""
        modules.load(self.sources, REGISTRIES.values())
        job = JobConf.from_json(self.job, REGISTRIES)
        net = build_nets(job)[Phase.TRAIN]
        InitialState(job, None, self.init_from).give_class_names(net)
        layers = {layer.conf_name: layer for layer in net.all_layers if isinstance(layer, StoreInput)}
        return [(name, self._of(layer)) for name, layer in layers.items() if layer.store_conf.standardise]

    def _of(self, layer: StoreInput) -> Scaling | Measured:
        inherited = layer.context.class_names.inherited_scalings.get(layer.conf_name)
        if inherited is not None and len(inherited.mean) == columns_of(layer.features[0].shape[1:]):
            return inherited
        return measure(layer, self.index, self.count, check_wanted)


def standardises(job: JobConf) -> bool:
    """Return whether a layer of a job standardises its records."""
    confs = [layer.given_block(StoreConf) for layer in job.neuralnet.layer]
    return job.trains and any(conf is not None and conf.standardise for conf in confs)


def compute_scalings(
    job: JobConf,
    sources: Sequence[modules.Source],
    init_from: Sequence[str],
    run: Runner,
    n_tasks: int,
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
    n_tasks : int
        Number of tasks that read records. The result does not depend on it.
    warn : callable
        Takes a warning.

    Raises
    ------
    DataError
        Records cannot be read, or have values that are not finite or too large.
    """
    text = job.model_dump_json()
    tasks = [_Share(text, sources, init_from, i, n_tasks) for i in range(n_tasks)]
    found: dict[str, list[Scaling | Measured]] = {}
    for name, part in itertools.chain(*run(tasks)):
        found.setdefault(name, []).append(part)
    made: dict[str, Mapping[str, Any]] = {}
    for name, parts in found.items():
        inherited = [part for part in parts if isinstance(part, Scaling)]
        measured = [part for part in parts if isinstance(part, Measured)]
        scaling, warning = (inherited[0], "") if inherited else scaling_of(name, measured)
        made[name] = scaling.to_dict()
        if warning:
            warn(warning)
    return made
