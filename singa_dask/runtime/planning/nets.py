"""Build the nets of a worker from the job file. Every process builds the same ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from singa_dask.conf import JobConf, Phase
from singa_dask.errors import ConfigError, Problem
from singa_dask.gate import Gate
from singa_dask.layers import Context, Span, StoreInput
from singa_dask.net import NeuralNet, make_net
from singa_dask.ops import BFLOAT16, get_ops
from singa_dask.ops.contract import Ops
from singa_dask.runtime.planning.passes import (
    IN_ORDER,
    KEYS,
    WholePass,
    check_whole,
    count_records,
    divide,
    is_whole,
    with_batchsize,
    with_stores,
)

# dtype of features, by the precision of a job
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
    """The nets of one worker by phase.

    Attributes
    ----------
    passes : dict of Phase to WholePass
        Of the phases that go over all records; see `add_passes`.
    """

    def __init__(self, train: NeuralNet) -> None:
        super().__init__({Phase.TRAIN: train})
        self.passes: dict[Phase, WholePass] = {}

    def each(self) -> list[NeuralNet]:
        """Return all nets, those of last batches too."""
        return [*self.values(), *(each.rest for each in self.passes.values() if each.rest is not None)]


def build_nets(
    job: JobConf,
    group: int = 0,
    worker: int = 0,
    *,
    ops: Ops | None = None,
    deals: Mapping[str, Sequence[int]] | None = None,
    host_names: Collection[str] = (),
    gate: Gate | None = None,
    memory: int | None = None,
) -> Nets:
    """Build the nets of one worker. Only shapes: nothing is opened or allocated.

    The other nets share the params of the training net; only the first worker group has them. Those that go over all
    records are not complete before `add_passes`.

    Parameters
    ----------
    job : JobConf
    group, worker : int
    ops : Ops, optional
        Kernels of the nets. By default the nets are only for their shapes, which needs no GPU.
    deals : mapping of str to sequence of int, optional
        For the input layers of the training net; see `Context`.
    host_names : collection of str
        See `Context`.
    gate : Gate, optional
        Of the worker, see `Context`.
    memory : int, optional
        Bytes that the worker may take; a quarter of them is for its readers of stores.

    Raises
    ------
    ConfigError
        All errors in wiring and shapes; or the kernels are not available.
    """
    ops = ops or _ops_for_shapes(job)
    gate = gate or Gate()
    train = _build_net(job, ops, Phase.TRAIN, group, worker, gate=gate)
    nets = Nets(train)
    for phase, (freq, steps) in KEYS.items() if group == 0 else ():
        if 0 in (getattr(job, freq), getattr(job, steps)):
            continue
        of_phase = with_stores(job, lambda _: IN_ORDER) if is_whole(job, phase) else job
        nets[phase] = _build_net(of_phase, ops, phase, group, worker, train, gate)
        if is_whole(job, phase):
            check_whole(nets[phase], phase)
    train.context.assignments = dict(deals or {})
    # a worker may compute only a part of the training net, so any part of an input layer can read the class names
    names = train.context.class_names
    names.readers = {layer.conf_name: layer.read_class_names for layer in _store_inputs(train)}
    n_readers = sum(len(_store_inputs(net)) * (1 + is_whole(job, phase)) for phase, net in nets.items())
    for net in nets.values():
        net.context.host_names, net.context.class_names = host_names, names
        net.context.reader_bytes = memory and memory // (4 * max(n_readers, 1))
    return nets


def add_passes(job: JobConf, nets: Nets) -> None:
    """Count the records of nets that go over all of them, and build the nets of the last batches, shapes only.

    Raises
    ------
    ConfigError
        Records cannot be divided into batches, see `count_records`; or a layer does not take a smaller batch.
    DataError
        A store cannot be opened.
    """
    train = nets[Phase.TRAIN]
    for phase, net in nets.items():
        if not is_whole(job, phase):
            continue
        n_records, size, of, rest = count_records(net, phase), _store_inputs(net)[0].batch_size, net.context, None
        n_batches, n_rest = divide(n_records, size, of.n_workers)
        for layer in _store_inputs(net):
            layer.span = (0, n_records - n_rest)
        if n_rest:
            smaller = with_batchsize(with_stores(job, lambda _: IN_ORDER), n_rest)
            # of one worker there are no shares
            shares = tuple(Span.of(n_rest, i, of.n_workers).size for i in range(of.n_workers) if of.n_workers > 1)
            rest = _build_net(smaller, net.ops, phase, of.group, of.worker, train, of.gate, shares)
            for layer in _store_inputs(rest):
                layer.span = (n_records - n_rest, n_records)
            rest.context.host_names, rest.context.class_names = of.host_names, of.class_names
            rest.context.reader_bytes = of.reader_bytes
        nets.passes[phase] = WholePass(n_batches, n_rest / size, rest)


def _store_inputs(net: NeuralNet) -> list[StoreInput]:
    return [layer for layer in net.all_layers if isinstance(layer, StoreInput)]


def build_net(job: JobConf, phase: Phase, ops: Ops | None = None) -> NeuralNet:
    """Build the net of one phase, shapes only; ``ops`` as in `build_nets`.

    Raises
    ------
    ConfigError
        As `build_nets`.
    """
    return _build_net(job, ops or _ops_for_shapes(job), phase)


def _ops_for_shapes(job: JobConf) -> Ops:
    """Return kernels to compute shapes with: never those of a GPU, which only the workers may have."""
    return get_ops("numpy") if job.gpu or job.ops == "cupy" else find_ops(job, job.ops)


def find_ops(job: JobConf, name: str) -> Ops:
    """Return kernels by name, with the precision of a job.

    Raises
    ------
    ConfigError
        They cannot be used here.
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
    gate: Gate | None = None,
    shares: tuple[int, ...] = (),
) -> NeuralNet:
    context = Context(
        phase=phase,
        seed=job.seed,
        dtype=DTYPES[job.precision],
        worker=worker,
        n_workers=job.cluster.nworkers_per_group,
        shares=shares,
        group=group,
        n_groups=job.cluster.nworker_groups if phase == Phase.TRAIN else 1,
        gate=gate or Gate(),
    )
    context.gate.check()
    return make_net(job, context, ops, share_from=share_from)
