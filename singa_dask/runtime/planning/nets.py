"""Build the nets of a worker from the job file. Every process builds the same ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from singa_dask import fs
from singa_dask.cancellation import Cancellation
from singa_dask.conf import JobConf, LayerConf, Phase
from singa_dask.conf.watched import FREQUENCIES
from singa_dask.errors import ConfigError, Problem
from singa_dask.layers import LAYERS, Context, Layer, Span, StoreInput
from singa_dask.layers.outputs import ArgSort, Writer
from singa_dask.layers.store_conf import StoreConf
from singa_dask.net import NeuralNet, make_net
from singa_dask.ops import BFLOAT16, get_ops
from singa_dask.ops.contract import Ops
from singa_dask.paths import PATH_KEYS
from singa_dask.shown import plural

# Passes over all records of a store, each once: whole batches, and the records that are left in a smaller one.


IN_ORDER = {"shuffle": "none", "random_skip": 0, "last_batch": "wrap"}
"""Keys of ``store_conf`` with which records are read in file order, from the first one on."""
KEYS = {Phase[phase.upper()]: keys for phase, keys in FREQUENCIES.items()}


class WholePass(NamedTuple):
    """How the net of a phase goes over all records: so many whole batches, and the net of a last one, if there is one.

    The last batch may be larger than a whole one, so that each worker has some of it; ``weight`` is its size by that
    of a whole one. Its net shares the params of the training net, too.
    """

    n_batches: int
    weight: float
    rest: NeuralNet | None


def is_whole(job: JobConf, phase: Phase) -> bool:
    """Return whether the net of a phase goes over all records whenever it runs in training."""
    freq, steps = KEYS.get(phase, ("", ""))
    return bool(freq) and getattr(job, freq) > 0 and getattr(job, steps) is None


def is_sequential(layer: Layer) -> bool:
    """Return whether a layer needs all batches in order, as it keeps state or writes a file."""
    if layer.traits.is_input:
        return not isinstance(layer, StoreInput)
    keeps = layer.block is not None and getattr(layer.conf.given_block(layer.block), "carry_state", False)
    return keeps or (layer.traits.is_output and not isinstance(layer, ArgSort))


def check_whole(net: NeuralNet, phase: Phase) -> None:
    """Check that a net can go over all records, each once.

    Raises
    ------
    ConfigError
        It cannot.
    """
    sizes = {layer.conf_name: layer.batch_size for layer in net.all_layers if isinstance(layer, StoreInput)}
    others = [layer for layer in net.all_layers if (layer.traits.is_input or not layer.sources)]
    if layer := next((layer for layer in others if not isinstance(layer, StoreInput)), None):
        message = f"layer {layer.conf_name!r} reads no store, so the number of its records is not known"
    elif layer := next((each for each in net.all_layers if is_sequential(each) and not isinstance(each, Writer)), None):
        message = f"layer {layer.conf_name!r} takes all batches one after the other, in one size"
    elif len(set(sizes.values())) > 1:
        message = f"its input layers have batches of several sizes, {_shown(sizes)}"
    else:
        return
    raise _refused(phase, f"{message}, and without {{steps}} each record counts once. Set {{steps}}.")


def count_records(net: NeuralNet, phase: Phase) -> int:
    """Return how many records a net reads, each once.

    Raises
    ------
    ConfigError
        Its stores have different numbers of records, or fewer than there are workers.
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
        message += "each needs one at least."
        raise _refused(phase, f"{message} Lower nworkers_per_group, or set {{steps}}.")
    return n_records


def _shown(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {n}" for name, n in numbers.items())


def _refused(phase: Phase, message: str) -> ConfigError:
    freq, steps = KEYS[phase]
    return ConfigError(Problem((freq,), message.format(steps=steps)))


def divide(n_records: int, size: int, n_workers: int = 1) -> tuple[int, int]:
    """Return the number of whole batches, and of records left: none, or at least one for each worker."""
    n_batches, n_rest = divmod(n_records, size)
    while 0 < n_rest < n_workers:
        n_batches, n_rest = n_batches - 1, n_rest + size
    return n_batches, n_rest


# -- jobs with other ways to read ------------------------------------------------------------------------------


def store_of(layer: LayerConf) -> StoreConf | None:
    """Return what a layer says of the records that it reads, if it reads any from a store."""
    return layer.given_block(StoreConf) if issubclass(LAYERS.find(layer.type), StoreInput) else None


def with_stores(job: JobConf, changes: Callable[[StoreConf], Mapping[str, object]]) -> JobConf:
    """Return a job whose layers read stores with other keys in ``store_conf``."""
    layers = list(job.neuralnet.layer)
    for index, layer in enumerate(layers):
        if (store := store_of(layer)) and (changed := changes(store)):
            layers[index] = layer.with_block(store.model_copy(update=dict(changed)))
    return job.with_layers(layers)


def with_batchsize(job: JobConf, n: int) -> JobConf:
    """Return the job with batches of ``n`` records."""
    return with_stores(job, lambda _: {"batchsize": [n]})


# dtype of features, by the precision of a job
DTYPES = {
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "tf32": np.dtype(np.float32),
    "bf16": BFLOAT16,
    "auto": np.dtype(np.float32),  # until it is chosen, and where nothing is trained
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
    assignments: Mapping[str, Sequence[int]] | None = None,
    host_names: Collection[str] = (),
    cancellation: Cancellation | None = None,
    memory: int | None = None,
) -> Nets:
    """Build the nets of one worker. Only shapes: nothing is opened or allocated.

    The other nets share the params of the training net; only the first worker group has them. Those that go over all
    records are not complete before `add_passes`. Layers that write files are left out: steps and tests are repeated
    when a process is lost, and the lost one may still write.

    Parameters
    ----------
    job : JobConf
    group, worker : int
    ops : Ops, optional
        Kernels of the nets. By default the nets are only for their shapes, which needs no GPU.
    assignments : mapping of str to sequence of int, optional
        For the input layers of the training net; see `Context`.
    host_names : collection of str
        See `Context`.
    cancellation : Cancellation, optional
        Of the worker, see `Context`.
    memory : int, optional
        Bytes that the worker may take; a quarter of them is for its readers of stores.

    Raises
    ------
    ConfigError
        All errors in wiring and shapes; or the kernels are not available.
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
            rest = _build_net(smaller, net.ops, phase, of.group, of.worker, train, of.cancellation, shares)
            for layer in _store_inputs(rest):
                layer.span = (n_records - n_rest, n_records)
            rest.context.host_names, rest.context.class_names = of.host_names, of.class_names
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
    """Build the net of one phase, shapes only, with layers that write files; all else as in `build_nets`.

    Raises
    ------
    ConfigError
        As `build_nets`.
    """
    return _build_net(job, ops or _ops_for_shapes(job), phase, group, worker, cancellation=cancellation, writes=True)


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
    cancellation: Cancellation | None = None,
    shares: tuple[int, ...] = (),
    writes: bool = False,
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
        cancellation=cancellation or Cancellation(),
    )
    context.cancellation.check()
    net = make_net(job, context, ops, share_from=share_from)
    if not writes:
        net.leave_out([layer for layer in net.layers if isinstance(layer, Writer)])
    return net


# Make the paths of a job absolute, for processes with another working directory.


# the paths of records and checkpoints
_PATHS = PATH_KEYS - {"dir", "modules", "workspace"}


def absolute_paths(job: JobConf) -> JobConf:
    """Return the job with its paths made absolute; relative ones start at the current directory."""
    return JobConf.model_validate(_made_absolute(job.model_dump(mode="json"), ""))


def _made_absolute(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return {name: each if name == "categories" else _made_absolute(each, name) for name, each in value.items()}
    if isinstance(value, list):
        return [_made_absolute(each, key) for each in value]
    return fs.absolute(value) if key in _PATHS and isinstance(value, str) else value
