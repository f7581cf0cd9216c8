"""Build the nets of a worker from the job file. Every process builds the same nets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from singa_dask.cancellation import Cancellation
from singa_dask.conf import JobConf, Phase
from singa_dask.errors import ConfigError, Problem
from singa_dask.inputs import InputContext, StoreInput
from singa_dask.inputs.writers import Writer
from singa_dask.layers import Span
from singa_dask.net import NeuralNet, make_net
from singa_dask.ops import BFLOAT16, get_ops
from singa_dask.ops.contract import Ops
from singa_dask.runtime.planning.job_stores import IN_ORDER, with_batchsize, with_stores
from singa_dask.runtime.planning.whole_pass import KEYS, WholePass, check_whole, count_records, divide, is_whole

# a reader that shuffles gets this many times the memory of a reader that reads in file order
SHUFFLED = 2
# precision of a job -> dtype of features
DTYPES = {
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "tf32": np.dtype(np.float32),
    "bf16": BFLOAT16,
}


def phase_name(phase: Phase) -> str:
    """Return the name of a phase in events and checkpoints: train, validation or test."""
    return str(phase.name).lower()


class Nets(dict[Phase, NeuralNet]):
    """The nets of one worker, by phase.

    Attributes
    ----------
    passes : dict of Phase to WholePass
        The passes of phases that read all records. Empty until `add_passes` is called.
    """

    def __init__(self, train: NeuralNet) -> None:
        super().__init__({Phase.TRAIN: train})
        self.passes: dict[Phase, WholePass] = {}

    def each(self) -> list[NeuralNet]:
        """Return all nets, including the nets for smaller last batches."""
        return [*self.values(), *(each.rest for each in self.passes.values() if each.rest is not None)]


def build_nets(
    job: JobConf,
    group: int = 0,
    worker: int = 0,
    *,
    ops: Ops | None = None,
    assignments: Mapping[str, Sequence[int]] | None = None,
    host_names: Collection[str] = (),
    cancellation: Cancellation | None = None,
    memory: int | None = None,
) -> Nets:
    """Build the nets of one worker, without opening or allocating anything.

    Only the first worker group has validation and test nets. These nets share the params of the training net. Nets that
    read all records are incomplete until `add_passes` is called. Layers that write files are left out, because steps
    and tests are repeated when a process is lost.

    Parameters
    ----------
    group, worker : int
        The worker group, and the index of the worker in it.
    ops : Ops, optional
        Kernels of the nets. By default, kernels that need no GPU and are used only to compute shapes.
    assignments, host_names
        Attributes of `InputContext`; ``assignments`` is for the training net.
    cancellation : Cancellation, optional
        Cancellation of the worker; see `Context`.
    memory : int, optional
        Number of bytes that the worker may use. The worker's readers share a third of these bytes. A reader that
        shuffles gets twice as much as another reader.

    Raises
    ------
    ConfigError
        Wiring or shapes are wrong, or the kernels are not available. The error lists all problems.
    """
    ops = ops or _ops_for_shapes(job)
    cancellation = cancellation or Cancellation()
    train = _build_net(job, ops, Phase.TRAIN, group, worker, cancellation=cancellation)
    nets = Nets(train)
    for phase, (freq, steps) in KEYS.items() if group == 0 else ():
        if 0 in (getattr(job, freq), getattr(job, steps)):
            continue
        of_phase = with_stores(job, lambda _: IN_ORDER) if is_whole(job, phase) else job
        nets[phase] = _build_net(of_phase, ops, phase, group, worker, train, cancellation)
        if is_whole(job, phase):
            check_whole(nets[phase], phase)
    train.context.assignments = dict(assignments or {})
    # a worker may compute only some shards of an input layer, so any shard may read the class names
    knowledge = train.context.knowledge
    knowledge.readers = {layer.conf_name: layer.source.read_class_names for layer in _store_inputs(train)}
    parts = {phase: 1 if is_whole(job, phase) else SHUFFLED for phase in nets}
    # readers for smaller last batches do not count, because they need only a few additional blocks
    n_parts = sum(len(_store_inputs(net)) * parts[phase] for phase, net in nets.items())
    for phase, net in nets.items():
        net.context.host_names, net.context.knowledge = host_names, knowledge
        net.context.reader_bytes = memory and memory * parts[phase] // (3 * max(n_parts, 1))
    return nets


def add_passes(job: JobConf, nets: Nets) -> None:
    """Count the records of nets that read all records, and build nets for their smaller last batches.

    No memory is allocated.

    Raises
    ------
    ConfigError
        Records cannot be divided into batches (see `count_records`), or a layer does not accept a smaller batch.
    DataError
        A store cannot be opened.
    """
    train = nets[Phase.TRAIN]
    for phase, net in nets.items():
        if not is_whole(job, phase):
            continue
        n_records, size, of, rest = count_records(net, phase), _store_inputs(net)[0].plan.batch_size, net.context, None
        n_batches, n_rest = divide(n_records, size, of.n_workers)
        # workers read separate spans of records only if all layers are divided by batch
        apart = all(layer.site.batch_shard.count == of.n_workers for layer in net.all_layers)
        for layer in _store_inputs(net):
            layer.plan.span, layer.plan.consecutive = (0, n_records - n_rest), apart
        if n_rest:
            smaller = with_batchsize(with_stores(job, lambda _: IN_ORDER), n_rest)
            # a single worker does not divide the batch
            proportions = tuple(Span.of(n_rest, i, of.n_workers).size for i in range(of.n_workers) if of.n_workers > 1)
            rest = _build_net(smaller, net.ops, phase, of.group, of.worker, train, of.cancellation, proportions)
            for layer in _store_inputs(rest):
                layer.plan.span = (n_records - n_rest, n_records)
            rest.context.host_names, rest.context.knowledge = of.host_names, of.knowledge
            rest.context.reader_bytes = of.reader_bytes
        nets.passes[phase] = WholePass(n_batches, n_rest / size, rest)


def _store_inputs(net: NeuralNet) -> list[StoreInput]:
    return [layer for layer in net.all_layers if isinstance(layer, StoreInput)]


def build_net(
    job: JobConf,
    phase: Phase,
    ops: Ops | None = None,
    group: int = 0,
    worker: int = 0,
    cancellation: Cancellation | None = None,
) -> NeuralNet:
    """Build the net of one phase, including layers that write files, without allocating memory.

    See `build_nets`.
    """
    return _build_net(job, ops or _ops_for_shapes(job), phase, group, worker, cancellation=cancellation, writes=True)


def _ops_for_shapes(job: JobConf) -> Ops:
    """Return kernels for computing shapes, never on a GPU, because GPUs are only for workers."""
    return get_ops("numpy") if job.gpu or job.ops == "cupy" else find_ops(job, job.ops)


def find_ops(job: JobConf, name: str) -> Ops:
    """Return kernels by name, with the precision of a job.

    Raise `ConfigError` if they cannot be used here.
    """
    try:
        return get_ops(name, job.precision)
    except ConfigError as error:
        key = "gpu" if job.gpu and name not in (job.ops, "auto") else "ops"
        hint = " Or compute on the CPU: --cpu." if name.startswith("cuda") else ""
        problems = [Problem(each.path or (key,), each.message + hint) for each in error.problems]
        raise ConfigError(problems) from None


def _build_net(
    job: JobConf,
    ops: Ops,
    phase: Phase,
    group: int = 0,
    worker: int = 0,
    share_from: NeuralNet | None = None,
    cancellation: Cancellation | None = None,
    proportions: tuple[int, ...] = (),
    writes: bool = False,
) -> NeuralNet:
    context = InputContext(
        phase=phase,
        seed=job.seed,
        dtype=DTYPES[job.precision],
        worker=worker,
        n_workers=job.cluster.nworkers_per_group,
        proportions=proportions,
        group=group,
        n_groups=job.cluster.nworker_groups if phase == Phase.TRAIN else 1,
        cancellation=cancellation or Cancellation(),
    )
    context.cancellation.check()
    net = make_net(job, context, ops, share_from=share_from)
    if not writes:
        net.leave_out([layer for layer in net.layers if isinstance(layer, Writer)])
    return net
