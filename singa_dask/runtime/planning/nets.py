"""Build the nets of a worker from the job file. Every process builds the same ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from singa_dask.conf import JobConf, Phase
from singa_dask.errors import ConfigError, Problem
from singa_dask.gate import Gate
from singa_dask.layers import Context, StoreInput
from singa_dask.net import NetBuilder, NeuralNet
from singa_dask.ops import BFLOAT16, get_ops
from singa_dask.ops.contract import Ops

__all__ = ["build_net", "build_nets", "find_ops", "phases_of"]

# dtype of features, by the precision of a job
DTYPES = {
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "tf32": np.dtype(np.float32),
    "bf16": BFLOAT16,
}


def phases_of(job: JobConf) -> list[Phase]:
    """Return the phases of a training job: training, and validation and test if their frequencies are set."""
    phases = [Phase.TRAIN]
    if job.validate_freq > 0 and job.validate_steps > 0:
        phases.append(Phase.VALIDATION)
    if job.test_freq > 0 and job.test_steps > 0:
        phases.append(Phase.TEST)
    return phases


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
) -> dict[Phase, NeuralNet]:
    """Build the nets of one worker. Only shapes: nothing is opened or allocated.

    The other nets share the params of the training net; only the first worker group has them.

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
    others = [phase for phase in phases_of(job) if phase != Phase.TRAIN and group == 0]
    nets = {Phase.TRAIN: train}
    nets |= {phase: _build_net(job, ops, phase, group, worker, train, gate) for phase in others}
    train.context.deals = dict(deals or {})
    # a worker may compute only a part of the training net, so any part of an input layer can read the class names
    names = train.context.class_names
    names.readers = {layer.conf_name: layer.read_class_names for layer in _store_inputs(train)}
    n_readers = sum(len(_store_inputs(net)) for net in nets.values())
    for net in nets.values():
        net.context.host_names, net.context.class_names = host_names, names
        net.context.reader_bytes = memory and memory // (4 * max(n_readers, 1))
    return nets


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
        raise ConfigError([Problem(found.path or (key,), found.message + hint) for found in error.problems]) from None


def _build_net(
    job: JobConf,
    ops: Ops,
    phase: Phase,
    group: int = 0,
    worker: int = 0,
    share_from: NeuralNet | None = None,
    gate: Gate | None = None,
) -> NeuralNet:
    context = Context(
        phase=phase,
        seed=job.seed,
        dtype=DTYPES[job.precision],
        worker=worker,
        n_workers=job.cluster.nworkers_per_group,
        group=group,
        n_groups=job.cluster.nworker_groups if phase == Phase.TRAIN else 1,
        gate=gate or Gate(),
    )
    context.gate.check()
    return NetBuilder(job, context, ops, share_from=share_from).build()
