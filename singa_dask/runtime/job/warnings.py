"""Warnings on a job that depend on its nets, or on this machine."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from typing import Any

from singa_dask.conf import JobConf, Phase
from singa_dask.data.stores.opening import is_pattern
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers import LAYERS, Layer
from singa_dask.net import NeuralNet
from singa_dask.ops import OPS
from singa_dask.runtime.planning.devices import n_on_gpus
from singa_dask.runtime.planning.placement import plan_processes
from singa_dask.runtime.planning.resources import cpu_count

__all__ = ["absent_records", "missing_gpus", "net_warnings", "worker_warnings"]


def net_warnings(nets: Mapping[Phase, NeuralNet]) -> list[Problem]:
    """Return the warnings on the nets of a training job: layers whose output is not used.

    A layer that only the test or validation net has may be there for `extract` and `predict`.
    """
    if Phase.TRAIN not in nets:
        return []
    trained = {layer.conf_name for layer in nets[Phase.TRAIN].all_layers}
    unread: dict[int, list[str]] = {}
    for phase, net in nets.items():
        for node in net.unread_layers():
            if node.layer in trained and not _ends(net.name2layer(node.name)):
                unread.setdefault(node.index, []).append(str(phase.name).lower())
    return [
        Problem(
            ("neuralnet", "layer", index),
            f"no layer of the {' or '.join(phases)} net reads this one, and it is no loss and no output. "
            "Remove it, let a layer read it, or say by include in which phases it is needed.",
        )
        for index, phases in unread.items()
    ]


def _ends(layer: Layer) -> bool:
    """Return whether the output of a layer may be unused; always True for layers of the user."""
    own = not type(layer).__module__.startswith("singa_dask.")
    return (
        own
        or layer.traits.is_loss
        or layer.traits.is_output
        or layer.traits.learns_without_loss
        or bool(layer.traits.metrics)
    )


def absent_records(job: JobConf) -> dict[int, Problem]:
    """Return a warning for each input layer that reads a local file that does not exist, by index in the job."""
    found = {}
    for index, layer in enumerate(job.neuralnet.layer):
        if not LAYERS.find(layer.type).traits.is_input:
            continue
        for block, key in itertools.product(layer.blocks, ("path", "vocab_path")):
            path = getattr(layer.blocks[block], key, "")
            if path and "://" not in path and not is_pattern(path) and not os.path.exists(path):
                message = f"{path}: no such file or directory, so the records were not checked."
                found[index] = Problem(("neuralnet", "layer", index, block, key), message)
    return found


def missing_gpus(job: JobConf) -> list[Problem]:
    """Return a warning if a job asks for GPUs and this machine has none."""
    if not (job.gpu or job.ops == "cupy"):
        return []
    path = ("gpu",) if job.gpu else ("ops",)
    instead = "To compute on the CPU say --cpu, which is --set 'gpu=[]' --set ops=auto."
    try:
        # the class of an extra, which is imported when it is first asked for
        cupy_ops: Any = OPS.find("cupy")
        n_gpus = cupy_ops.count()
    except ConfigError as error:
        return [Problem(path, f"{error} {instead}")]
    # if an index is too large, the error of the worker lists those that exist
    return [] if n_gpus else [Problem(path, f"GPUs cannot be used here: this process sees no GPU. {instead}")]


def worker_warnings(job: JobConf) -> list[Problem]:
    """Return the warnings on a training job for this machine only: more workers than cores."""
    n_cores, cluster = cpu_count(), job.cluster
    processes = [sum(unit.kind == "worker" for unit in units) for units in plan_processes(cluster).processes]
    n_workers = sum(n - n_on_gpus(job, n) for n in processes)
    if not job.trains or n_workers <= n_cores:
        return []
    key = "nworkers_per_group" if cluster.nworkers_per_group > 1 else "nworker_groups"
    message = f"the job has {n_workers} workers, and this machine {n_cores} cores: they wait for each other."
    return [Problem(("cluster", key), f"{message} Lower it, or run on more machines with --scheduler.")]
