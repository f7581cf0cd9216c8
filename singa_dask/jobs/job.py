"""Jobs as values: read from a file, or built in Python of nets and layers; and their checks."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from singa_dask.api import REGISTRIES
from singa_dask.conf import Conf, JobConf, JobFile, LayerConf, Phase, find_warnings, loads
from singa_dask.conf import load as load_file
from singa_dask.conf.blocks import expand
from singa_dask.conf.names import suggest_part
from singa_dask.conf.places import TreeMap, plain
from singa_dask.conf.yaml_text import dump, parse
from singa_dask.errors import ConfigError, Problem
from singa_dask.jobs.datasets.binding import readers
from singa_dask.jobs.pages import JobNets, job_page
from singa_dask.layers import LAYERS, Layer
from singa_dask.net import NeuralNet
from singa_dask.runtime.job.checks import missing_gpus, net_warnings, prepare, worker_warnings
from singa_dask.runtime.job.epochs import with_steps
from singa_dask.runtime.planning.nets import build_nets
from singa_dask.training import with_initialisers

HERE = "job"

# Checks of a job that look at its nets and its records; each mistake is told with its place in the file.


def check(job_file: JobFile, **given: Any) -> dict[Phase, NeuralNet]:
    """Check what needs the whole job: wiring, shapes, topology, records, initial values; see `prepare`.

    Returns
    -------
    dict of Phase to NeuralNet
        The nets, shapes only.

    Raises
    ------
    ConfigError
        With the places in the file.
    """
    # data of Python objects are not there before the job is started
    absent = {*given.pop("absent", ()), *readers(job_file.job)}
    with job_file.located():
        return prepare(job_file.job, absent=absent, **given)


def complete(job_file: JobFile, init_from: Sequence[str] = ()) -> JobFile:
    """Add the initialisers of the layers' types for params that neither the job nor a checkpoint initialises.

    SINGA's own files, and jobs that start from checkpoints (``init_from`` among them), stay as they are: that nothing
    says it is a mistake there.

    Raises
    ------
    ConfigError
        The training net cannot be built; with the places in the file.
    """
    job = job_file.job
    if job_file.is_singa or job.checkpoint_path or init_from or not job.trains:
        return job_file
    with job_file.located():
        return replace(job_file, job=with_initialisers(job, build_nets(job)[Phase.TRAIN]))


def count_steps(job_file: JobFile, nets: Mapping[Phase, NeuralNet], resume: str | None = None) -> JobFile:
    """Return the job with train_steps in place of epochs; its training records must be readable from here.

    Raises
    ------
    ConfigError
        They cannot be counted, or there are none; with the place in the file.
    """
    with job_file.located():
        return replace(job_file, job=with_steps(job_file.job, nets[Phase.TRAIN], resume))


def warnings_on(
    job_file: JobFile,
    nets: Mapping[Phase, NeuralNet] | None = None,
    embedded: bool = False,
    more: Iterable[Problem] = (),
) -> list[Problem]:
    """Return the warnings on a job, each with its place in the file.

    Parameters
    ----------
    job_file : JobFile
    nets : mapping of Phase to NeuralNet, optional
        Where the job is to be trained: its nets.
    embedded : bool
        Whether this machine is to train the job alone.
    more : iterable of Problem
        Others, that are to be among them.
    """
    problems = [*find_warnings(job_file.job, REGISTRIES, training=nets is not None), *net_warnings(nets or {})]
    if embedded:
        problems += [*worker_warnings(job_file.job), *missing_gpus(job_file.job)]
    return job_file.in_order([*problems, *more])


def layer(
    type: str | type[Layer], *, name: str = "", srclayers: str | Sequence[str] | None = None, **keys: Any
) -> dict[str, Any]:
    """Return a layer, as a job file has it.

    Parameters
    ----------
    type : str or class
        ``"InnerProduct"``, or `singa_dask.layers.neuron.InnerProduct`. One of the user's own is ``"module.Class"``,
        and the job names the module's file in ``modules``; its keys are given as in a job file.
    name : str
        By default `Net` chooses one.
    srclayers : str or sequence of str
        Names of the layers that feed it; by default `Net` takes the one before it.
    **keys
        Keys of the layer; those of its own block need not be nested, ``num_output=10``.

    Raises
    ------
    ConfigError
        The type is unknown.

    Examples
    --------
    >>> layer("InnerProduct", num_output=10)
    {'type': 'InnerProduct', 'innerproduct_conf': {'num_output': 10}}
    """
    cls = _class_of(type) if isinstance(type, str) else type
    values: dict[str, Any] = {"type": type if isinstance(type, str) else _name_of(type)}
    if name:
        values["name"] = name
    if srclayers is not None:
        values["srclayers"] = _listed(srclayers)
    block = cls.block if cls else None
    fields = set(block.model_fields) - set(LayerConf.model_fields) if block else set()
    own = {key: keys.pop(key) for key in list(keys) if key in fields}
    if block and own:
        values[block.block_key] = {**keys.pop(block.block_key, {}), **own}
    return {**values, **keys}


def _class_of(type: str) -> type[Layer] | None:
    """Return the class of a type, None of a user's own: its module is loaded with the job."""
    try:
        return LAYERS.find(type)
    except ConfigError:
        if "." in type:
            return None
        if (known := LAYERS.names()) and type in known:
            raise  # it lacks a package
        raise ConfigError(f"unknown layer type {type!r}. {suggest_part('layer', type, known)}") from None


def _name_of(cls: type[Layer]) -> str:
    if LAYERS.get(cls.__name__) is cls:
        return cls.__name__
    raise ConfigError(
        f"{cls.__module__}.{cls.__qualname__} is not a registered layer type. Write the class in a module of your own, "
        "name its file in the key modules of the job, and its type as 'module.Class'."
    )


class Sequential(dict[str, Any]):
    """Layers that a net, or another `Sequential`, has as one: the ``blocks`` of a job file, in Python.

    Parameters
    ----------
    *layers : mapping
        Of `layer`, `singa_dask.nn`, or others of this class. Names and sources that they lack are as in a `Net`; the
        first one reads the first input.
    name : str
        Stands, with a point, before the names of the layers; others read the last one by it. By default chosen by
        `Net`.
    srclayers : str or sequence of str
        Names of the layers that feed it, one for each input; by default the one before it.
    inputs : str or sequence of str
        Names of the inputs: ``"$in"`` in ``srclayers`` of one of the layers is the layer that feeds input ``in``.
    output : str
        The layer that others read, in place of the last.
    repeat : int, optional
        So many of them, one after another, called ``name.1``, ``name.2`` ...

    Examples
    --------
    >>> def residual(filters, **keys):
    ...     convolutions = [layer("Convolution", num_filters=filters, kernel=3, pad=1) for _ in range(2)]
    ...     return Sequential(*convolutions, layer("Add", srclayers=["convolution2", "$in"]), layer("ReLU"), **keys)
    >>> Net([layer("Dummy", name="x"), residual(16, name="a"), layer("ReLU")])
    <Net: x, a.convolution, a.convolution2, a.add, a.relu, relu>
    """

    def __init__(
        self,
        *layers: Mapping[str, Any],
        name: str = "",
        srclayers: str | Sequence[str] | None = None,
        inputs: str | Sequence[str] = "in",
        output: str = "",
        repeat: int | None = None,
    ) -> None:
        use = {"name": name, "srclayers": _listed(srclayers or ()), "repeat": repeat}
        block = {"inputs": _listed(inputs), "output": output, "layer": list(layers)}
        super().__init__({key: value for key, value in use.items() if value not in ("", [], None)}, block=block)


class Net(dict[str, Any]):
    """The block ``neuralnet`` of a job.

    Parameters
    ----------
    layers : sequence of mapping
        Of `layer`, `singa_dask.nn`, or `Sequential`. One without a name gets that of its type, with a number from the
        second on; one without sources is fed by the one before it, input layers by none.
    **keys
        The other keys of ``neuralnet``: ``partition_dim``, ``unroll_len``.

    Raises
    ------
    ConfigError
        A `Sequential` is not used as it is made.
    """

    def __init__(self, layers: Sequence[Mapping[str, Any]], **keys: Any) -> None:
        definitions: dict[str, Any] = {}
        wired = list(_wired(layers, definitions))
        if definitions:
            text = dump(_plain({"blocks": definitions, "neuralnet": {"layer": wired}}))
            root, problems = parse(text, HERE, with_lines=False)
            assert isinstance(root, TreeMap)
            if problems := [*problems, *expand(root)]:
                raise ConfigError(problems)
            wired = plain(root)["neuralnet"]["layer"]
        super().__init__(**keys, layer=wired)

    def __repr__(self) -> str:
        return f"<Net: {', '.join(each['name'] for each in self['layer'])}>"


def _wired(
    layers: Sequence[Mapping[str, Any]], blocks: dict[str, Any], before: str = "", within: str = ""
) -> Iterator[dict[str, Any]]:
    """Yield layers with names and sources; a `Sequential` becomes a use of a block, which is added to ``blocks``.

    Parameters
    ----------
    layers : sequence of mapping
    blocks : dict
    before : str
        What the first layer reads.
    within : str
        Names of the `Sequential` that have the layers, each with a point.
    """
    taken = Counter(each["name"] for each in layers if "name" in each)
    for each in layers:
        kind = "sequential" if "block" in each else str(each["type"]).rpartition(".")[2].lower()
        name = each.get("name") or _free_name(kind, taken)
        wired = {"name": name, **each}
        cls = None if "block" in each else _class_of(each["type"])
        if "srclayers" not in wired and not (cls and cls.traits.is_input) and before:
            wired["srclayers"] = [before]
        if "block" in each:
            definition, wired["block"] = each["block"], f"{within}{name}"
            inner = _wired(definition["layer"], blocks, f"${definition['inputs'][0]}", f"{within}{name}.")
            blocks[wired["block"]] = {**definition, "layer": list(inner)}
        before = name
        yield wired


def _listed(names: str | Sequence[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _free_name(name: str, taken: Counter[str]) -> str:
    number, free_name = 1, name
    while free_name in taken:
        number += 1
        free_name = f"{name}{number}"
    taken[free_name] += 1
    return free_name


class Job:
    """A job: a net, how it is trained, and on what.

    Jobs do not change; `replace` returns another one.

    Parameters
    ----------
    net : Net, mapping, or sequence of mapping
        Layers, as `Net` and `layer` make them; or the block ``neuralnet`` of a job file.
    **keys
        The other keys of a job file: ``name``, ``epochs``, ``updater``, ``cluster`` ... Blocks are dicts.

    Attributes
    ----------
    file : JobFile
        The job with the places of its keys, for errors.

    Raises
    ------
    ConfigError
        With all mistakes.

    Examples
    --------
    >>> import singa_dask as sd
    >>> records = {"path": "data/digits/train.arrow", "shape": [28, 28], "batchsize": 64, "std_value": 255}
    >>> net = sd.Net(
    ...     [
    ...         sd.layer("RecordInput", name="data", store_conf=records),
    ...         sd.layer("InnerProduct", name="fc", num_output=10),
    ...         sd.layer("SoftmaxLoss", srclayers=["fc", "data"]),
    ...     ]
    ... )
    >>> sgd = {"type": "SGD", "learning_rate": {"type": "Fixed", "base_lr": 0.1}}
    >>> job = sd.Job(net, train_steps=10, train_one_batch={"alg": "BP"}, updater=sgd)
    >>> [each.name for each in job.conf.neuralnet.layer]
    ['data', 'fc', 'softmaxloss']
    """

    def __init__(self, net: Mapping[str, Any] | Sequence[Mapping[str, Any]], **keys: Any) -> None:
        block = net if isinstance(net, Mapping) else {"layer": list(net)}
        values = {**keys, "neuralnet": block}
        self.file = loads(dump(_plain(values), brief=True), HERE, registries=REGISTRIES, with_lines=False)

    @classmethod
    def of(cls, job_file: JobFile) -> Job:
        """Return the job of a file that has been read."""
        job = cls.__new__(cls)
        job.file = job_file
        return job

    def __setattr__(self, name: str, value: object) -> None:
        if name != "file":  # it would change nothing, silently
            raise AttributeError(f"a job does not change: write job = job.replace({{{name!r}: {value!r}}}).")
        super().__setattr__(name, value)

    @property
    def conf(self) -> JobConf:
        """What the job says, with every default."""
        return self.file.job

    @property
    def name(self) -> str:
        """The name of the job."""
        return self.conf.name

    def replace(self, set: Mapping[str, Any] | None = None, cluster: str | os.PathLike[str] | None = None) -> Job:
        """Return the job with some values changed.

        Parameters
        ----------
        set : mapping of str to Any
            Values by their keys, such as ``"updater.learning_rate.base_lr"`` or
            ``"neuralnet.layer[fc1].innerproduct_conf.num_output"``.
        cluster : path, optional
            File whose block replaces ``cluster``, or the name of a topology: allreduce, downpour, hogwild, hybrid,
            sandblaster, single.

        Raises
        ------
        ConfigError
            With all mistakes.
        """
        return Job.of(loads(self.to_yaml(), HERE, _changes(set), cluster, REGISTRIES, with_lines=False))

    def nets(self) -> JobNets:
        """Build the nets of the job and check all that can be checked here; nothing is started.

        Raises
        ------
        ConfigError, CheckpointError, DataError
        """
        return JobNets(check(complete(self.file)))

    def warnings(self) -> list[str]:
        """Return what is valid in the job, and probably not meant."""
        return [str(problem) for problem in warnings_on(self.file)]

    def to_yaml(self) -> str:
        """Return the job as the text of a job file, without defaults; it loads back to an equal job."""
        return self.file.given()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the job file."""
        Path(path).write_text(self.to_yaml(), encoding="utf-8")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and self.conf == other.conf

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        layers = self.conf.neuralnet.layer
        return f"<Job {self.name!r}: {len(layers)} layers, {self.conf.length}>"

    def _repr_html_(self) -> str:
        try:
            nets = check(complete(self.file), check_sources=False)
        except (ConfigError, OSError):
            nets = {}
        return job_page(self.conf, nets)


def load(
    path: str | os.PathLike[str],
    set: Mapping[str, Any] | None = None,
    cluster: str | os.PathLike[str] | None = None,
) -> Job:
    """Read a job file.

    Parameters
    ----------
    path : path
        YAML, or SINGA's own format.
    set, cluster
        See `Job.replace`.

    Raises
    ------
    ConfigError
        With every mistake, in the order of the file.
    """
    return Job.of(load_file(path, _changes(set), cluster, REGISTRIES))


def as_job(job: Job | str | os.PathLike[str]) -> Job:
    """Return a job, or the one of a job file."""
    return job if isinstance(job, Job) else load(job)


def _changes(values: Mapping[str, Any] | None) -> Iterable[str]:
    """Return values by key as those of ``--set``; JSON is YAML."""
    return [f"{key}={json.dumps(_plain(value))}" for key, value in (values or {}).items()]


def _plain(value: Any) -> Any:
    """Return a value as a job file can say it."""
    if isinstance(value, Conf):
        return value.model_dump(exclude_unset=True)
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    # numbers of numpy
    return value.item() if hasattr(value, "item") and not isinstance(value, (str, bytes)) else value
