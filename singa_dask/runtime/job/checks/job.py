"""Check a job on the client, before anything starts."""

from __future__ import annotations

import itertools
import os
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from singa_dask.conf import JobConf, Phase
from singa_dask.conf.metrics import split_metric
from singa_dask.data.split import SplitConf
from singa_dask.errors import ConfigError, Problem
from singa_dask.fs.patterns import is_pattern
from singa_dask.inputs import StoreInput
from singa_dask.inputs.writers import Writer
from singa_dask.layers import LAYERS, Layer
from singa_dask.net import NeuralNet, whole_params
from singa_dask.ops import OPS
from singa_dask.runtime.checkpoints.initial_values import InitialValues
from singa_dask.runtime.planning import devices, job_plan, layout, machine
from singa_dask.runtime.planning.nets import Nets, add_passes, build_net, build_nets
from singa_dask.runtime.units.initial_state import InitialState
from singa_dask.shown import plural
from singa_dask.training import ALGORITHMS, check_initialisers
from singa_dask.training.pass_metrics import PassMetrics
from singa_dask.wording import suggest

MAX_MEMORY = 1 << 46


def check_job(
    job: JobConf,
    *,
    resume: str | None = None,
    init_from: Sequence[str] = (),
    check_sources: bool = True,
    absent: Collection[int] = (),
) -> dict[Phase, NeuralNet]:
    """Check wiring, shapes, topology, records and initial values of a job; return its nets.

    Parameters
    ----------
    resume, init_from : str, sequence of str
        See `Driver`.
    check_sources : bool
        Whether to read the records in this process to check them. Pass False if only Dask workers can reach the
        records.
    absent : collection of int
        Indices of layers whose records are missing and not checked; see `absent_records`.

    Returns
    -------
    dict of Phase to NeuralNet
        The nets, whose arrays are not allocated. A job that does not train has only the test net.

    Raises
    ------
    ConfigError
        The job has an error.
    CheckpointError
        The job cannot start from its checkpoints.
    """
    nets = build_nets(job) if job.trains else {Phase.TEST: build_net(job, Phase.TEST)}
    check_memory(nets, here=check_sources and not (job.gpu or job.ops == "cupy"))
    initial_state = InitialState(job, resume, init_from)
    if job.trains:
        initial_state.restore_knowledge(nets[Phase.TRAIN])
    if check_sources:
        for net in nets.values():
            net.check_sources(absent)
    tested = [phase for phase in nets if phase != Phase.TRAIN]
    of_phase: dict[Phase, PassMetrics] = {phase: PassMetrics(nets[phase], job.metrics) for phase in tested}
    if not job.trains:
        initial = InitialValues(job, init_from)
        if initial.urls:
            owners = whole_params(nets[Phase.TEST].logical)
            initial.check(((owner.name, owner.whole_shape) for owner in owners), complete=True)
        return nets
    _check_standardised(nets)
    _check_splits(nets)
    job_plan.JobPlan.make(job, nets[Phase.TRAIN])
    if isinstance(nets, Nets) and check_sources and not absent:
        add_passes(job, nets)
    ALGORITHMS.find(job.train_one_batch.alg).check(nets[Phase.TRAIN])
    check_initialisers(nets[Phase.TRAIN])
    initial_state.check(nets[Phase.TRAIN])
    _check_metrics(job, nets, of_phase)
    return nets


def _check_standardised(nets: Mapping[Phase, NeuralNet]) -> None:
    """Check that test and validation nets standardise the same records as the training net."""
    trained: dict[str, bool] = {}
    for net in nets.values():  # the training net is the first one
        for node, layer in zip(net.nodes, net.all_layers, strict=True):
            if not isinstance(layer, StoreInput) or layer.traits.reads_beside:
                continue
            said = layer.store_conf.standardise
            expected = trained.get(layer.conf_name, any(trained.values()))
            if net.context.phase == Phase.TRAIN:
                trained[layer.conf_name] = said
            elif said != expected:
                message = f"the training net has standardise: {str(expected).lower()}. Set the same value here."
                raise ConfigError(Problem(("neuralnet", "layer", node.index, "store_conf", "standardise"), message))


def _check_splits(nets: Mapping[Phase, NeuralNet]) -> None:
    """Check that all layers split a store by the same rule, and layers of one net read the same part."""
    chosen: dict[str, dict[Phase, SplitConf | None]] = {}
    for phase, net in nets.items():
        for node, layer in zip(net.nodes, net.all_layers, strict=True):
            if not isinstance(layer, StoreInput):
                continue
            split, others = layer.store_conf.split, chosen.setdefault(layer.store_conf.path, {})
            other = others.setdefault(phase, split)
            rules = {each and each.model_copy(update={"part": "train"}).model_dump_json() for each in others.values()}
            if other != split or len(rules) > 1:
                message = (
                    "another layer reads another part of these records, or splits them by another rule. Set the same "
                    "test_share, seed, key and test_from in all layers that read these records, and the same part in "
                    "all layers of a net."
                )
                raise ConfigError(Problem(("neuralnet", "layer", node.index, "store_conf", "split"), message))


def _check_metrics(job: JobConf, nets: Mapping[Phase, NeuralNet], of_phase: Mapping[Phase, PassMetrics]) -> None:
    """Check that early stopping and kept checkpoints name a metric that the net has.

    The check is skipped if a layer may have metrics that it does not declare, such as a user's own layer.
    """
    for key, conf in (("early_stopping", job.early_stopping), ("keep_checkpoints", job.keep_checkpoints)):
        phase, name = split_metric(conf.metric if conf else "")
        if not phase:
            continue
        layers = {layer.conf_name: layer for layer in nets[Phase[phase.upper()]].all_layers}
        own = {layer for layer in layers.values() if not type(layer).__module__.startswith("singa_dask.")}
        if own or any(layer.traits.role == "unsupervised" for layer in layers.values()):
            continue
        times = Counter(metric for layer in layers.values() for metric in layer.traits.metrics)
        known = [
            metric if times[metric] == 1 else f"{layer}.{metric}"
            for layer in layers
            for metric in layers[layer].traits.metrics
        ]
        known += of_phase[Phase[phase.upper()]].values()
        if name not in known:
            message = f"the {phase} net has no metric {name!r}. {suggest(name, known)}"
            raise ConfigError(Problem((key, "metric"), message))


def check_memory(nets: Mapping[Phase, NeuralNet], here: bool) -> None:
    """Check that there is enough memory for the nets of one worker.

    Parameters
    ----------
    here : bool
        Whether this machine computes the nets. If False, the nets only have to fit on the largest possible machine
        (`MAX_MEMORY`).

    Raises
    ------
    ConfigError
        The nets do not fit. The message names the layer that needs the most memory.
    """
    available = machine.machine_memory() if here else MAX_MEMORY
    for phase, net in nets.items():
        needed = net.memory_of_layers()
        total = sum(needed.values())
        if total <= available:
            continue
        name = max(needed, key=needed.__getitem__)
        index = next((node.index for node in net.nodes if node.layer == name), None)
        path = ("neuralnet", "layer") if index is None else ("neuralnet", "layer", index)
        others = "this machine has" if here else "no machine has more than"
        message = (
            f"layer {name!r} needs {machine.size_text(needed[name])} of memory, the whole "
            f"{str(phase.name).lower()} net {machine.size_text(total)}, and {others} "
            f"{machine.size_text(available)}. Lower its sizes, or batchsize."
        )
        raise ConfigError(Problem(path, message))


def net_warnings(nets: Mapping[Phase, NeuralNet]) -> list[Problem]:
    """Return warnings about unused, constant and writing layers, and about batches larger than the data.

    An unused layer that only the test or validation net has causes no warning, as `extract` or `predict` may use it.
    """
    if Phase.TRAIN not in nets:
        return []
    trained = {layer.conf_name for layer in nets[Phase.TRAIN].all_layers}
    unread: dict[int, list[str]] = {}
    for phase, net in nets.items():
        for node in net.unread_layers():
            if node.layer in trained and not _ends(net.name2layer(node.name)):
                unread.setdefault(node.index, []).append(str(phase.name).lower())
    unused = [
        Problem(
            ("neuralnet", "layer", index),
            f"no layer of the {' or '.join(phases)} net reads this layer, which is neither a loss nor an output. "
            "Remove it, let a layer read it, or list in include the phases that need it.",
        )
        for index, phases in unread.items()
    ]
    writers = {
        node.index: layer
        for net in nets.values()
        for node, layer in zip(net.nodes, net.all_layers, strict=True)
        if isinstance(layer, Writer)
    }
    idle = [
        Problem(
            ("neuralnet", "layer", index),
            f"{layer.conf.type} writes nothing while the job trains. To write {layer.options.path}: singa-dask test "
            "JOB.yaml --init-from RUN.",
        )
        for index, layer in writers.items()
    ]
    return [*unused, *idle, *_batch_warnings(nets[Phase.TRAIN])]


def _batch_warnings(net: NeuralNet) -> Iterable[Problem]:
    """Return warnings of inputs smaller than a batch, and of BatchNorm layers that see one value."""
    problems = {}  # path of a layer in the job file -> problem; all parts of a partitioned layer have the same problem
    for layer, node in zip(net.all_layers, net.nodes, strict=True):
        path = ("neuralnet", "layer", node.index)
        if isinstance(layer, StoreInput) and layer.source.n_records is not None:
            n, size = -(-layer.source.n_records // net.context.n_groups), layer.plan.batch_size
            if n < size:
                message = f"a worker group has {n} records, so a batch of {size} has some of them several times."
                message = f"{message} Set {n} or less."
                problems[path] = Problem((*path, "store_conf", "batchsize"), message)
        elif getattr(layer, "has_one_value", False):  # the layer is a BatchNorm
            message = "in training this layer normalises one value for each channel, so its output is always its shift."
            problems[path] = Problem(path, f"{message} Raise batchsize, or use LayerNorm.")
    return problems.values()


def _ends(layer: Layer) -> bool:
    """Return whether the output of a layer may be unused; always True for a user's own layer."""
    own = not type(layer).__module__.startswith("singa_dask.")
    return own or layer.traits.role in ("loss", "output", "unsupervised") or bool(layer.traits.metrics)


def absent_records(job: JobConf) -> dict[int, Problem]:
    """Return warnings of input layers whose local file does not exist, by index of the layer."""
    problems = {}
    for index, layer in enumerate(job.neuralnet.layer):
        if LAYERS.find(layer.type).traits.role != "input":
            continue
        for block, key in itertools.product(layer.blocks, ("path", "vocab_path")):
            path = getattr(layer.blocks[block], key, "")
            if path and "://" not in path and not is_pattern(path) and not os.path.exists(path):
                message = f"{path}: no such file or directory, so the records were not checked."
                problems[index] = Problem(("neuralnet", "layer", index, block, key), message)
    return problems


def missing_gpus(job: JobConf) -> list[Problem]:
    """Return a warning if a job asks for GPUs and this process sees none."""
    if not (job.gpu or job.ops == "cupy"):
        return []
    path = ("gpu",) if job.gpu else ("ops",)
    instead = "To compute on the CPU, pass --cpu, which is --set 'gpu=[]' --set ops=auto."
    try:
        # importing the "cupy" ops loads CuPy, which is an optional extra
        cupy_ops: Any = OPS.find("cupy")
        n_gpus = cupy_ops.count()
    except ConfigError as error:
        return [Problem(path, f"{error} {instead}")]
    # if a GPU index is too large, the worker raises an error that lists the GPUs
    return [] if n_gpus else [Problem(path, f"GPUs cannot be used here: this process sees no GPU. {instead}")]


def worker_warnings(job: JobConf) -> list[Problem]:
    """Return a warning if a job trains on this machine with more workers than the machine has cores."""
    n_cores, cluster = machine.cpu_count(), job.cluster
    processes = [sum(unit.kind == "worker" for unit in units) for units in layout.plan_processes(cluster).processes]
    n_workers = sum(n - devices.n_on_gpus(job, n) for n in processes)
    if not job.trains or n_workers <= n_cores:
        return []
    key = "nworkers_per_group" if cluster.nworkers_per_group > 1 else "nworker_groups"
    cores = plural(n_cores, "core")
    message = f"the job has {n_workers} workers, but this machine has {cores}, so the workers wait for each other."
    return [Problem(("cluster", key), f"{message} Lower {key}, or run on more machines with --scheduler.")]
